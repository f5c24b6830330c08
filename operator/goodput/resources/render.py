"""All objects of one Model, in the order in which they are to be applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from goodput.domain.identity import ROUTER_POOL, SERVE_POOL
from goodput.domain.intent import RoutingMode
from goodput.resources import names
from goodput.resources.canary import canary_objects
from goodput.resources.engine.deployment import choose_template, engine_deployment
from goodput.resources.inputs import Existing, KubeObject, ObjectKey, Rendered, RenderInput
from goodput.resources.kinds.access import (
    bound_accounts,
    engine_service_account,
    router_role,
    router_role_binding,
    router_service_account,
)
from goodput.resources.kinds.disruption import disruption_budget
from goodput.resources.kinds.monitor import pod_monitor
from goodput.resources.kinds.network import engine_network_policy, router_network_policy
from goodput.resources.kinds.service import pool_of, service
from goodput.resources.router import choose_router_template, router_deployment


def object_key(item: Mapping[str, Any]) -> ObjectKey:
    """(kind, name) of an object."""
    return item["kind"], item["metadata"]["name"]


def render_model(render: RenderInput, existing: Existing) -> Rendered:
    """Objects of `render`; pod templates that `existing` Deployments run are kept unless the user changed something.

    `existing` needs only the Deployments, the Service, the RoleBinding and the Job of a change by kind and name, as in
    ("Deployment", "<model>-serve"); others are ignored. What a pod needs comes before the Deployment that creates it.
    Engines open before the Service sends users there, and close one pass after it sends them to routers.
    """
    intent, settings = render.intent, render.settings
    model = intent.key.name
    routed = intent.routing is RoutingMode.ROUTER
    users = existing.get(("Service", names.service(model)))
    engine_choice = choose_template(existing.get(("Deployment", names.engine(model))), render)
    updates = [("engine", engine_choice.update_available)]

    objects: list[KubeObject] = [engine_service_account(intent)]
    if routed:
        routers = existing.get(("Deployment", names.router(model)))
        router_choice = choose_router_template(routers, render)
        updates.append(("router", router_choice.update_available))
        # Pods that run as rendered by an earlier operator may have another one.
        accounts = [router_choice.template["spec"].get("serviceAccountName") or names.router(model)]
        if render.terms.routers_roll or not router_choice.kept:
            # Routers that are to be replaced find engines until they are, however long it takes.
            accounts += bound_accounts(existing.get(("RoleBinding", names.router(model))), but=accounts[0])
        objects += [
            *(router_service_account(intent, account) for account in accounts),
            router_role(intent),
            router_role_binding(intent, accounts),
        ]
    objects.append(
        engine_network_policy(intent, settings.metrics_from, users_reach_engines=pool_of(users) == SERVE_POOL)
    )
    if routed:
        objects.append(router_network_policy(intent))
    objects.append(disruption_budget(intent, SERVE_POOL))
    if routed:
        objects.append(disruption_budget(intent, ROUTER_POOL))
    objects.append(service(intent, users, routers_ready=render.terms.routers_ready))
    if routed:
        objects.append(router_deployment(render, router_choice, routers))
    objects.append(engine_deployment(render, engine_choice))
    objects += canary_objects(render, existing)
    if settings.pod_monitor:
        pools = (SERVE_POOL, ROUTER_POOL) if routed else (SERVE_POOL,)
        objects += [
            pod_monitor(intent, pool, settings.scrape_seconds, dict(settings.pod_monitor_labels)) for pool in pools
        ]

    update = "; ".join(f"{pool} {text}" for pool, text in updates if text is not None)
    return Rendered(objects=tuple(objects), update_available=update or None, withheld=engine_choice.withheld)


def stale(existing: Iterable[ObjectKey], model: str, desired: Iterable[KubeObject]) -> tuple[ObjectKey, ...]:
    """Objects of ours that no longer belong: routers after `routing.mode` turned None. Sorted.

    `existing` are keys of objects that the Model owns; the memory of the loop always belongs.
    """
    wanted = {object_key(item) for item in desired} | {("ConfigMap", names.memory(model))}
    return tuple(sorted(set(existing) - wanted))
