"""The rate that one replica holds."""

import csv
import json
from pathlib import Path

import pytest

from goodput.simulator.capacity import Objective, engine_config, main, max_rate, read_lengths, trial
from goodput.simulator.plant import Plant
from goodput.simulator.sequences import EngineRequest, Sequence

WORLD = Path(__file__).parents[2] / "e2e/goodput_world"
PLANT_FILE = WORLD / "plants/llama-8b-l40s.json"
PLANT = Plant.from_mapping(json.loads(PLANT_FILE.read_text(encoding="utf-8")))
CONFIG = engine_config(PLANT)
LENGTHS = read_lengths(WORLD / "data/azure2023_conversation.csv.gz")
CHAT = Objective(ttft_seconds=0.5, tpot_seconds=0.05, attainment=0.95)


def finished(ttft, tpot, tokens):
    """A request that ended with these times."""
    sequence = Sequence(EngineRequest("a", 10, tokens), tokens, 0.0, 0.0)
    sequence.generated = tokens
    sequence.first_token_at = ttft
    sequence.last_token_at = ttft + tpot * (tokens - 1)
    return sequence


@pytest.mark.parametrize(
    ("objective", "ttft", "tpot", "tokens", "met"),
    [
        (CHAT, 0.4, 0.04, 11, True),
        (CHAT, 0.6, 0.04, 11, False),
        (CHAT, 0.4, 0.06, 11, False),
        (CHAT, 0.4, 9.0, 1, True),
        (Objective(tpot_seconds=0.05), 60.0, 0.04, 11, True),
        (Objective(e2e_seconds=1.0), 0.5, 0.04, 11, True),
        (Objective(e2e_seconds=1.0), 0.5, 0.06, 11, False),
    ],
)
def test_a_request_is_good_when_it_meets_every_limit(objective, ttft, tpot, tokens, met):
    """TTFT, mean time per token after the first, and the whole time; a limit that is not set says nothing."""
    assert objective.met_by(finished(ttft, tpot, tokens)) is met


@pytest.mark.parametrize(
    "wrong", [{}, {"ttft_seconds": 0.0}, {"ttft_seconds": 1.0, "attainment": 0.0}, {"tpot_seconds": 1, "attainment": 2}]
)
def test_an_objective_that_says_nothing_is_refused(wrong):
    """At least one limit above 0, and a share."""
    with pytest.raises(ValueError, match="objective"):
        Objective(**wrong)


def test_goodput_falls_over_a_cliff_beyond_capacity():
    """Well below nearly all requests are good, well above hardly any: and goodput falls with them."""
    below, above = (
        trial(PLANT, CONFIG, LENGTHS, CHAT, rate_per_second=rate, seed=1, seconds=300) for rate in (1.5, 6.0)
    )

    assert below.attainment > 0.97, below
    assert above.attainment < 0.5
    assert below.goodput_per_second == pytest.approx(below.attainment * below.requests / 270)


def test_the_demo_plant_holds_about_three_requests_a_second():
    """What the plant's comment says, on the lengths of the Azure 2023 conversation trace."""
    assert 2.5 <= max_rate(PLANT, CONFIG, LENGTHS, CHAT, seed=1, seconds=200, tolerance=0.1) <= 3.6


def test_an_objective_below_the_bare_step_time_cannot_be_held():
    """No rate gives 5 ms a token on an L40S."""
    assert max_rate(PLANT, CONFIG, LENGTHS, Objective(tpot_seconds=0.005), seconds=30) == 0.0


def test_lengths_come_from_the_columns_of_a_trace(tmp_path):
    """Whatever else the file holds."""
    path = tmp_path / "trace.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["TIMESTAMP", "ContextTokens", "GeneratedTokens"], ["t", 374, 44], ["t", 396, 109]])

    assert read_lengths(path) == [(374, 44), (396, 109)]


def test_a_table_without_lengths_is_refused(tmp_path):
    """The columns wanted are named."""
    path = tmp_path / "trace.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8")

    with pytest.raises(ValueError, match="ContextTokens and GeneratedTokens"):
        read_lengths(path)


def test_the_command_prints_the_rate_and_runs_around_it(capsys):
    """As JSON."""
    arguments = ["--plant", str(PLANT_FILE), "--input", "4000", "--output", "20", "--ttft", "1.0", "--seconds", "60"]

    assert main(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["max_rate_per_second"] > 0.3
    assert [run["rate_per_second"] for run in report["runs"]] == pytest.approx(
        [report["max_rate_per_second"] * factor for factor in (0.8, 1.0, 1.1)], rel=0.01
    )
