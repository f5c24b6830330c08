"""The Kubernetes resources that Goodput reads or writes, by group, version and plural."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Resource:
    """One REST resource."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """URL path of a collection, an object or a sub-resource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SERVICES = Resource("", "v1", "services", "Service")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
JOBS = Resource("batch", "v1", "jobs", "Job")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
POD_MONITORS = Resource("monitoring.coreos.com", "v1", "podmonitors", "PodMonitor")
AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
SCALED_OBJECTS = Resource("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
MODELS = Resource("goodput.dev", "v1alpha1", "models", "Model")
SLOS = Resource("goodput.dev", "v1alpha1", "slos", "SLO")
GPU_TYPES = Resource("goodput.dev", "v1alpha1", "gputypes", "GPUType", namespaced=False)

# What a Model owns, in the order in which it is written: a Deployment comes after all that its pods need.
OWNED = (
    SERVICE_ACCOUNTS,
    ROLES,
    ROLE_BINDINGS,
    CONFIG_MAPS,
    SERVICES,
    DISRUPTION_BUDGETS,
    NETWORK_POLICIES,
    POD_MONITORS,
    DEPLOYMENTS,
    JOBS,
)
_BY_KIND = {(r.api_version, r.kind): r for r in (*OWNED, PODS, NODES, LEASES, EVENTS, MODELS, SLOS, GPU_TYPES)}


def resource_of(manifest: dict[str, Any]) -> Resource:
    """The resource of a rendered object.

    Raises:
        KeyError: its kind is none that Goodput writes.
    """
    return _BY_KIND[(manifest["apiVersion"], manifest["kind"])]
