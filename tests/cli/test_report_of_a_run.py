"""A simulated fleet is recorded as the operator records, and replayed: the truth is known here."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from io import StringIO

import pytest
from tests.cli.builders import manifests

from goodput.cli.documents import read_documents
from goodput.cli.offline import read_offline
from goodput.cli.recorded import days
from goodput.cli.replayed import Replay, as_it_was, asks_of_day, run_all
from goodput.cli.simulated import Question, simulate, what_if
from goodput.decide import Policy
from goodput.domain.identity import Key
from goodput.domain.ledger import decode
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import Snapshot
from goodput.domain.plan import Plan
from goodput.runtime.recorder import Recorder
from goodput.runtime.settings import Settings
from goodput.simulator import capacity
from goodput.simulator.fleet import ours
from goodput.simulator.fleet.requests import Ask
from goodput.simulator.traces.curves import POISSON, renewal, wave

MINUTES = 25


def asks(seed: int) -> list[Ask]:
    """A swell round 2 requests a second; prompts of 1,000 tokens and answers of 200, both evenly within a half."""
    draw = random.Random(seed)
    times = renewal(wave(2.0, 0.7, MINUTES * 60.0, MINUTES * 60.0), POISSON, draw)
    return [Ask(at, draw.randint(500, 1500), draw.randint(100, 300)) for at in times]


def test_a_replay_finds_the_load_the_bounds_and_about_the_cost_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    # What a replica holds is measured over short runs: how exactly is tested elsewhere.
    monkeypatch.setattr(capacity, "max_rate", partial(capacity.max_rate, seconds=100.0, tolerance=0.1))
    slo = {"ttft": "1s", "tpot": "60ms", "attainment": "95%"}
    text = manifests(slo=slo, gpuTypes=["l40s"])
    world = read_offline(read_documents([StringIO(text)]), "default", Settings(prometheus_url=""))
    ((_, intent),) = world.models
    sent = asks(7)
    found = what_if("m", intent, world.gpu_types, sent, Question(seed=3))
    lines: list[bytes] = []
    recorder, real = Recorder(lines.extend), ours.decide

    def recorded(snapshot: Snapshot, memory: Mapping[Key, LoopMemory], policy: Policy, now: float) -> Plan:
        plan = real(snapshot, memory, policy, now)
        if now >= ours.EPOCH:
            recorder.note(snapshot, plan, now)
        return plan

    with monkeypatch.context() as patch:
        patch.setattr(ours, "decide", recorded)
        (truth,) = simulate(found, ("goodput",), lambda _, over: None)
    recorder.flush()
    (day,) = days(decode(lines), 24.0).values()
    assert day.requests == pytest.approx(len(sent), rel=0.03)
    seen = day.attainment
    assert seen.lower is not None
    assert seen.upper is not None
    assert seen.lower - 0.01 <= truth.attainment <= seen.upper + 0.01
    assert day.cost == pytest.approx(found.cost(truth), rel=0.03)

    load = asks_of_day(day, 0)
    assert sum(ask.input_tokens for ask in load) == pytest.approx(sum(ask.input_tokens for ask in sent), rel=0.06)
    assert sum(ask.output_tokens for ask in load) == pytest.approx(sum(ask.output_tokens for ask in sent), rel=0.06)
    replay = as_it_was(day, load, Replay())
    assert replay.experiment.replica_rps == pytest.approx(found.experiment.replica_rps, rel=0.25)
    (again,) = run_all(replay, ("goodput",), (), lambda _, over: None)
    assert again.attainment == pytest.approx(truth.attainment, abs=0.04)
    assert replay.cost(again) == pytest.approx(found.cost(truth), rel=0.35)
