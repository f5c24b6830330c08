"""The Service that users call."""

from __future__ import annotations

from goodput.domain.identity import ROUTER_POOL, SERVE_POOL
from goodput.domain.intent import ModelIntent, RoutingMode
from goodput.resources import meta, names
from goodput.resources.inputs import KubeObject


def service(intent: ModelIntent) -> KubeObject:
    """Port 80 of the routers, or of the engine pods where `routing.mode` is None."""
    pool = ROUTER_POOL if intent.routing is RoutingMode.ROUTER else SERVE_POOL
    result = meta.new_object("v1", "Service", names.service(intent.key.name), intent)
    result["spec"] = {
        "type": "ClusterIP",
        "selector": meta.selector(intent.key.name, pool),
        "ports": [{"name": names.HTTP, "port": names.SERVICE_PORT, "targetPort": names.HTTP, "protocol": "TCP"}],
    }
    return result
