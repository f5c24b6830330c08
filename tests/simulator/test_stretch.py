"""Many steps at once are the same as one after the other."""

import random

import pytest

from goodput.simulator.engine import Engine
from goodput.simulator.plant import StepTimeModel
from goodput.simulator.sequences import EngineConfig, EngineRequest, Sequence
from goodput.simulator.stretch import Stretch

TIMES = StepTimeModel(
    seconds_per_byte=1.0 / 640e9,
    seconds_per_flop=1.0 / 224e12,
    weights_bytes=16e9,
    kv_bytes_per_token=131072,
    flops_per_token=15e9,
    attention_flops_per_token_pair=524288.0,
    step_overhead_seconds=0.0012,
    per_sequence_overhead_seconds=2e-5,
)
# Half a step of 200 sequences is arithmetic until their contexts are long.
BUSY = StepTimeModel(1e-12, 1e-14, 1e9, 131072.0, 15e9, 5e5, 0.001, 1e-5)


@pytest.mark.parametrize("times", [TIMES, BUSY, StepTimeModel(1e-12, 1e-14, 1e9, 0.0, 15e9, 0.0, 0.001, 1e-5)])
@pytest.mark.parametrize(("batch", "kv_tokens"), [(1, 10), (200, 20_000), (50, 900_000)])
def test_the_time_of_a_stretch_is_the_sum_of_its_steps(times, batch, kv_tokens):
    """Whichever wall binds, and where it changes on the way."""
    stretch = Stretch(5.0, 300, batch, kv_tokens, times)
    total = 0.0
    for step in range(300):
        assert stretch.seconds(step) == pytest.approx(total)
        total += times.step_seconds(0, batch, kv_tokens + step * batch)
    assert stretch.ends_at == pytest.approx(5.0 + total)


def test_the_steps_that_have_ended_are_counted():
    stretch = Stretch(5.0, 100, 8, 4000, TIMES)
    assert stretch.ended_by(5.0) == 0
    assert stretch.ended_by(5.0 + stretch.seconds(37) + 1e-9) == 37
    assert stretch.ended_by(5.0 + stretch.seconds(38) - 1e-6) == 37
    assert stretch.ended_by(1e9) == 100


def _requests(seed: int, rate: float) -> list[tuple[float, EngineRequest, float | None]]:
    """(arrival, request, time of an abort) of a minute or so."""
    draw, now, found = random.Random(seed), 0.0, []
    for number in range(120):
        now += draw.expovariate(rate)
        request = EngineRequest(str(number), draw.randrange(1, 3000), draw.randrange(1, 400))
        found.append((now, request, now + draw.uniform(0.1, 5.0) if draw.random() < 0.1 else None))
    return found


def _serve(config: EngineConfig, requests: list[tuple[float, EngineRequest, float | None]], *, stretches: bool):
    """Times of all requests and the number of calls of the engine."""
    engine, sequences, calls = Engine(config, TIMES, 0.015), [], 0
    acts = sorted(
        [(at, 0, request) for at, request, _ in requests]
        + [(gone, 1, request) for _, request, gone in requests if gone is not None],
        key=lambda act: act[:2],
    )
    clock = 0.0
    for at, kind, request in [*acts, (1e6, 2, None)]:
        while (begins := engine.next_start(clock)) is not None and begins <= at:
            calls += 1
            stretch = engine.plan_decode(begins) if stretches else None
            ended = 0 if stretch is None else stretch.ended_by(at)
            if stretch is not None and ended:
                engine.decode(stretch, ended)
                clock = begins + stretch.seconds(ended)
            else:
                step = engine.step(begins)
                assert step is not None
                clock = step.ends_at
        if kind == 0:
            sequences.append(engine.submit(request, at))
        elif kind == 1:
            engine.abort(request.request_id)
    assert engine.unfinished == 0
    return sequences, calls, engine


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "config",
    [
        EngineConfig(kv_blocks=12_000),
        EngineConfig(kv_blocks=900, max_model_len=4096),  # preempts
        EngineConfig(kv_blocks=12_000, max_num_seqs=4),  # waits for a slot
        EngineConfig(kv_blocks=2_000, max_model_len=4096, max_num_batched_tokens=256),
    ],
    ids=["roomy", "tight", "few", "small chunks"],
)
def test_an_engine_that_skips_serves_as_one_that_does_not(config, seed):
    """Arrivals and aborts between the steps: every token time is the same, with a fraction of the calls."""
    requests = _requests(seed, 2.0)
    plain, steps, one = _serve(config, requests, stretches=False)
    quick, calls, other = _serve(config, requests, stretches=True)

    def facts(sequences: list[Sequence]) -> list[tuple[object, ...]]:
        return [(each.request.request_id, each.generated, each.preemptions, each.finished) for each in sequences]

    assert facts(quick) == facts(plain)
    for have, want in zip(quick, plain, strict=True):
        assert have.first_token_at == (want.first_token_at and pytest.approx(want.first_token_at, abs=1e-9))
        assert have.last_token_at == (want.last_token_at and pytest.approx(want.last_token_at, abs=1e-9))
    assert (other.preemptions, other.prefix_hits_tokens) == (one.preemptions, one.prefix_hits_tokens)
    assert other.pool.free_blocks == one.pool.free_blocks
    assert calls < 0.6 * steps


def test_an_engine_that_speculates_does_not_skip():
    config = EngineConfig(kv_blocks=12_000, speculative_tokens=3, draft_acceptance=0.7)
    engine = Engine(config, TIMES)
    engine.submit(EngineRequest("a", 100, 50), 0.0)
    step = engine.step(0.0)
    assert step is not None
    assert engine.plan_decode(step.ends_at) is None


def test_a_request_that_found_the_step_full_is_in_the_next_one():
    """Two prompts of 1,024 tokens fill a step of 2,048: the third does not wait until one of them ends."""
    engine = Engine(EngineConfig(kv_blocks=20_000, max_num_batched_tokens=2048), TIMES)
    for number in range(3):
        engine.submit(EngineRequest(str(number), 1024, 300), 0.0)
    first = engine.step(0.0)
    assert first is not None
    assert (first.prefill_tokens, engine.waiting) == (2048, 1)
    assert engine.plan_decode(first.ends_at) is None
    second = engine.step(first.ends_at)
    assert second is not None
    assert len(second.first_tokens) == 1
