"""PodMonitors for the Prometheus Operator, where its CRD is installed."""

from __future__ import annotations

from goodput.domain.identity import LABEL_MODEL, LABEL_POOL, LABEL_REVISION, ROUTER_POOL
from goodput.domain.intent import ModelIntent
from goodput.resources import meta, names
from goodput.resources.inputs import KubeObject


def pod_monitor(intent: ModelIntent, pool: str, scrape_seconds: int) -> KubeObject:
    """`podTargetLabels` put our pod labels on every series; without them nothing can be told apart."""
    name = f"{intent.key.name}-{pool}"
    monitor = meta.new_object("monitoring.coreos.com/v1", "PodMonitor", name, intent, pool)
    port = names.METRICS if pool == ROUTER_POOL else names.HTTP
    monitor["spec"] = {
        "selector": {"matchLabels": meta.selector(intent.key.name, pool)},
        "podTargetLabels": [LABEL_MODEL, LABEL_POOL, LABEL_REVISION],
        "podMetricsEndpoints": [{"port": port, "path": "/metrics", "interval": f"{scrape_seconds}s"}],
    }
    return monitor
