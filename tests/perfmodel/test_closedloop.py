"""A replica with a fixed number of requests in flight."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput.perfmodel import architecture, built_in_gpu_types
from goodput.perfmodel.closedloop import closed_loop
from goodput.perfmodel.roofline import step_times

H100 = next(gpu for gpu in built_in_gpu_types() if gpu.name == "h100-sxm")
TIMES = step_times(architecture("Qwen/Qwen3-32B"), H100, 2)


@given(st.integers(1, 512), st.integers(1, 16_000), st.integers(2, 8_000))
def test_a_round_is_a_prompt_and_its_tokens(concurrency: int, inputs: int, outputs: int) -> None:
    """Little's law: what runs is the rate times the time that a request runs, here its prompt and its gaps."""
    loop = closed_loop(TIMES, concurrency, inputs, outputs, 8192)
    decoding = loop.requests_per_second * (outputs - 1) * loop.tpot_seconds
    assert decoding <= loop.running * (1 + 1e-9)
    assert loop.tpot_seconds >= loop.step_seconds * (1 - 1e-9)
    assert loop.ttft_seconds > 0.0
    assert loop.burst_seconds >= 0.0


@given(st.integers(2, 300), st.integers(100, 10_000), st.integers(50, 4_000))
def test_one_request_more_slows_the_others(concurrency: int, inputs: int, outputs: int) -> None:
    few, more = (closed_loop(TIMES, number, inputs, outputs, 8192) for number in (concurrency, concurrency + 8))
    assert few.tpot_seconds <= more.tpot_seconds * 1.001
    assert few.burst_seconds <= more.burst_seconds * 1.001


@given(st.integers(1, 512), st.integers(1, 16_000), st.integers(2, 8_000))
def test_all_are_somewhere(concurrency: int, inputs: int, outputs: int) -> None:
    """Little's law for whole requests: each is on its way, waiting, in its prompt or between tokens."""
    loop = closed_loop(TIMES, concurrency, inputs, outputs, 8192)
    spent = loop.ttft_seconds + (outputs - 1) * loop.tpot_seconds
    assert loop.requests_per_second * spent == pytest.approx(concurrency, rel=0.02)


def test_alone_a_request_pays_a_step_a_token_and_no_burst() -> None:
    loop = closed_loop(TIMES, 1, 1000, 1000, 8192)
    assert loop.tpot_seconds == pytest.approx(loop.step_seconds)
    assert loop.burst_seconds == 0.0


def test_prompts_of_others_show_in_tpot_the_more_the_shorter_the_answers() -> None:
    short, long = (closed_loop(TIMES, 64, 1000, outputs, 8192) for outputs in (128, 4000))
    assert short.tpot_seconds > 1.5 * short.step_seconds
    assert long.tpot_seconds < 1.2 * long.step_seconds


def test_what_the_kv_cache_does_not_hold_waits_for_a_round() -> None:
    free, full = (closed_loop(TIMES, 128, 4000, 1000, 8192, most_running=limit) for limit in (1e9, 64.0))
    assert full.running == 64.0
    assert full.tpot_seconds < free.tpot_seconds
    assert full.ttft_seconds > 1000 * full.tpot_seconds


def test_the_burst_is_a_share_of_what_all_prompts_take() -> None:
    """Ten rounds: the first tenth of the requests waits for half of the others' prompts on average."""
    loop = closed_loop(TIMES, 65, 4096, 1000, 8192, waves=10)
    whole = 32 * TIMES.mixed(0.0, 0.0, 8192.0, 2.0 * TIMES.prompt_attention(4096.0))
    assert loop.burst_seconds == pytest.approx(whole / 2.0 / 10.0)
