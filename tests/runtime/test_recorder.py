"""What the recorder makes of passes: a line a minute, from which load, cost and decisions can be read again."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.decide.builders import CHAT, GPUS, KEY, START, intent

from goodput.domain.conditions import Condition
from goodput.domain.decision import Action, Decision, Rule
from goodput.domain.identity import Key
from goodput.domain.ledger import LEDGER_VERSION, Asked, Looked, Read, decode, encode
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import ModelView, PoolView, Snapshot
from goodput.domain.plan import Figures, ModelPlan, Placement, Plan, PoolPlan
from goodput.domain.samples import Sample, Samples
from goodput.runtime.recorder import Recorder

PLACEMENT = Placement(
    gpu_type="l40s",
    resource_name="nvidia.com/gpu",
    node_selector=(),
    max_num_seqs=64,
    max_num_batched_tokens=2048,
    max_model_len=8192,
    max_num_queued_requests=None,
    max_num_queued_tokens=None,
    capacity_rps=3.6,
    price_per_hour=2.0,
)
CONDITIONS: tuple[Condition, ...] = ()


class Written:
    """Takes lines as a disk would."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []

    def __call__(self, lines: Sequence[bytes]) -> None:
        self.texts += lines

    @property
    def read(self) -> Read:
        return decode(self.texts)

    @property
    def looks(self) -> list[Looked]:
        return [line for line in self.read.lines if isinstance(line, Looked)]

    @property
    def asked(self) -> list[Asked]:
        return [line for line in self.read.lines if isinstance(line, Asked)]


def plan(now: float, samples: Samples, replicas: int = 2, action: Action = Action.HOLD, **figures: float) -> Plan:
    decision = Decision(
        model=KEY,
        pool="serve",
        at=now,
        action=action,
        rule=Rule.DEMAND,
        from_replicas=1,
        to_replicas=replicas,
        wanted_replicas=replicas,
    )
    shown = Figures(replicas_desired=replicas, replicas_ready=1, cost_per_hour=3.6, **figures)  # type: ignore[arg-type]
    model = ModelPlan(
        key=KEY,
        pool=PoolPlan(name="serve", replicas=replicas, placement=PLACEMENT),
        decision=decision,
        conditions=CONDITIONS,
        figures=shown,
        memory=LoopMemory(samples=samples),
    )
    return Plan(models=(model,))


def snapshot(**changed: object) -> Snapshot:
    view = ModelView(
        intent=replace(intent(), **changed),
        pool=PoolView(name="serve", exists=True),
        router=PoolView(name="router", exists=True),
        telemetry=None,
    )
    return Snapshot(models=(view,), gpu_types=GPUS, supply=())


def watched(passes: int, *, every: float = 10.0, offered: float = 30.0) -> tuple[Written, Recorder]:
    """So many passes, with a sample at each second one."""
    written = Written()
    recorder = Recorder(written)
    samples = Samples.of([])
    for number in range(passes):
        now = START + number * every
        if number % 2:
            samples = samples.with_new(Sample(now - 3.0, 2 * every, offered), now - 600.0)
        recorder.note(snapshot(), plan(now, samples, demand_rps=1.5), now)
    return written, recorder


def test_every_sample_is_in_one_line_and_time_adds_up() -> None:
    written, recorder = watched(61)
    recorder.flush()
    samples = [each for look in written.looks for each in look.samples]
    assert len(samples) == 30
    assert len({each.at for each in samples}) == 30
    assert sum(look.seconds for look in written.looks) == pytest.approx(600.0)
    assert sum(look.cost or 0.0 for look in written.looks) == pytest.approx(3.6 * 600.0 / 3600.0)
    assert all(look.desired == 2.0 and look.ready == 1.0 and look.demand_rps == 1.5 for look in written.looks)
    assert 9 <= len(written.looks) <= 10


