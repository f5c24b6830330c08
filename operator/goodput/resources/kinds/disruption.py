"""PodDisruptionBudgets: a node drain takes one pod of a pool at a time."""

from __future__ import annotations

from goodput.domain.intent import ModelIntent
from goodput.resources import meta
from goodput.resources.inputs import KubeObject


def disruption_budget(intent: ModelIntent, pool: str) -> KubeObject:
    """Unhealthy pods never block a drain: they serve nobody."""
    name = f"{intent.key.name}-{pool}"
    budget = meta.new_object("policy/v1", "PodDisruptionBudget", name, intent, pool)
    budget["spec"] = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": meta.selector(intent.key.name, pool)},
    }
    return budget
