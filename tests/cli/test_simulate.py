"""`simulate`: a trace played to the fleet of a Model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result
from tests.cli.builders import manifests
from tests.simulator.fleet.fleets import PLANT

from goodput.cli.charts import Line, chart
from goodput.cli.main import main
from goodput.simulator import capacity
from goodput.simulator.policies import POLICIES

KEYS = [
    "policy",
    "requests",
    "attainment",
    "goodput_rps",
    "offered_rps",
    "gpu_hours",
    "cost",
    "replica_seconds",
    "scale_ups",
    "scale_downs",
    "worst_minute_attainment",
    *(f"{time}_p{share}_seconds" for time in ("ttft", "tpot", "e2e") for share in (50, 95, 99)),
]
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
SLO = {"ttft": "2s", "tpot": "60ms", "attainment": "95%"}


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    """What a replica holds is measured over short runs: how exactly is tested elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capacity, "max_rate", partial(capacity.max_rate, seconds=100.0, tolerance=0.1))
        yield


def simulate(*arguments: str, stdin: str = "") -> Result:
    model = stdin or manifests(slo=SLO, gpuTypes=["l40s"], scaling={"minReplicas": 1, "maxReplicas": 4})
    return CliRunner().invoke(main, ["simulate", "-f", "-", *arguments], input=model)


def rows(*arguments: str, stdin: str = "") -> list[dict[str, Any]]:
    result = simulate(*arguments, "-o", "json", stdin=stdin)
    assert result.exit_code == 0, result.output
    return list(json.loads(result.stdout))


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Five minutes: a request of 4,000 tokens every 2 s, every half a second in the third minute."""
    times = [0.5 * step for step in range(600) if step % 4 == 0 or 240 <= step < 360]
    path = tmp_path_factory.mktemp("traces") / "five.csv"
    path.write_text("seconds,input_tokens,output_tokens\n" + "".join(f"{at},4000,150\n" for at in times))
    return str(path)


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The plant of other tests, as a file."""
    path = tmp_path_factory.mktemp("plants") / "mine.json"
    fields = {name: getattr(PLANT, name) for name in PLANT.__dataclass_fields__}
    path.write_text(json.dumps({"comment": "measured by us", **fields}))
    return str(path)


def test_json_is_a_list_of_one_object_a_policy_with_the_keys_that_were_promised(trace: str) -> None:
    found = rows("--trace", trace, "--policy", "goodput", "--policy", "static", "--policy", "static-peak")
    assert [each["policy"] for each in found] == ["goodput", "static", "static-peak"]
    assert all(list(each) == KEYS for each in found)
    ours, static, peak = found
    assert {each["requests"] for each in found} == {240}
    assert static["offered_rps"] == pytest.approx(240 / 299, rel=1e-3)
    assert static["goodput_rps"] == pytest.approx(static["attainment"] * static["offered_rps"], rel=1e-3)
    # One replica all the time, an L40S at 1.861 $/h; the peak is 2 requests/s.
    assert (static["replica_seconds"], static["scale_ups"], static["scale_downs"]) == (299.0, 0, 0)
    assert static["gpu_hours"] == pytest.approx(299 / 3600, rel=1e-3)
    assert static["cost"] == pytest.approx(1.861 * 299 / 3600, rel=1e-2)
    assert peak["replica_seconds"] > 299.0
    assert peak["attainment"] > 0.98 > static["worst_minute_attainment"]
    assert ours["attainment"] > static["attainment"]
    assert peak["ttft_p50_seconds"] <= peak["ttft_p95_seconds"] <= peak["ttft_p99_seconds"] < 2.0


def test_goodput_is_asked_where_no_policy_is_named_and_the_seed_decides(trace: str) -> None:
    once = rows("--trace", trace, "--first", "60")
    assert [each["policy"] for each in once] == ["goodput"]
    assert rows("--trace", trace, "--first", "60") == once
    assert rows("--trace", trace, "--first", "60", "--seed", "7") != once  # other hardware


def test_the_table_says_what_was_simulated(trace: str) -> None:
    output = simulate("--trace", trace, "--policy", "static", "--policy", "oracle", "--startup", "30").output
    parts = [
        "m: meta-llama/Llama-3.1-8B-Instruct under SLO wanted (TTFT 2 s, TPOT 60 ms for 95% of requests)",
        "Trace: 240 requests in 299 s, 0.803 a second and 2 in the busiest minute; 4000 tokens in and 150 out",
        "Plant: l40s TP1, drawn with seed 0: memory at",
        "one replica holds the SLO up to",
        "Fleet: 2 replicas at the start, 1 to 4 allowed, 64 GPUs there; a new one takes 30 s to start",
        "POLICY  ATTAINMENT  GOOD/S  REPLICAS  GPU-H  COST",
        "static  ",
        "oracle  ",
        "Costs at 1.86 $/h for each l40s by AWS us-east-1 list of",
    ]
    assert [part for part in parts if part not in output] == []


