"""NetworkPolicies: who reaches our pods. What pods connect to is not limited: weights come from anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from goodput.domain.identity import ROUTER_POOL, SERVE_POOL
from goodput.domain.intent import ModelIntent, RoutingMode
from goodput.resources import meta, names
from goodput.resources.inputs import KubeObject


def _port(number: int) -> KubeObject:
    return {"port": number, "protocol": "TCP"}


def _policy(intent: ModelIntent, pool: str, ingress: list[KubeObject]) -> KubeObject:
    name = f"{intent.key.name}-{pool}"
    policy = meta.new_object("networking.k8s.io/v1", "NetworkPolicy", name, intent, pool)
    policy["spec"] = {
        "podSelector": {"matchLabels": meta.selector(intent.key.name, pool)},
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    }
    return policy


def engine_network_policy(
    intent: ModelIntent, metrics_from: Sequence[Mapping[str, Any]], *, users_reach_engines: bool = False
) -> KubeObject:
    """Port 8000 alone, for this Model's routers and for scrapers; the ports between vLLM's processes stay closed.

    vLLM serves completions and metrics on one port, which a policy cannot tell apart. With `metrics_from` empty, any
    pod of the cluster may connect (nothing from outside it); named scrapers close the way round the router. Without
    routers, the engine port is what users call: open to all. So it is as long as the Service still sends them there.
    """
    if users_reach_engines or intent.routing is RoutingMode.NONE:
        return _policy(intent, SERVE_POOL, [{"ports": [_port(names.ENGINE_PORT)]}])
    routers = {"podSelector": {"matchLabels": meta.selector(intent.key.name, ROUTER_POOL)}}
    scrapers = [dict(peer) for peer in metrics_from] or [{"namespaceSelector": {}}]
    return _policy(intent, SERVE_POOL, [{"from": [routers, *scrapers], "ports": [_port(names.ENGINE_PORT)]}])


def router_network_policy(intent: ModelIntent) -> KubeObject:
    """Users and scrapers may come from anywhere."""
    ports = [_port(names.ROUTER_PORT), _port(names.ROUTER_METRICS_PORT)]
    return _policy(intent, ROUTER_POOL, [{"ports": ports}])
