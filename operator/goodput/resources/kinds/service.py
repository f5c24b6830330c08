"""The Service that users call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goodput.domain.identity import LABEL_POOL, ROUTER_POOL, SERVE_POOL
from goodput.domain.intent import ModelIntent, RoutingMode
from goodput.resources import meta, names
from goodput.resources.inputs import KubeObject


def pool_of(existing: Mapping[str, Any] | None) -> str | None:
    """The pool that a Service sends to, None where it does not exist or sends nowhere."""
    pool = ((existing or {}).get("spec", {}).get("selector") or {}).get(LABEL_POOL)
    return None if pool is None else str(pool)


def service(intent: ModelIntent, existing: Mapping[str, Any] | None, *, routers_ready: bool) -> KubeObject:
    """Port 80 of the routers, or of the engine pods where `routing.mode` is None.

    Where it turned to Router, users go to engines until a router is ready. There is no way back: a Service that sends
    to routers goes on so when these are unready for a while.
    """
    waits = not routers_ready and pool_of(existing) == SERVE_POOL
    pool = SERVE_POOL if waits or intent.routing is RoutingMode.NONE else ROUTER_POOL
    result = meta.new_object("v1", "Service", names.service(intent.key.name), intent)
    result["spec"] = {
        "type": "ClusterIP",
        "selector": meta.selector(intent.key.name, pool),
        "ports": [{"name": names.HTTP, "port": names.SERVICE_PORT, "targetPort": names.HTTP, "protocol": "TCP"}],
    }
    return result
