"""Names of the objects of one Model, and names within its pods. Every name is built here and nowhere else."""

from __future__ import annotations

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

# The longest suffix below keeps every name within the 63 characters of a label or DNS name.
MAX_MODEL_NAME_LENGTH = 63 - len("-goodput")


def engine(model: str) -> str:
    """Deployment, ServiceAccount, PodDisruptionBudget, NetworkPolicy and PodMonitor of the engine pods."""
    return f"{model}-{SERVE_POOL}"


def router(model: str) -> str:
    """Deployment, Role, RoleBinding, PodDisruptionBudget, NetworkPolicy and PodMonitor of the router pods."""
    return f"{model}-{ROUTER_POOL}"


def service(model: str) -> str:
    """The Service that users call, and the ServiceAccount of the router."""
    return model


def canary(model: str) -> str:
    """Deployment, Service and NetworkPolicy of the canary of a change."""
    return f"{model}-{CANARY_POOL}"


def check(model: str, change: str) -> str:
    """Job that judges a change: a Job cannot be edited, so each change has its own."""
    return f"{model}-{CHECK_POOL}-{change}"


def memory(model: str) -> str:
    """ConfigMap in which the loop remembers this Model."""
    return f"{model}-goodput"
