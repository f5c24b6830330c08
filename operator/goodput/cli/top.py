"""`top`: the fleet as a table, from the Models' status, with live figures from Prometheus where one is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import requests

from goodput.adapters.kube import Object
from goodput.cli.session import field
from goodput.domain.percent import percent

COLUMNS = ("namespace", "model", "slo", "pools", "replicas", "demand/s", "goodput/s", "attainment", "cost/h", "state")
# Figures that the operator publishes, by the column that they are fresher for.
_LIVE = {
    "demand/s": "goodput_demand_requests_per_second",
    "goodput lower": "goodput_goodput_lower_requests_per_second",
    "goodput upper": "goodput_goodput_upper_requests_per_second",
    "attainment lower": "goodput_attainment_lower_ratio",
    "attainment upper": "goodput_attainment_upper_ratio",
    "cost/h": "goodput_cost_per_hour",
}
LIVE_DEADLINE_SECONDS = 5.0

Live = Mapping[tuple[str, str], Mapping[str, float]]


def live_figures(prometheus_url: str) -> Live:
    """Figures by namespace and Model, from one query.

    A scrape with labels of its own of these names (that of a PodMonitor has `namespace`) calls ours `exported_...`.

    Raises:
        requests.RequestException: Prometheus does not answer.
        ValueError, KeyError: it answers something else.
    """
    names = "|".join(_LIVE.values())
    labels_asked = "__name__, namespace, model, exported_namespace, exported_model"
    query = f'max by ({labels_asked}) ({{__name__=~"{names}"}})'
    answer = requests.get(
        f"{prometheus_url.rstrip('/')}/api/v1/query", params={"query": query}, timeout=LIVE_DEADLINE_SECONDS
    )
    answer.raise_for_status()
    columns = {metric: column for column, metric in _LIVE.items()}
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in answer.json()["data"]["result"]:
        labels = row["metric"]
        key = (_ours(labels, "namespace"), _ours(labels, "model"))
        column, value = columns[labels["__name__"]], float(row["value"][1])
        known = found.setdefault(key, {})
        known[column] = max(value, known.get(column, value))
    return found


def _ours(labels: Mapping[str, str], name: str) -> str:
    return labels.get(f"exported_{name}") or labels.get(name, "")


def rows(models: Sequence[Object], live: Live) -> list[dict[str, Any]]:
    """One row a Model, sorted by namespace and name; None is unknown."""
    return [
        _row(model, live.get((model["metadata"].get("namespace", ""), model["metadata"]["name"]), {}))
        for model in sorted(models, key=lambda m: (m["metadata"].get("namespace", ""), m["metadata"]["name"]))
    ]


def _row(model: Object, live: Mapping[str, float]) -> dict[str, Any]:
    status = model.get("status") or {}
    slo = field(model, "spec", "slo")
    return {
        "namespace": model["metadata"].get("namespace"),
        "model": model["metadata"]["name"],
        "slo": slo.get("name") if isinstance(slo, dict) else slo,
        "pools": status.get("poolSummary"),
        "replicas": status.get("replicas"),
        "demand/s": _number(live.get("demand/s")) or field(status, "demand", "requestsPerSecond"),
        "goodput/s": _between(live, "goodput lower", "goodput upper", "{:.3g}".format)
        or field(status, "goodput", "requestsPerSecond"),
        "attainment": _between(live, "attainment lower", "attainment upper", _share) or status.get("attainment"),
        "cost/h": _number(live.get("cost/h")) or status.get("costPerHour"),
        "state": state_of(status),
    }


def state_of(status: Mapping[str, Any]) -> str:
    """The one word that matters most: what is wrong, else what goes on, else that it serves."""
    conditions = {c["type"]: c for c in status.get("conditions") or ()}

    def reason(kind: str, wrong: str) -> str:
        condition = conditions.get(kind)
        return str(condition["reason"]) if condition is not None and condition["status"] == wrong else ""

    return (
        reason("Stalled", "True")
        or reason("Placed", "False")
        or reason("Ready", "False")
        or reason("MetricsFresh", "False")
        or reason("SLOMet", "False")
        or reason("Reconciling", "True")
        or reason("Ready", "True")
        or "Unknown"
    )


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


def _share(value: float) -> str:
    return percent(value, 1)


def _between(live: Mapping[str, float], lower: str, upper: str, text: Callable[[float], str]) -> str | None:
    if lower not in live or upper not in live:
        return None
    low, high = text(live[lower]), text(live[upper])
    return low if low == high else f"{low.rstrip('%')}-{high}"
