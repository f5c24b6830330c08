"""Objectives as words of a command line."""

from __future__ import annotations

from goodput.cli.figures import objective_text
from goodput.cli.objectives import objective_of, varied
from goodput.domain.intent import Objective

NIGHTLY = Objective(ttft_seconds=None, tpot_seconds=None, e2e_seconds=14_400.0, attainment=0.99, batch=True)


def test_a_deadline_stays_one_until_somebody_waits_for_tokens():
    """A batch replayed under another deadline is a batch; under a bound on tokens it is not."""
    shorter = varied(NIGHTLY, objective_of("e2e=1h"))
    assert (shorter.batch, shorter.e2e_seconds) == (True, 3600.0)
    assert not varied(NIGHTLY, objective_of("ttft=2s")).batch
    assert objective_text(NIGHTLY) == "deadline 4 h for 99% of requests"
