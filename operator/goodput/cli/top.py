"""`top`: the fleet as a table, from the Models' status, with live figures from Prometheus where one is given."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from goodput.cli.flags import output_option, target_options
from goodput.cli.output import console, emit, show, table
from goodput.cli.session import Target, field, list_all, namespace_of, run
from goodput.domain.percent import percent

if TYPE_CHECKING:
    from goodput.adapters.objects import Object

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


@click.command()
@target_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Models of all namespaces.")
@click.option("-w", "--watch", is_flag=True, help="Refresh until Ctrl-C.")
@click.option("--every", type=click.FloatRange(1.0), default=5.0, show_default=True, help="Seconds between refreshes.")
@click.option(
    "--prometheus-url",
    envvar="GOODPUT_PROMETHEUS_URL",
    help="Live figures from the Prometheus that scrapes the operator. Unset: from status, rounded and rarely written.",
)
@output_option
def top(
    *,
    namespace: str | None,
    context: str | None,
    all_namespaces: bool,
    watch: bool,
    every: float,
    prometheus_url: str | None,
    output: str,
) -> None:
    """Show the fleet: demand, goodput, replicas and cost of every Model."""
    from goodput.adapters.kinds import MODELS

    target = Target(context, namespace)
    where = None if all_namespaces else namespace_of(target)

    def look() -> list[dict[str, Any]]:
        models = run(target, lambda api: list_all(api, MODELS, where))
        live: Live = {}
        if prometheus_url:
            try:
                live = live_figures(prometheus_url)
            except (OSError, ValueError, KeyError) as error:
                raise click.ClickException(
                    f"Prometheus at {prometheus_url} cannot be read ({type(error).__name__}): forward its port, or "
                    "leave --prometheus-url out"
                ) from error
        return rows(models, live)

    def shown() -> Any:
        return table(COLUMNS, [[row[column] for column in COLUMNS] for row in look()])

    if output != "table":
        emit(look(), output)
    elif not watch:
        show(shown())
    else:
        from rich.live import Live as LiveDisplay

        with LiveDisplay(shown(), console=console(), auto_refresh=False) as display:
            while True:
                time.sleep(every)
                display.update(shown(), refresh=True)


def live_figures(prometheus_url: str) -> Live:
    """Figures by namespace and Model, from one query.

    A scrape with labels of its own of these names (that of a PodMonitor has `namespace`) calls ours `exported_...`.

    Raises:
        requests.RequestException: Prometheus does not answer.
        ValueError, KeyError: it answers something else.
    """
    import requests

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
