"""llm-d's token-aware guide: its published worked examples."""

import pytest
from tests.simulator.rivals.views import ready, run, starting, view

from goodput.simulator.rivals.llmd_token import LlmdToken, prefill_threshold


@pytest.mark.parametrize(
    ("velocity", "input_tokens", "ttft", "published"),
    [
        (2696.0, 8192.0, 8.0, 5.0),
        (15928.0, 8192.0, 8.0, 7.5),
        (2696.0, 2048.0, 3.0, 2.2),
        (15928.0, 2048.0, 3.0, 2.9),
    ],
)
def test_thresholds_of_the_guide(velocity, input_tokens, ttft, published):
    """TTFT objective less ISL / V_P, to the one digit that the guide prints."""
    assert round(prefill_threshold(ttft, input_tokens, velocity), 1) == published


def test_a_tail_shaves_the_threshold_and_what_cannot_be_met_keeps_the_shipped_one():
    """0.65 of 7.486; an objective under the prompt's own time, or none at all: 1.5 s."""
    assert prefill_threshold(8.0, 8192.0, 15928.0, 0.65) == pytest.approx(4.866, abs=1e-3)
    assert prefill_threshold(3.0, 8192.0, 2696.0) == 1.5
    assert prefill_threshold(None, 8192.0, 2696.0) == 1.5


@pytest.mark.parametrize(("backlog_tokens", "wanted"), [(1229.0, 1), (2458.0, 1), (4096.0, 2), (11469.0, 3)])
def test_replicas_by_prompt_backlog(backlog_tokens, wanted):
    """The guide's table at V_P = 2696 with 1.5 s: 0.46, 0.91, 1.52 and 4.25 seconds of backlog: ceil(s / 1.5)."""
    law = LlmdToken(prefill_tokens_per_second=2696.0, tolerance=0.0)

    assert law.proposal(view(*ready(1, prefill_backlog_tokens=backlog_tokens))) == wanted


def test_the_knee_of_the_guide_is_within_the_tolerance_of_an_hpa():
    """1.52 s on one replica is 1.3 % over the target: the HPA that KEDA makes holds."""
    law = LlmdToken(prefill_tokens_per_second=2696.0)

    assert law.proposal(view(*ready(1, prefill_backlog_tokens=4096.0))) == 1


def test_full_caches_win_where_prompts_are_short():
    """Four pods at 0.9 of their cache are 3.6 pods' worth: ceil(3.6 / 0.8) = 5; one more at once is the limit."""
    assert run(LlmdToken(prefill_tokens_per_second=15928.0), [view(*ready(4, kv_usage=0.9))]) == [5]


def test_the_larger_trigger_wins():
    """Backlog of 9 s over three pods asks for 6, caches for 1: one is added now, one three minutes later."""
    law = LlmdToken(prefill_tokens_per_second=1000.0)
    pods = ready(3, prefill_backlog_tokens=3000.0, kv_usage=0.1)

    assert run(law, [view(*pods), *[view(*pods, *starting(1))] * 12]) == [4] * 12 + [5]
