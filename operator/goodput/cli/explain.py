"""`explain`: the last decision of a Model as a person would tell it, from its status alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from goodput.cli.flags import model_name, output_option, target_options
from goodput.cli.output import emit
from goodput.cli.session import Target, field, get_model, namespace_of, run

if TYPE_CHECKING:
    from goodput.adapters.objects import Object

_ORDER = ("Ready", "SLOMet", "MetricsFresh", "Placed", "Stalled", "Reconciling", "UpdateAvailable")
# Conditions that are well when they are False.
_NEGATIVE = frozenset({"Stalled", "Reconciling", "UpdateAvailable"})


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[model] NAME")
@target_options
@output_option
def explain(words: tuple[str, ...], namespace: str | None, context: str | None, output: str) -> None:
    """Tell the last decision of a Model: what, why, from which numbers, and what was not done."""
    target = Target(context, namespace)
    name, where = model_name(words, "explain"), namespace_of(target)
    model = run(target, lambda api: get_model(api, where, name))
    if output != "table":
        emit(explained(model), output)
        return
    for line in told(model):
        click.echo(line)


def explained(model: Object) -> dict[str, Any]:
    """What `explain -o json` gives: the parts of status that explain."""
    status = model.get("status") or {}
    return {
        "name": model["metadata"]["name"],
        "namespace": model["metadata"].get("namespace"),
        "slo": field(model, "spec", "slo"),
        "replicas": status.get("replicas"),
        "pools": status.get("pools") or [],
        "demand": status.get("demand"),
        "goodput": status.get("goodput"),
        "attainment": status.get("attainment"),
        "gpuUse": status.get("gpuUse"),
        "costPerHour": status.get("costPerHour"),
        "lastDecision": status.get("lastDecision"),
        "conditions": status.get("conditions") or [],
    }


def told(model: Object) -> Iterator[str]:
    """Lines of the story: what serves, what was decided and why, what else was possible, what is wrong."""
    status = model.get("status") or {}
    name = model["metadata"]["name"]
    if not status.get("conditions"):
        yield f"{name}: the operator has not looked at it yet. Does it run? See `kubectl get lease -A | grep goodput`."
        return
    yield from _state(name, model, status)
    yield from _decision(status.get("lastDecision"))
    yield from _conditions(status["conditions"], _stale(model, status))


def _state(name: str, model: Object, status: dict[str, Any]) -> Iterator[str]:
    slo = field(model, "spec", "slo")
    slo = slo.get("name") if isinstance(slo, dict) else slo
    pools = status.get("pools") or []
    if not pools:
        yield f"{name} serves under SLO {slo}; nothing runs yet."
    for pool in pools:
        gpus = (pool.get("tensorParallel") or 1) * (pool.get("pipelineParallel") or 1)
        if pool.get("role") == "Canary":
            ready = "ready" if pool["ready"] else "not ready yet"
            yield f"A canary of a change runs beside it, without users, on {gpus} x {pool.get('gpuType')} ({ready})."
            continue
        plural = "" if pool["desired"] == 1 else "s"
        yield (
            f"{name} serves under SLO {slo} on {pool['desired']} replica{plural} ({pool['ready']} ready), "
            f"each on {gpus} x {pool.get('gpuType') or 'an unknown GPU type'}."
        )
    facts = []
    demand, goodput = status.get("demand"), status.get("goodput")
    if demand:
        lengths = ""
        if demand.get("inputTokens") and demand.get("outputTokens"):
            lengths = f" of {demand['inputTokens']} tokens in and {demand['outputTokens']} out"
        facts.append(f"users offer {demand['requestsPerSecond']} requests/s{lengths}")
    if goodput:
        bounds = "" if goodput["lower"] == goodput["upper"] else f" (between {goodput['lower']} and {goodput['upper']})"
        facts.append(f"{goodput['requestsPerSecond']} a second meet the SLO{bounds}")
    if status.get("attainment"):
        facts.append(f"attainment is {status['attainment']}")
    if facts:
        yield f"Over the last 10 minutes {', '.join(facts)}."
    yield from _use(status.get("gpuUse") or {})
    cost = status.get("costPerHour")
    if cost:
        assumed = " by assumed list prices" if cost.startswith("~") else ""
        yield f"It costs {cost.lstrip('~')} an hour{assumed}."


def _use(use: dict[str, Any]) -> Iterator[str]:
    if use.get("mfu") is None:
        return
    busy = ""
    if use.get("busyMFU") is not None:
        busy = f", in the time of engine steps alone {use['busyMFU']} and {use['busyMBU']}"
    yield f"Its GPUs reach {use['mfu']} of their arithmetic (MFU) and {use['mbu']} of their bandwidth (MBU){busy}."
    if use.get("bottleneck"):
        yield f"What keeps a replica from carrying more is {use['bottleneck']}."


def _decision(decision: dict[str, Any] | None) -> Iterator[str]:
    if not decision:
        yield "Nothing was decided yet."
        return
    yield ""
    yield f"Last decision ({decision['time']}, {decision['id']}):"
    yield f"  {decision.get('message') or decision['action']}"
    if decision.get("clamp"):
        did = "asks for more" if decision["clamp"] == "MinReplicas" else "stopped it"
        yield f"  The rule asked for {decision.get('wanted')} replicas; {decision['clamp']} {did}."
    inputs = decision.get("inputs") or []
    if inputs:
        yield "  It rests on:"
        width = max(len(item["name"]) for item in inputs)
        for item in inputs:
            yield f"    {item['name']:<{width}}  {item['value']} {item.get('unit', '')}".rstrip()
    rejected = decision.get("rejected") or []
    if rejected:
        yield "  Not taken:"
        for item in rejected:
            yield f"    {item['option']}: {item['reason']}"


def _stale(model: Object, status: dict[str, Any]) -> bool:
    generation = field(model, "metadata", "generation", default=0)
    return bool(status.get("observedGeneration") != generation)


def _conditions(conditions: list[dict[str, Any]], stale: bool) -> Iterator[str]:
    yield ""
    if stale:
        yield "The operator has not seen the latest change of the spec yet."
    by_type = {condition["type"]: condition for condition in conditions}
    for kind in [*_ORDER, *sorted(by_type.keys() - set(_ORDER))]:
        condition = by_type.get(kind)
        if condition is None:
            continue
        well = condition["status"] == ("False" if kind in _NEGATIVE else "True")
        mark = " " if well else "!"
        text = f": {condition['message']}" if condition.get("message") else ""
        yield f"{mark} {kind}={condition['status']} ({condition['reason']}){text}"