def test_a_page_opens_offline_and_shows_what_happened(trace: str) -> None:
    """No address but that of the SVG's own names; a chart each of load, replicas, attainment and cost."""
    result = simulate("--trace", trace, "--policy", "static", "--policy", "goodput", "-o", "html")
    assert result.exit_code == 0, result.output
    page = result.stdout
    assert page.startswith("<!doctype html>")
    assert re.findall(r"(?:src|href)=|https?://|url\(|@import", page) == []
    assert re.findall(r"<figcaption>(.*?)</figcaption>", page) == [
        "Requests a second: offered (grey), and good",
        "Replicas asked for",
        "Attainment (grey: what the SLO wants)",
        "Cost so far",
    ]
    assert page.count('data-line="goodput"') == page.count('data-line="static"') == 4
    assert page.count("<svg") == page.count("</svg>") == 4
    assert "NaN" not in page


def test_a_broken_line_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "broken.csv"
    path.write_text("seconds,input_tokens,output_tokens\n0.0,100,10\n1.0,100,ten\n")
    result = simulate("--trace", str(path))
    assert result.exit_code == 1
    assert "broken.csv:3: output_tokens" in result.output


@pytest.mark.parametrize(
    "text",
    [
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,4000,150\n"
        "2023-11-16 18:15:50.9951690,4000,150\n",
        "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,4000,150\n4.8,4000,150\n",
        '{"timestamp": 0, "input_length": 4000, "output_length": 150, "hash_ids": [1, 2, 3, 4, 5, 6, 7, 8]}\n'
        '{"timestamp": 4300, "input_length": 4000, "output_length": 150, "hash_ids": [1, 2, 3, 4, 5, 6, 7, 8]}\n',
    ],
)
def test_traces_of_others_are_read(text: str, tmp_path: Path, plant: str) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    (found,) = rows("--trace", str(path), "--policy", "static", "--plant", plant)
    assert (found["requests"], found["attainment"]) == (2, 1.0)
    assert found["replica_seconds"] == 6.0


def test_a_plant_of_ones_own_is_used_and_named(trace: str, plant: str, tmp_path: Path) -> None:
    output = simulate("--trace", trace, "--policy", "static", "--plant", plant, "--first", "30").output
    assert "Plant: l40s TP1, mine.json: memory at 74% and arithmetic at 62% of the data sheet, 197,353 KV" in output
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"mbu": 2}')
    refused = simulate("--trace", trace, "--plant", str(wrong))
    assert refused.exit_code == 1
    assert "wrong.json: plant: " in refused.output
    both = simulate("--trace", trace, "--plant", plant, "--perfect")
    assert both.exit_code == 2


def test_a_perfect_plant_is_not_drawn(trace: str) -> None:
    output = simulate("--trace", trace, "--policy", "static", "--perfect", "--first", "30").output
    assert "as published points say, undrawn: memory at 80% " in output


def test_it_is_a_gate(trace: str) -> None:
    """With one replica allowed the peak is missed: exit 1 and why; before the peak it is not."""
    one = manifests(slo=SLO, gpuTypes=["l40s"], scaling={"minReplicas": 1, "maxReplicas": 1})
    missed = simulate("--trace", trace, "--require-attainment", stdin=one)
    assert missed.exit_code == 1
    assert re.search(r"Error: attainment is \d.*%, the SLO wants 95%", missed.output)
    assert simulate("--trace", trace, "--require-attainment", "--first", "100").exit_code == 0
    other = simulate("--trace", trace, "--require-attainment", "--policy", "static")
    assert other.exit_code == 2
    assert "add --policy goodput" in other.output


def test_where_no_law_can_save_much_that_is_said(tmp_path: Path) -> None:
    """A load that is always the same: static peak costs what knowing it costs."""
    path = tmp_path / "even.csv"
    path.write_text("seconds,input_tokens,output_tokens\n" + "".join(f"{at},4000,150\n" for at in range(120)))
    policies = ("--policy", "static-peak", "--policy", "oracle")
    assert "costs no more than what knowing the trace would: no law" in simulate("--trace", str(path), *policies).output


def test_the_oracle_holds_the_slo_for_less_than_a_static_peak(trace: str) -> None:
    peak, oracle = rows("--trace", trace, "--policy", "static-peak", "--policy", "oracle", "--startup", "30")
    assert peak["attainment"] >= oracle["attainment"] >= 0.95
    assert oracle["gpu_hours"] < peak["gpu_hours"]


def test_a_model_that_is_only_advised_is_simulated_as_if_it_were_left_to_scale(trace: str) -> None:
    advised = manifests(slo=SLO, gpuTypes=["l40s"], scaling={"mode": "Advise", "maxReplicas": 4})
    result = simulate("--trace", trace, stdin=advised)
    assert "The Model is paused or only advised: simulated as scaling.mode Auto." in result.output
    assert re.search(r"^goodput .* [1-9]\d* +\d+ +\d", result.output, re.MULTILINE)