def test_lines_say_what_is_asked_once_an_hour_and_when_it_changes() -> None:
    written, recorder = watched(6 * 60 + 7)
    assert len(written.asked) == 2
    first = written.asked[0]
    assert first.intent == intent()
    assert (first.gpu.name, first.gpus) == ("l40s", 1)
    assert first.intent.objective == CHAT
    now = START + 6 * 60 * 10.0 + 120.0
    for number in range(8):
        recorder.note(snapshot(min_replicas=2), plan(now + 10.0 * number, Samples.of([])), now + 10.0 * number)
    assert len(written.asked) == 3
    assert written.asked[-1].intent.min_replicas == 2


def test_decisions_that_change_something_are_kept_whole() -> None:
    written = Written()
    recorder = Recorder(written)
    for number, action in enumerate([Action.HOLD, Action.SCALE_UP, Action.HOLD, *[Action.ADVISE_UP] * 4, Action.HOLD]):
        now = START + 10.0 * number
        recorder.note(snapshot(), plan(now, Samples.of([]), action=action), now)
    recorder.flush()
    kept = [each for look in written.looks for each in look.decisions]
    assert [each.action for each in kept] == [Action.SCALE_UP, Action.ADVISE_UP]
    assert kept[0].message == plan(START + 10.0, Samples.of([]), action=Action.SCALE_UP).models[0].decision.message


def test_time_in_which_nobody_watched_costs_nothing() -> None:
    written = Written()
    recorder = Recorder(written)
    for now in (0.0, 10.0, 5_000.0, 5_010.0, 4_000.0, 4_010.0):
        recorder.note(snapshot(), plan(START + now, Samples.of([])), START + now)
    recorder.flush()
    assert [look.seconds for look in written.looks] == [10.0, 10.0, 10.0]


def test_a_model_that_goes_is_forgotten() -> None:
    written, recorder = watched(10)
    now = START + 100.0
    for number in range(20):
        recorder.note(Snapshot(models=(), gpu_types=(), supply=()), Plan(models=()), now + 10.0 * number)
    assert not recorder._open
    assert sum(look.seconds for look in written.looks) == pytest.approx(90.0)


def test_what_goes_wrong_is_said_once_and_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(lines: Sequence[bytes]) -> None:
        raise RuntimeError("boom")

    recorder = Recorder(broken)
    with caplog.at_level(logging.ERROR):
        for number in range(40):
            recorder.note(snapshot(), plan(START + 10.0 * number, Samples.of([])), START + 10.0 * number)
    assert len(caplog.records) == 1


NUMBERS = st.floats(0.0, 1e9)


@given(
    st.lists(st.lists(NUMBERS, min_size=len(Sample._fields), max_size=len(Sample._fields)), max_size=4),
    st.none() | NUMBERS,
    st.text(alphabet="abc-9", min_size=1, max_size=9),
)
def test_lines_are_read_as_they_were_written(rows: list[list[float]], figure: float | None, name: str) -> None:
    look = Looked(
        at=START,
        seconds=60.0,
        key=Key("ns", name),
        samples=tuple(Sample(*row) for row in rows),
        desired=1.5,
        ready=1.0,
        cost=figure,
        forecast_rps=figure,
    )
    asked = Asked(at=START, intent=intent(), gpu=GPUS[0], tensor_parallel=2, pipeline_parallel=1)
    assert decode([encode(look), encode(asked)]) == Read((look, asked))


def test_lines_of_other_versions_and_broken_ones_are_counted() -> None:
    look = encode(Looked(at=START, seconds=60.0, key=KEY, desired=1.0, ready=1.0))
    foreign = msgspec.json.encode({**msgspec.json.decode(look), "version": LEDGER_VERSION + 1, "new": [1]})
    read = decode([look, foreign, look[:-20], b"", b"[]", b"\xff\xfe", b"[" * 100_000])
    assert (len(read.lines), read.foreign, read.damaged) == (1, 1, 4)


def test_a_line_of_before_a_column_was_added_is_read() -> None:
    look = Looked(at=START, seconds=60.0, key=KEY, samples=(Sample(START, 15.0, 4.0),), desired=1.0, ready=1.0)
    older = msgspec.json.decode(encode(look))
    older["samples"] = [row[:-1] for row in older["samples"]]
    assert decode([msgspec.json.encode(older)]).lines == (look,)
