"""`report`: a recorded day beside what it would have been."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace
from tests.cli.builders import manifests

from goodput.adapters.ledger_files import LedgerFiles
from goodput.cli.documents import read_documents
from goodput.cli.main import main
from goodput.cli.offline import read_offline
from goodput.domain.decision import Action, Decision, Rule
from goodput.domain.identity import Key
from goodput.domain.ledger import Asked, Looked, encode
from goodput.domain.samples import Sample
from goodput.runtime.settings import Settings
from goodput.simulator import capacity

BEGIN = 1_760_000_000.0
MINUTES = 12
# 2 requests a second, 1 % of which certainly missed.
PER_MINUTE = 120.0


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    """What a replica holds is measured over short runs: how exactly is tested elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capacity, "max_rate", partial(capacity.max_rate, seconds=100.0, tolerance=0.1))
        yield


def asked(name: str = "m", at: float = BEGIN + 60.0) -> Asked:
    slo = {"ttft": "2s", "tpot": "60ms", "attainment": "95%"}
    text = manifests(slo=slo, gpuTypes=["l40s"], scaling={"minReplicas": 1, "maxReplicas": 4})
    world = read_offline(read_documents([StringIO(text)]), "default", Settings(prometheus_url=""))
    ((_, intent),) = world.models
    gpu = next(each for each in world.gpu_types if each.name == "l40s")
    intent = replace(intent, key=Key("default", name))
    return Asked(at=at, intent=intent, gpu=gpu, tensor_parallel=1, pipeline_parallel=1)


def look(minute: int, name: str = "m", **changes: Any) -> Looked:
    at = BEGIN + 60.0 * minute
    quarter = PER_MINUTE / 4.0
    samples = tuple(
        Sample(
            at - 15.0 * place,
            15.0,
            quarter,
            finished=quarter,
            ttft_misses=0.01 * quarter,
            good_lower=0.98 * quarter,
            good_upper=0.99 * quarter,
            prompt_tokens=1000.0 * quarter,
            cached_tokens=200.0 * quarter,
            generation_tokens=150.0 * quarter,
            first_tokens=quarter,
        )
        for place in (3, 2, 1, 0)
    )
    values: dict[str, Any] = {
        "at": at,
        "seconds": 60.0,
        "key": Key("default", name),
        "samples": samples,
        "desired": 2.0,
        "ready": 2.0,
        "cost": 0.06,
        "demand_rps": 2.0,
        "forecast_rps": 2.2,
        "horizon_seconds": 180.0,
        "capacity_rps": 3.0,
        "startup_seconds": 60.0,
    }
    return Looked(**{**values, **changes})


def write(directory: Path, *lines: Asked | Looked) -> Path:
    files = LedgerFiles(directory, "t", most_bytes=10_000_000, most_seconds=1e9, clock=lambda: BEGIN)
    files.append([encode(line) for line in lines])
    return directory


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return write(tmp_path / "ledger", asked(), *(look(minute) for minute in range(1, MINUTES + 1)))


def report(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["report", *arguments])


