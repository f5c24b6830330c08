"""A what-if as a table, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import isnan
from typing import Any

from goodput.cli.figures import count, money, objective_text, rate, rounded, share
from goodput.cli.plantext import price_source
from goodput.cli.simulated import WhatIf
from goodput.domain.percent import percent
from goodput.perfmodel.verdicts import duration
from goodput.simulator.fleet.outcome import Outcome, Quantiles

# Times the cost of an oracle from which on scaling is worth it.
_LITTLE = 1.15
COLUMNS = (
    "policy",
    "attainment",
    "good/s",
    "replicas",
    "gpu-h",
    "cost",
    "ups",
    "downs",
    "worst minute",
    "ttft p95",
    "tpot p95",
    "e2e p95",
)


def heading(found: WhatIf) -> Iterator[str]:
    """What is simulated: the Model, the trace, the plant and the fleet."""
    fleet, plant = found.experiment.fleet, found.experiment.fleet.plant
    yield f"{found.name}: {found.architecture.name} under SLO {found.slo} ({objective_text(found.objective)})"
    requests, seconds = len(found.asks), fleet.seconds
    peak = max(Counter(int(ask.seconds // 60.0) for ask in found.asks).values()) / min(60.0, seconds)
    given = sum(ask.input_tokens for ask in found.asks) / requests
    made = sum(ask.output_tokens for ask in found.asks) / requests
    yield (
        f"Trace: {count(requests)} requests in {duration(seconds)}, {rate(requests / seconds)} a second and "
        f"{rate(peak)} in the busiest minute; {given:.0f} tokens in and {made:.0f} out on average"
    )
    yield (
        f"Plant: {found.gpu.name} TP{found.placement.tensor_parallel}"
        + (f" PP{found.placement.pipeline_parallel}" if found.placement.pipeline_parallel > 1 else "")
        + f", {found.plant_source}: memory at {share(plant.mbu)} and arithmetic at {share(plant.mfu)} of the data "
        f"sheet, {count(plant.kv_pool_tokens)} KV tokens; "
        f"one replica holds the SLO up to {rate(found.experiment.replica_rps)} requests/s of these"
    )
    yield (
        f"Fleet: {fleet.replicas} {_replicas(fleet.replicas)} at the start, {_bounds(found)}; "
        f"a new one takes {duration(fleet.startup_seconds)} to start"
    )


def _replicas(number: int) -> str:
    return "replica" if number == 1 else "replicas"


def _bounds(found: WhatIf) -> str:
    fleet = found.experiment.fleet
    gpus = sum(fleet.gpus_per_node)
    if fleet.max_replicas is not None:
        return f"{fleet.min_replicas} to {fleet.max_replicas} allowed, {gpus} GPUs there"
    return f"at least {fleet.min_replicas}, {gpus} GPUs there"


def row(found: WhatIf, outcome: Outcome) -> list[Any]:
    """One policy in the table."""
    return [
        outcome.policy,
        share(outcome.attainment),
        rate(outcome.goodput_rps),
        f"{outcome.mean_replicas:.2f}",
        f"{outcome.gpu_hours:.2f}",
        money(found.cost(outcome)),
        outcome.scale_ups,
        outcome.scale_downs,
        share(outcome.worst_minute_attainment),
        *(None if isnan(each.p95) else duration(each.p95) for each in (outcome.ttft, outcome.tpot, outcome.e2e)),
    ]


def told(found: WhatIf, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What is to be said of the table."""
    if found.possible < found.objective.attainment:
        yield (
            f"Only {share(found.possible)} of these requests meet the SLO on an idle replica: no fleet of it serves "
            f"more. What one replica holds is counted for {percent(found.objective.attainment)} of those."
        )
    if found.gpu_price is None:
        yield f"No price of {found.gpu.name} is known: set pricePerHour in a GPUType."
    else:
        yield f"Costs at {money(found.gpu_price)} $/h for each {found.gpu.name}{price_source(found.gpu)}."
    lost = {outcome.policy: outcome.lost for outcome in outcomes if outcome.lost}
    if lost:
        yield "Answered with an error, or not at all: " + ", ".join(
            f"{count(number)} of {name}" for name, number in lost.items()
        )
    yield from _hopeless(outcomes)
    yield from found.notes


def _hopeless(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Where nobody can save much, that is said."""
    paid = {outcome.policy: outcome.gpu_hours for outcome in outcomes}
    peak, oracle = paid.get("static-peak"), paid.get("oracle")
    if peak is not None and oracle is not None and peak <= _LITTLE * oracle:
        more = 100.0 * (peak / oracle - 1.0)
        cost = f"costs {more:.0f} % more than" if more >= 0.5 else "costs no more than"
        yield (
            f"static-peak {cost} what knowing the trace would: no law that scales can save much here. Keep that many "
            "replicas (minReplicas), or fewer and refuse what exceeds them."
        )


def as_json(found: WhatIf, outcome: Outcome) -> dict[str, Any]:
    """One policy. Shares are 0..1, costs in the currency of prices; null where there is none."""
    return {
        "policy": outcome.policy,
        "requests": outcome.requests,
        "attainment": rounded(outcome.attainment, 6),
        "goodput_rps": rounded(outcome.goodput_rps, 6),
        "offered_rps": rounded(outcome.offered_rps, 6),
        "gpu_hours": rounded(outcome.gpu_hours, 6),
        "cost": rounded(found.cost(outcome), 6),
        "replica_seconds": rounded(outcome.replica_seconds, 8),
        "scale_ups": outcome.scale_ups,
        "scale_downs": outcome.scale_downs,
        "worst_minute_attainment": rounded(outcome.worst_minute_attainment, 6),
        **_quantiles("ttft", outcome.ttft),
        **_quantiles("tpot", outcome.tpot),
        **_quantiles("e2e", outcome.e2e),
    }


def _quantiles(name: str, found: Quantiles) -> dict[str, float | None]:
    values = {"p50": found.p50, "p95": found.p95, "p99": found.p99}
    return {f"{name}_{part}_seconds": None if isnan(value) else rounded(value, 6) for part, value in values.items()}
