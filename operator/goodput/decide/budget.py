"""How much of what the objective forgives was missed of late; older requests count less and less.

A fleet that misses next to nothing pays for replicas that nobody asked for: what a replica holds is then more than is
believed of it, or it is given too much room.
"""

from __future__ import annotations

from goodput.decide.policy import Policy
from goodput.domain.memory import LoopMemory
from goodput.domain.samples import Sample
from goodput.domain.values import Value

# Until so many requests have ended, this share of the budget is taken to be spent: neither much nor little.
_PRIOR_REQUESTS, _PRIOR_SPENT = 200.0, 0.6


class Budget(Value, frozen=True):
    """Requests that ended and that missed (at worst) up to `at`, Unix seconds; each weighs half after a half-life."""

    ended: float = 0.0
    missed: float = 0.0
    at: float = 0.0

    @classmethod
    def of(cls, memory: LoopMemory) -> Budget:
        return cls(memory.budget_ended, memory.budget_missed, memory.budget_at)

    def spent(self, attainment: float) -> float:
        """Misses over what an objective of this share forgives; above 1: the objective is missed."""
        allowed = max(1e-9, 1.0 - attainment)
        prior = _PRIOR_SPENT * _PRIOR_REQUESTS * allowed
        return (self.missed + prior) / (allowed * (self.ended + _PRIOR_REQUESTS))

    def after(self, seen: Sample | None, now: float, policy: Policy) -> Budget:
        """With what ended since the last look."""
        kept = 0.5 ** (max(0.0, now - self.at) / policy.budget_halflife_seconds) if self.at else 0.0
        ended = missed = 0.0
        if seen is not None:
            ended = seen.finished + seen.failed
            missed = max(0.0, ended - min(seen.finished, seen.good_lower))
        return Budget(round(kept * self.ended + ended, 3), round(kept * self.missed + missed, 3), now)
