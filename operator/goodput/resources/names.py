"""Names of the objects of one Model, and names within its pods. Every name is built here and nowhere else.

Users call a Model by its bare name, which is its Service's, and may be any that the API lets through: `llama-canary`
too. All else has a suffix of its own, so that no two Models of a namespace want one name. A suffix is not enough for
another Service.
"""

from __future__ import annotations

from hashlib import sha256

from goodput.api.model import MAX_MODEL_NAME
from goodput.domain.identity import CANARY_POOL, CHECK_POOL, ROUTER_POOL, SERVE_POOL

GROUP_VERSION = "goodput.dev/v1alpha1"

ENGINE_CONTAINER = "vllm"
ENGINE_PORT = 8000
ROUTER_CONTAINER = "router"
ROUTER_PORT = 8080
ROUTER_METRICS_PORT = 29000
SERVICE_PORT = 80
HTTP = "http"
METRICS = "metrics"

# Longer than any name of a Model, and the longest of these still has a digit of the hash.
CANARY_SERVICE_LENGTH = MAX_MODEL_NAME + len(f"-{CANARY_POOL}-") + 1


def engine(model: str) -> str:
    """Deployment, ServiceAccount, PodDisruptionBudget, NetworkPolicy and PodMonitor of the engine pods."""
    return f"{model}-{SERVE_POOL}"


def router(model: str) -> str:
    """ServiceAccount, Deployment, Role, RoleBinding, budget, NetworkPolicy and PodMonitor of the router pods."""
    return f"{model}-{ROUTER_POOL}"


def service(model: str) -> str:
    """The Service that users call."""
    return model


def canary(model: str) -> str:
    """Deployment and NetworkPolicy of the canary of a change."""
    return f"{model}-{CANARY_POOL}"


def canary_service(model: str) -> str:
    """Service of that canary: with a hash it is as long as no name of a Model may be."""
    return f"{model}-{CANARY_POOL}-{sha256(model.encode()).hexdigest()}"[:CANARY_SERVICE_LENGTH]


def check(model: str, change: str) -> str:
    """Job that judges a change: a Job cannot be edited, so each change has its own."""
    return f"{model}-{CHECK_POOL}-{change}"


def memory(model: str) -> str:
    """ConfigMap in which the loop remembers this Model."""
    return f"{model}-goodput"