@pytest.mark.parametrize(
    ("model", "spec", "shape"),
    [
        ("Qwen/Qwen3-30B-A3B", {"gpuTypes": ["h100-sxm"]}, "h100-sxm TP1"),  # experts
        ("deepseek-ai/DeepSeek-V3", {"gpuTypes": ["h200-sxm"]}, "h200-sxm TP8"),  # latent attention, fp8
        ("google/gemma-3-27b-it", {"gpuTypes": ["a100-80g-sxm"]}, "a100-80g-sxm TP"),  # windows
        (LLAMA, {"gpuTypes": ["l40s"], "parallelism": {"tensor": 2, "pipeline": 2}}, "l40s TP2 PP2"),
        (LLAMA, {"gpuTypes": ["l40s"], "speculative": {"method": "ngram"}}, "l40s TP1"),
        (LLAMA, {"gpuTypes": ["l40s"], "precision": {"weights": "fp8", "kvCache": "fp8"}}, "l40s TP1"),
    ],
)
def test_any_model_of_the_catalogue_has_a_plant(model: str, spec: dict[str, Any], shape: str, trace: str) -> None:
    result = simulate("--trace", trace, "--first", "60", stdin=manifests(model, slo=SLO, **spec))
    assert result.exit_code == 0, result.output
    assert f"Plant: {shape}" in result.output
    assert re.search(r"^goodput +\d", result.output, re.MULTILINE)


def test_compression_makes_a_load_heavier(trace: str) -> None:
    slow, fast = (rows("--trace", trace, "--policy", "static", "--compress", times)[0] for times in ("1", "2"))
    assert fast["offered_rps"] == pytest.approx(2.0 * slow["offered_rps"], rel=0.01)
    assert fast["attainment"] < slow["attainment"]


def test_without_admission_nobody_is_refused(trace: str) -> None:
    refused = simulate("--trace", trace, "--policy", "static", "--compress", "4")
    waited = simulate("--trace", trace, "--policy", "static", "--compress", "4", "--no-admission")
    assert "Answered with an error, or not at all: " in refused.output
    assert "Answered with an error" not in waited.output


def test_what_is_asked_wrongly_is_told(trace: str) -> None:
    unknown = simulate("--trace", trace, "--policy", "magic")
    assert unknown.exit_code == 2
    assert "'magic' is none of all, goodput, static" in unknown.output
    two = (
        manifests()
        + "---\n"
        + yaml.safe_dump(
            {
                "apiVersion": "goodput.dev/v1alpha1",
                "kind": "Model",
                "metadata": {"name": "other"},
                "spec": {"model": "meta-llama/Llama-3.1-8B-Instruct", "slo": "wanted"},
            }
        )
    )
    several = simulate("--trace", trace, stdin=two)
    assert several.exit_code == 1
    assert "the files hold several Models: say --model m or other" in several.output
    hopeless = simulate("--trace", trace, stdin=manifests(slo={"ttft": "10ms"}, gpuTypes=["l40s"]))
    assert hopeless.exit_code == 1
    assert "one replica of the plant holds the objective at no rate. Loosen the SLO" in hopeless.output


def test_long_runs_say_how_far_they_are(trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goodput.cli.simulate._PATIENCE_SECONDS", 0.0)
    result = simulate("--trace", trace, "--policy", "static", "--first", "180", "-o", "json")
    assert re.search(r"^static \(1 of 1\): \d+ %$", result.stderr, re.MULTILINE)
    assert "Trace: " in result.stderr
    assert json.loads(result.stdout)


def test_policies_complete_in_a_shell() -> None:
    complete = ShellComplete(main, {}, "kubectl-goodput", "_KUBECTL_GOODPUT_COMPLETE")
    found = [item.value for item in complete.get_completions(["simulate", "--policy"], "llmd")]
    assert found == ["llmd-slo", "llmd-slo-predicted", "llmd-token"]
    everything = [item.value for item in complete.get_completions(["simulate", "--policy"], "")]
    assert everything == ["all", *POLICIES]


def test_axes_are_round_and_steps_hold() -> None:
    """Up to 4.2: marks at 0 to 5; a value holds until the next one; what is missing breaks the line."""
    steps = Line(name="a&b", colour="#000", points=[(0.0, 1.0), (60.0, 4.2)], steps=True)
    broken = Line(name="c", colour="#111", points=[(0.0, 1.0), (30.0, None), (60.0, 2.0)], dashed=True)
    drawn = chart("load", [steps, broken], seconds=60.0)
    assert re.findall(r'text-anchor="end">(.*?)<', drawn) == ["0", "1", "2", "3", "4", "5"]
    paths = dict(re.findall(r'data-line="(.*?)" d="(.*?)"', drawn))
    assert paths["a&amp;b"].count("L") == 2
    assert paths["c"].count("M") == 2
    assert re.findall(r'text-anchor="(?:start|middle)">(.*?)<', drawn) == ["0 s", "10", "20", "30", "40", "50", "60"]
