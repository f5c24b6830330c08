"""PodMonitors for the Prometheus Operator, where its CRD is installed."""

from __future__ import annotations

from collections.abc import Mapping

from goodput.domain.identity import LABEL_MODEL, LABEL_POOL, LABEL_REVISION, ROUTER_POOL
from goodput.domain.intent import ModelIntent
from goodput.resources import meta, names
from goodput.resources.inputs import KubeObject

ANNOTATION_LABELS = "goodput.dev/pod-monitor-labels"


def pod_monitor(intent: ModelIntent, pool: str, scrape_seconds: int, labels: Mapping[str, str]) -> KubeObject:
    """`podTargetLabels` put our pod labels on every series; without them nothing can be told apart.

    `labels` are what a Prometheus selects PodMonitors by; none replaces one of ours. They are noted in an annotation:
    the PodMonitor of a label that is no longer wanted would look right, as if somebody else had added it.
    """
    name = f"{intent.key.name}-{pool}"
    monitor = meta.new_object("monitoring.coreos.com/v1", "PodMonitor", name, intent, pool)
    monitor["metadata"]["labels"] = {**labels, **monitor["metadata"]["labels"]}
    noted = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    monitor["metadata"]["annotations"] = {ANNOTATION_LABELS: noted}
    port = names.METRICS if pool == ROUTER_POOL else names.HTTP
    monitor["spec"] = {
        "selector": {"matchLabels": meta.selector(intent.key.name, pool)},
        "podTargetLabels": [LABEL_MODEL, LABEL_POOL, LABEL_REVISION],
        "podMetricsEndpoints": [{"port": port, "path": "/metrics", "interval": f"{scrape_seconds}s"}],
    }
    return monitor
