"""One decision for the whole fleet."""

from __future__ import annotations

from collections.abc import Mapping

from goodput.decide.bounds import Shared
from goodput.decide.model import decide_model
from goodput.decide.policy import Policy
from goodput.decide.work import Fleet
from goodput.domain.identity import Key
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import Snapshot
from goodput.domain.plan import Plan


def decide(snapshot: Snapshot, memory: Mapping[Key, LoopMemory], policy: Policy, now: float) -> Plan:
    """Plan of every Model of `snapshot` at `now` (Unix seconds), sorted by key.

    Pure and deterministic: equal arguments give an equal plan. Models without an entry in `memory` start from priors.
    Models share free GPUs and what a namespace may spend in the order of their keys.
    """
    gpus = {gpu.name: gpu for gpu in snapshot.gpu_types}
    supply = {there.type: there for there in snapshot.supply}
    models = sorted(snapshot.models, key=lambda view: view.intent.key)
    fleet = Fleet(
        gpus=gpus,
        supply=supply,
        shared=Shared.of(models, gpus, supply),
        policy=policy,
        now=now,
        telemetry_error=snapshot.telemetry_error,
    )
    return Plan(models=tuple(decide_model(view, memory.get(view.intent.key), fleet) for view in models))
