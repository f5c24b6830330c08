"""How pods of one pool spread over nodes and zones."""

from __future__ import annotations

from collections.abc import Mapping

from goodput.resources.inputs import KubeObject


def spread_constraints(selector: Mapping[str, str]) -> list[KubeObject]:
    """Spread where possible: a full node must never keep a replica Pending that fits elsewhere.

    Counted per revision, so that the old pods of a roll-out do not push all new ones onto one node.
    """
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": dict(selector)},
            "matchLabelKeys": ["pod-template-hash"],
        }
        for key in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
    ]
