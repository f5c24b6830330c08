"""One decision for the whole fleet."""

from __future__ import annotations

from collections.abc import Mapping

from goodput.decide.bounds import Shared
from goodput.decide.model import decide_model, look_at, recalled, sum_up
from goodput.decide.podcounts import count_pods
from goodput.decide.policy import Policy
from goodput.decide.priority import order
from goodput.decide.telemetry import look
from goodput.decide.work import Fleet
from goodput.domain.identity import Key
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import Snapshot
from goodput.domain.plan import Plan


def decide(snapshot: Snapshot, memory: Mapping[Key, LoopMemory], policy: Policy, now: float) -> Plan:
    """Plan of every Model of `snapshot` at `now` (Unix seconds), sorted by key.

    Pure and deterministic: equal arguments give an equal plan. Models without an entry in `memory` start from priors.
    Models share free GPUs and what a namespace may spend by priority, then in the order of their keys.
    """
    gpus = {gpu.name: gpu for gpu in snapshot.gpu_types}
    models = sorted(snapshot.models, key=lambda view: order(view.intent))
    fleet = Fleet(
        gpus=gpus,
        shared=Shared.of(snapshot),
        policy=policy,
        now=now,
        telemetry_error=snapshot.telemetry_error,
        strangers=snapshot.strangers,
    )
    memories = [recalled(view, memory.get(view.intent.key), fleet) for view in models]
    looks = [look(view, known, policy, fleet.telemetry_error) for view, known in zip(models, memories, strict=True)]
    counted = iter(count_pods([each for each in looks if each is not None], policy))
    looked = [
        look_at(view, known, next(counted) if each is not None else None, fleet)
        for view, known, each in zip(models, memories, looks, strict=True)
    ]
    # One after the other: they share what is free.
    plans = [decide_model(each, seen, fleet) for each, seen in zip(looked, sum_up(looked, fleet), strict=True)]
    return Plan(models=tuple(sorted(plans, key=lambda plan: plan.key)))
