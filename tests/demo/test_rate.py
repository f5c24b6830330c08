"""The fixed fleet that the demo is held against."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from goodput.simulator.derive import L40S, LLAMA_3_1_8B, derive
from goodput_world.demo import rate
from goodput_world.demo.objects import DemoObjects, read_objects
from goodput_world.demo.rate import static_peak
from goodput_world.demo.settings import EXAMPLES
from goodput_world.replay import Request


@pytest.fixture(autouse=True)
def _short_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate, "_TRIAL_SECONDS", 150.0)


@pytest.fixture(scope="module")
def objects() -> DemoObjects:
    return read_objects(EXAMPLES, "default")


def _requests(rps: int, input_tokens: int) -> list[Request]:
    return [Request(index / rps, input_tokens, 20, f"{index}") for index in range(60 * rps)]


def test_a_replica_is_measured_with_the_runs_own_lengths(tmp_path: Path, objects: DemoObjects) -> None:
    """Twice as long prompts more than halve what one replica holds (queues form sooner), and the fixed fleet grows."""
    plant = tmp_path / "plant.json"
    plant.write_text(json.dumps(asdict(derive(LLAMA_3_1_8B, L40S))))

    short, long = (static_peak(plant, _requests(20, tokens), objects) for tokens in (1500, 3000))

    assert short.busiest_minute_rps == long.busiest_minute_rps == 20.0
    assert 0.1 < long.replica_rps / short.replica_rps < 0.5
    assert long.replicas > short.replicas >= 2


def test_a_replica_that_can_never_hold_the_slo_is_an_error(tmp_path: Path, objects: DemoObjects) -> None:
    """A prompt whose prefill alone outlasts the TTFT objective: no number of replicas helps, and the demo says so."""
    plant = tmp_path / "plant.json"
    plant.write_text(json.dumps(asdict(derive(LLAMA_3_1_8B, L40S))))

    with pytest.raises(ValueError, match=r"plant.json: one replica .* cannot hold the SLO"):
        static_peak(plant, _requests(1, 20_000), objects)
