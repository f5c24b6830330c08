"""ServiceAccounts, and the one right that a router needs: to see the pods of its namespace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from goodput.domain.identity import ROUTER_POOL, SERVE_POOL
from goodput.domain.intent import ModelIntent
from goodput.resources import meta, names
from goodput.resources.inputs import KubeObject

RBAC_API_GROUP = "rbac.authorization.k8s.io"


def engine_service_account(intent: ModelIntent) -> KubeObject:
    """Engines never talk to the API server."""
    account = meta.new_object("v1", "ServiceAccount", names.engine(intent.key.name), intent, SERVE_POOL)
    account["automountServiceAccountToken"] = False
    return account


def router_service_account(intent: ModelIntent, account: str) -> KubeObject:
    """Under the name that the pods ask for."""
    return meta.new_object("v1", "ServiceAccount", account, intent, ROUTER_POOL)


def router_role(intent: ModelIntent) -> KubeObject:
    """The operator holds the same rights, without which it could not grant them."""
    role = meta.new_object(f"{RBAC_API_GROUP}/v1", "Role", names.router(intent.key.name), intent, ROUTER_POOL)
    role["rules"] = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    return role


def bound_accounts(binding: Mapping[str, Any] | None, *, but: str) -> list[str]:
    """Accounts that a RoleBinding of routers names, without the one that is wanted anyway."""
    subjects = (binding or {}).get("subjects") or ()
    return [name for subject in subjects if (name := str(subject.get("name"))) != but]


def router_role_binding(intent: ModelIntent, accounts: Iterable[str]) -> KubeObject:
    """Owned by the Model, not by the chart: a fleet serves on after the operator was uninstalled."""
    name = names.router(intent.key.name)
    binding = meta.new_object(f"{RBAC_API_GROUP}/v1", "RoleBinding", name, intent, ROUTER_POOL)
    binding["roleRef"] = {"apiGroup": RBAC_API_GROUP, "kind": "Role", "name": name}
    binding["subjects"] = [
        {"kind": "ServiceAccount", "name": account, "namespace": intent.key.namespace} for account in accounts
    ]
    return binding
