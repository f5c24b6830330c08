"""One decision for the whole fleet."""

from __future__ import annotations

from collections.abc import Mapping

from goodput.decide.policy import Policy
from goodput.domain.identity import Key
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import Snapshot
from goodput.domain.plan import Plan


def decide(snapshot: Snapshot, memory: Mapping[Key, LoopMemory], policy: Policy, now: float) -> Plan:
    """Plan of every Model of `snapshot` at `now` (Unix seconds), sorted by key.

    Pure and deterministic: equal arguments give an equal plan. Models without an entry in `memory` start from priors.
    """
    raise NotImplementedError
