"""The queries: few, for the whole fleet at once, raw cumulative counters and no rates.

Everything is grouped by pod (or by Model) within Prometheus. A pod that two jobs scrape counts once: series are summed
within one target (an engine has one per data-parallel rank), then the largest target is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from goodput.adapters.metric_names import (
    ENGINE_BUCKETS,
    ENGINE_COUNTERS,
    POD_LABEL_MODEL,
    POD_LABEL_POOL,
    POOL_SUMS,
    REQUEST_SECONDS_BUCKET,
    ROUTER_COUNTERS,
    ROUTER_ERROR_TYPE,
    Names,
    Quantity,
)
from goodput.domain.identity import ROUTER_POOL, SERVE_POOL

P95_WINDOW = "10m"
SERVER_TIME = "time()"
_SERVE = f'{POD_LABEL_POOL}="{SERVE_POOL}"'
_ROUTER = f'{POD_LABEL_POOL}="{ROUTER_POOL}"'


def _once_per_pod(selector: str, by: str) -> str:
    return f"max by ({by}) (sum by ({by}, job, instance) ({selector}))"


def _any_of(names: Iterable[Names], matchers: str) -> str:
    regex = "|".join(name.regex for name in names)
    return f'{{__name__=~"{regex}", {matchers}}}'


# Timestamps of the last successful scrape of each engine and router pod, and whose it is. A canary that is scraped
# serves no user. timestamp() needs a bare selector.
_UP = f'up{{{POD_LABEL_POOL}=~"{SERVE_POOL}|{ROUTER_POOL}"}}'
SCRAPES = f"max by (namespace, pod, {POD_LABEL_MODEL}) (timestamp({_UP}) and ({_UP} == 1))"
ENGINE = _once_per_pod(_any_of(ENGINE_COUNTERS.values(), _SERVE), "__name__, namespace, pod")
POOLS = (
    f"sum by (__name__, namespace, {POD_LABEL_MODEL}) ("
    + _once_per_pod(_any_of(POOL_SUMS.values(), _SERVE), f"__name__, namespace, pod, {POD_LABEL_MODEL}")
    + ")"
)
ROUTERS = _once_per_pod(_any_of(ROUTER_COUNTERS.values(), _ROUTER), f"__name__, namespace, pod, {ROUTER_ERROR_TYPE}")
REQUEST_SECONDS_P95 = (
    f"histogram_quantile(0.95, sum by (namespace, {POD_LABEL_MODEL}, le) "
    f"(rate({REQUEST_SECONDS_BUCKET.alternatives[0]}{{{_SERVE}}}[{P95_WINDOW}])))"
)
# Series of engines that carry none of our labels: scraped, but not as the chart's scrape configuration does.
UNLABELLED = f'count by (namespace) (vllm:num_requests_running{{{POD_LABEL_MODEL}=""}})'


def edge_labels(seconds: float) -> tuple[str, ...]:
    """How exporters may write this bucket edge: `1.0` and `1` are the same edge."""
    return tuple(dict.fromkeys((repr(float(seconds)), f"{seconds:g}")))


def buckets(edges: dict[Quantity, frozenset[float]]) -> str:
    """Cumulative bucket counts by pod at the given edges (seconds); '' if there are none."""
    selectors = []
    for quantity, thresholds in sorted(edges.items()):
        labels = sorted({label for edge in thresholds for label in edge_labels(edge)})
        if labels:
            regex = "|".join(re.escape(label).replace("\\", "\\\\") for label in labels)
            selectors.append(f'{ENGINE_BUCKETS[quantity].alternatives[0]}{{{_SERVE}, le=~"{regex}"}}')
    if not selectors:
        return ""
    return _once_per_pod(" or ".join(selectors), "__name__, namespace, pod, le")


def known_edges(quantity: Quantity) -> str:
    """All edges that any engine of the fleet exports."""
    return f"group by (le) ({ENGINE_BUCKETS[quantity].alternatives[0]}{{{_SERVE}}})"