def made(*arguments: str) -> dict[str, Any]:
    result = report(*arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


def test_json_has_what_was_recorded_what_was_replayed_and_how_true_predictions_came(ledger: Path) -> None:
    found = made("--from", str(ledger), "--policy", "goodput", "--policy", "hpa-queue", "--slo", "tpot=80ms")
    recorded = found["recorded"]
    assert recorded["requests"] == PER_MINUTE * MINUTES
    assert (recorded["attainment_lower"], recorded["attainment_upper"]) == (0.98, 0.99)
    assert recorded["cost"] == pytest.approx(0.06 * MINUTES)
    assert recorded["mean_replicas"] == 2.0
    assert [each["policy"] for each in found["replayed"]] == ["goodput", "hpa-queue", "TPOT 80 ms instead of 60 ms"]
    assert {each["requests"] for each in found["replayed"]} == {PER_MINUTE * MINUTES}
    assert found["replayed"][0]["attainment"] > 0.95
    assert found["predictions"] == {
        "forecasts": MINUTES - 3,
        "excess": pytest.approx(0.1),
        "exceeded": 0,
        "expected_to_hold": MINUTES - 3,
        "certainly_missed": 0,
        "undecided": 0,
    }


def test_the_table_begins_with_what_was_recorded_and_tells_the_day_in_a_sentence(ledger: Path) -> None:
    result = report("model", "m", "--from", str(ledger), "--policy", "goodput", "--policy", "static-peak")
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    first = next(row for row in rows if row[:1] == ["recorded"])
    assert first[1] == "98-99%"
    assert "recorded 98-99% at $0.72; goodput " in result.stdout
    assert "; static-peak " in result.stdout
    assert "compare others with it" in result.stdout


def test_html_opens_offline_and_has_the_recorded_row(ledger: Path) -> None:
    result = report("--from", str(ledger), "--policy", "goodput", "-o", "html")
    assert result.exit_code == 0, result.output
    assert "<td>recorded</td><td>98-99%</td>" in result.stdout
    assert "http" not in result.stdout.replace('xmlns="http://www.w3.org/2000/svg"', "")


def test_several_models_are_told_apart(tmp_path: Path) -> None:
    lines = [asked("a"), asked("b"), *(look(minute, name) for minute in range(1, 9) for name in ("a", "b"))]
    directory = str(write(tmp_path / "ledger", *lines))
    result = report("--from", directory)
    assert result.exit_code == 1
    assert "default/a, default/b" in result.output
    assert made("model/b", "--from", directory, "--policy", "static")["model"] == "b"
    assert "no such Model" in report("c", "--from", directory).output


def test_only_the_last_hours_count_and_gaps_are_said(tmp_path: Path) -> None:
    old = [replace(each, at=each.at - 7_200.0) for each in (look(1, cost=50.0), look(2, cost=50.0))]
    lines = [asked(), *old, *(look(minute) for minute in (1, 2, 3, 4, 5, 8, 9, 10))]
    directory = str(write(tmp_path / "ledger", *lines))
    result = report("--from", directory, "--hours", "1", "--policy", "static")
    assert result.exit_code == 0, result.output
    assert "recorded 98-99% at $0.48" in result.stdout
    assert "Nobody watched for 120 s of this" in result.stdout


def test_a_cut_file_and_lines_of_another_version_are_said(tmp_path: Path) -> None:
    path = tmp_path / "day.jsonl"
    lines = [encode(line) for line in (asked(), *(look(minute) for minute in range(1, 9)))]
    path.write_bytes(b"".join(lines) + lines[1].replace(b'"version":1', b'"version":9') + lines[1][:40])
    result = report("--from", str(path), "--policy", "static")
    assert result.exit_code == 0, result.output
    assert "1 lines of the ledger were damaged" in result.stdout
    assert "1 lines of the ledger were of another version" in result.stdout


def test_a_replay_far_from_what_was_recorded_says_so(tmp_path: Path) -> None:
    lines = [asked(), *(look(minute, cost=5.0) for minute in range(1, 9))]
    result = report("--from", str(write(tmp_path / "ledger", *lines)), "--policy", "goodput")
    assert "It is far from what was recorded" in result.stdout


def test_decisions_are_counted(tmp_path: Path) -> None:
    def moved(action: Action) -> Decision:
        return Decision(
            model=Key("default", "m"),
            pool="serve",
            at=BEGIN,
            action=action,
            rule=Rule.DEMAND,
            from_replicas=1,
            to_replicas=2,
            wanted_replicas=2,
        )

    moves = {2: (moved(Action.SCALE_UP),), 5: (moved(Action.SCALE_UP), moved(Action.SCALE_DOWN))}
    lines = [asked(), *(look(minute, decisions=moves.get(minute, ())) for minute in range(1, 9))]
    recorded = made("--from", str(write(tmp_path / "ledger", *lines)), "--policy", "static")["recorded"]
    assert (recorded["scale_ups"], recorded["scale_downs"]) == (2, 1)


@pytest.mark.parametrize(
    ("slo", "said"),
    [
        ("tpot=80", "a duration"),
        ("latency=1s", "is none of ttft=.., tpot=.., e2e=.., attainment=.."),
        ("ttft=none,tpot=none", "at least one of"),
        ("attainment=101%", "attainment"),
    ],
)
def test_an_objective_that_is_none_is_refused(ledger: Path, slo: str, said: str) -> None:
    result = report("--from", str(ledger), "--slo", slo)
    assert result.exit_code != 0
    assert said in result.output


def test_an_objective_that_no_replica_holds_is_said_and_the_rest_is_told(ledger: Path) -> None:
    result = report("--from", str(ledger), "--policy", "static", "--slo", "tpot=1ms")
    assert result.exit_code == 0, result.output
    assert "TPOT 1 ms instead of 60 ms: " in result.stdout


def test_files_of_a_ledger_come_through_a_pipe_as_cat_joins_them(tmp_path: Path) -> None:
    """The pod's files are read where the rights are those of `kubectl exec`."""
    first = write(tmp_path / "a", asked(), *(look(minute) for minute in range(1, 5)))
    second = write(tmp_path / "b", *(look(minute) for minute in range(5, 9)))
    joined = b"".join(each.read_bytes() for part in (first, second) for each in part.iterdir())
    result = CliRunner().invoke(main, ["report", "--from", "-", "--policy", "static", "-o", "json"], input=joined)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["recorded"]["requests"] == 8 * PER_MINUTE


@pytest.mark.parametrize("name", ["", "empty.jsonl"])
def test_no_ledger_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    result = report("--from", str(tmp_path / name))
    assert result.exit_code == 1
    assert "holds no line of a ledger" in result.output
