"""Dynamo's throughput-based planner by hand, on an engine of round numbers."""

import pytest
from tests.simulator.rivals.views import ready, run, starting, view

from goodput.simulator.rivals.dynamo import Dynamo


def step_seconds(prefill_tokens, decode_seqs, kv_tokens):
    """10 ms, 10 us a prompt token, 10 ns a token of context."""
    return 0.010 + 1e-5 * prefill_tokens + 1e-8 * kv_tokens


LAW = Dynamo(step_seconds=step_seconds, ttft_seconds=0.5, tpot_seconds=0.05)
# Context 1,000 + 100 / 2 = 1,050; 52,500 tokens of cache hold 50 of them.
FLEET = {
    "window_seconds": 180.0,
    "mean_input_tokens": 1000.0,
    "mean_output_tokens": 100.0,
    "kv_pool_tokens": 52_500,
    "max_num_batched_tokens": 4096,
    "max_num_seqs": 256,
}


def test_an_operation_by_hand():
    """B = 50: 500 prompt tokens a pass. ITL = 10 + 5 + 0.525 = 15.525 ms; rate 50 / (100 x 15.525 ms) = 32.2/s.
    TTFT: 1,500 tokens fit one pass of 4,046: 10 + 15 + 0.525 = 25.525 ms."""
    got = LAW.best_operation(view(*ready(1), **FLEET), 1000.0, 100.0)

    assert got is not None
    assert got.batch == 50
    assert got.itl_seconds == pytest.approx(0.015525)
    assert got.ttft_seconds == pytest.approx(0.025525)
    assert got.rps == pytest.approx(50 / (100 * 0.015525))


def test_prompts_are_taken_in_by_chunks():
    """A budget of 600 leaves 550 beside 50 decodes: 1,500 tokens are 2 passes of 550 and one of 400: 3 x 10.525 ms +
    1,500 x 10 us."""
    got = LAW.best_operation(view(*ready(1), **{**FLEET, "max_num_batched_tokens": 600}), 1000.0, 100.0)

    assert got is not None
    assert got.ttft_seconds == pytest.approx(3 * 0.010525 + 0.015)


def test_the_sla_limits_the_batch():
    """An ITL of 12 ms allows 10 + 0.1 B + 0.0105 B <= 12: B = 18."""
    law = Dynamo(step_seconds=step_seconds, ttft_seconds=0.5, tpot_seconds=0.012)
    got = law.best_operation(view(*ready(1), **FLEET), 1000.0, 100.0)

    assert got is not None
    assert got.batch == 18


def test_what_cannot_be_met_takes_the_fastest_all_the_same():
    """An ITL of 1 ms is below a bare pass: sized as if there were no SLA."""
    law = Dynamo(step_seconds=step_seconds, ttft_seconds=0.5, tpot_seconds=0.001)
    got = law.best_operation(view(*ready(1), **FLEET), 1000.0, 100.0)

    assert got is not None
    assert got.batch == 50


def test_a_prefix_cache_shortens_the_prompt():
    """A hit rate of 0.5: 500 tokens, context 550: 95 fit, 475 prompt tokens a pass. At most 0.95 is believed."""
    got = LAW.best_operation(view(*ready(1), **FLEET, prefix_hit_rate=0.5), 1000.0, 100.0)
    most = LAW.best_operation(view(*ready(1), **FLEET, prefix_hit_rate=1.0), 1000.0, 100.0)

    assert got is not None
    assert most is not None
    assert (got.batch, got.ttft_seconds) == (95, pytest.approx(0.010 + 0.00975 + 1e-8 * 95 * 550))
    # 50 tokens, context 100: 256 by max-num-seqs, the last of 128 candidates.
    assert most.batch == 256


def test_replicas_are_the_mean_demand_over_the_rate_of_one():
    """18,000 requests in 180 s are 100/s over 32.2/s: 4, however late their tokens are."""
    assert run(LAW, [view(*ready(2), **FLEET, arrivals=18_000)]) == [4]


def test_a_step_is_at_most_eight():
    """1,000/s would be 32."""
    assert run(LAW, [view(*ready(2), **FLEET, arrivals=180_000)]) == [10]


def test_it_holds_before_the_first_request_and_while_nothing_is_ready():
    """Leading zeros are no observations; a model that is not ready holds."""
    assert run(LAW, [view(*ready(3), **{**FLEET, "mean_input_tokens": None, "mean_output_tokens": None})] * 2) == [3, 3]
    assert run(LAW, [view(*starting(3), **FLEET, arrivals=18_000)]) == [3]


def test_an_idle_interval_carries_lengths_on_and_shrinks():
    """No request and no lengths after a busy interval: the minimum."""
    idle = view(*ready(4), **{**FLEET, "mean_input_tokens": None, "mean_output_tokens": None})

    assert run(LAW, [view(*ready(2), **FLEET, arrivals=18_000), idle]) == [4, 1]


def test_a_request_that_no_engine_holds_is_no_reason_to_act():
    """A context beyond the cache: no operation at all."""
    assert run(LAW, [view(*ready(3), **{**FLEET, "kv_pool_tokens": 500}, arrivals=18_000)]) == [3]
