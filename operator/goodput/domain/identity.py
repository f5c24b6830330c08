"""Names of objects."""

from __future__ import annotations

from typing import NamedTuple


class Key(NamedTuple):
    """Namespace and name of a namespaced object."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


# The one pool of an aggregated Model: each replica does prefill and decode.
SERVE_POOL = "serve"
ROUTER_POOL = "router"
# One replica of a change that no user reaches, and the pods that judge it.
CANARY_POOL = "canary"
CHECK_POOL = "check"

LABEL_MODEL = "goodput.dev/model"
LABEL_POOL = "goodput.dev/pool"
LABEL_REVISION = "goodput.dev/revision"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY = "goodput"
FIELD_MANAGER = "goodput-operator"
