"""A plan as a person would tell it: the options, the winner by three questions, what each notch of the SLO costs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from goodput.cli.figures import count, gib, money, objective_text, rate, share
from goodput.cli.planned import Planned, option_bottleneck, together
from goodput.domain.intent import GpuType
from goodput.domain.percent import MOST_DECIMALS, percent
from goodput.domain.speculation import DraftMethod
from goodput.perfmodel.config_towers import towers_remark
from goodput.perfmodel.cost import beyond_reading
from goodput.perfmodel.fleet import Fleet
from goodput.perfmodel.judging import Option, Verdict
from goodput.perfmodel.notches import Notch
from goodput.perfmodel.requirements import Requirements
from goodput.perfmodel.verdicts import binds, duration

# Words of a verdict in a table; the first row is the winner's.
_VERDICTS = {
    Verdict.CAPPED: "too few replicas",
    Verdict.BUSY_MISSES: "misses the SLO",
    Verdict.MISSES: "misses the SLO",
    Verdict.TOO_SHORT: "requests are too long",
    Verdict.TOO_LARGE: "does not fit",
    Verdict.UNSUPPORTED: "does not run it",
    Verdict.INVALID: "does not exist",
}
_TALLIES = {
    Verdict.MEETS: "meet the SLO",
    Verdict.DEARER: "can only cost more than smaller replicas",
    Verdict.CAPPED: "may not have enough replicas",
    Verdict.BUSY_MISSES: "meet the SLO only when idle",
    Verdict.MISSES: "miss the SLO",
    Verdict.TOO_SHORT: "hold no request of the mean length",
    Verdict.TOO_LARGE: "too large",
    Verdict.UNSUPPORTED: "do not run the precision",
    Verdict.INVALID: "impossible",
}
# Shares of the cost that are no difference.
_NOTHING = 0.005
RUNNERS_UP = 3
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def heading(plan: Planned) -> Iterator[str]:
    """What was asked."""
    wanted = plan.wanted
    yield f"{plan.name}: {wanted.arch.name} under SLO {plan.slo} ({objective_text(wanted.objective)})"
    lengths = f"{wanted.lengths.input_mean:.0f} tokens in and {wanted.lengths.output_mean:.0f} out"
    assumed = " (assumed: those of a public conversation trace)" if plan.lengths_assumed else ""
    if wanted.rps:
        free = 100.0 * (wanted.load_rps / wanted.rps - 1.0)
        kept = f"{free:.0f} % of the load is kept free for growth and noise"
        yield f"{rate(wanted.rps)} requests/s of {lengths}{assumed}; {kept}"
    else:
        yield (
            f"Requests of {lengths}{assumed}. How many is not known: the least fleet is priced, at its full load "
            "(--rate, or spec.workload)"
        )


def columns(plan: Planned) -> tuple[str, ...]:
    """Names of the columns; times are those that the share of requests which the SLO asks for does not exceed."""
    percentile = f"p{100.0 * plan.wanted.objective.attainment:g}"
    return (
        *("option", "replicas", "gpus", f"ttft {percentile}", f"tpot {percentile}", "attainment"),
        *("cost/h", "/1k req", "/1M out", "mfu", "mbu", "bottleneck", "verdict"),
    )


def rows(plan: Planned, every: bool, most: int) -> list[list[Any]]:
    """Rows of the table: all options, or the best of each type, at most so many."""
    shown: list[Option] = []
    types: set[str] = set()
    for option in plan.options:
        if every:
            shown.append(option)
        elif option.gpu.name not in types and len(shown) < most:
            shown.append(option)
            types.add(option.gpu.name)
    return [_row(plan.wanted, option, option is plan.winner) for option in shown]


def _row(wanted: Requirements, option: Option, chosen: bool) -> list[Any]:
    fleet, attainment = option.fleet, wanted.objective.attainment
    verdict = "chosen" if chosen else _VERDICTS.get(option.verdict, "")
    if option.why:
        verdict = f"{verdict}: {option.why}" if verdict else option.why
    if fleet is None:
        return [option.label, *[None] * 11, verdict]
    return [
        option.label,
        fleet.replicas,
        fleet.gpus,
        duration(fleet.at_load.ttft.quantile(attainment)),
        duration(fleet.at_load.tpot.quantile(attainment)),
        share(fleet.at_load.good),
        money(fleet.cost.per_hour),
        money(fleet.cost.per_thousand_requests),
        money(fleet.cost.per_million_output_tokens),
        f"{100.0 * fleet.use.mfu:.0f}%",
        f"{100.0 * fleet.use.mbu:.0f}%",
        option_bottleneck(wanted, option),
        verdict,
    ]


def told(plan: Planned, shown: int) -> Iterator[str]:
    """Everything below the table."""
    yield from _hidden(plan, shown)
    winner = plan.winner
    if winner is None:
        yield from _nothing(plan)
    else:
        yield ""
        yield from _questions(plan, winner)
        yield from _runners_up(plan)
        yield from _notches(plan)
    yield from _notes(plan)


def summed(plans: Sequence[Planned]) -> Iterator[str]:
    """What all Models cost together, and whether those without latency are better off in pools of their own."""
    if len(plans) < 2:
        return
    costs = [plan.winner.fleet.cost.per_hour for plan in plans if plan.winner is not None and plan.winner.fleet]
    if len(costs) == len(plans) and None not in costs:
        every = "Both" if len(plans) == 2 else f"All {len(plans)}"
        yield f"{every} Models: {money(sum(cost or 0.0 for cost in costs))} $/h."
    for batch in plans:
        own = batch.winner.fleet.cost.per_hour if batch.winner is not None and batch.winner.fleet else None
        for online in plans:
            if not batch.wanted.patient or online.wanted.patient or own is None:
                continue
            more = together(online, batch)
            if more is None:
                continue
            ratio = f", {100.0 * (1.0 - own / more):.0f} % less" if more > own else ""
            yield (
                f"{batch.name} in a pool of its own costs {money(own)} $/h{ratio}; in the pool of {online.name}, under "
                f"its SLO, the same requests would cost {money(more)} $/h more."
            )


def _hidden(plan: Planned, shown: int) -> Iterator[str]:
    hidden = len(plan.options) - shown
    if hidden > 0:
        tally = Counter(option.verdict for option in plan.options)
        parts = [f"{tally[verdict]} {words}" for verdict, words in _TALLIES.items() if tally[verdict]]
        yield f"{len(plan.options)} options in all: {', '.join(parts)}. --all shows them."


def _nothing(plan: Planned) -> Iterator[str]:
    yield ""
    if not plan.options:
        yield "No GPU type may be used: name some with --gpu-type or spec.gpuTypes."
        return
    best = plan.options[0]
    field = f"{best.field}: " if best.field and best.field not in best.why else ""
    yield f"No option meets the SLO. The nearest is {best.label}: {field}{best.why}."
    if best.verdict is Verdict.CAPPED and best.capacity is not None:
        takes = option_bottleneck(plan.wanted, best)
        yield f"  A replica carries {rate(best.capacity.rps)} requests/s: {binds(best.capacity.wall)} ({takes})."
    if plan.unbounded is not None and plan.unbounded.fleet is not None:
        fleet = plan.unbounded.fleet
        cost = "" if fleet.cost.per_hour is None else f" at {money(fleet.cost.per_hour)} $/h"
        what = f"{fleet.replicas} x {plan.unbounded.label}{cost}"
        yield f"  Without the bounds of spec.scaling the cheapest fleet is {what}."
    if plan.diagnosis is None:
        return
    yield from (f"  {cause}" for cause in plan.diagnosis.causes)
    yield "What helps, in this order:"
    for number, remedy in enumerate(plan.diagnosis.remedies, 1):
        enough = "" if remedy.meets else ", which alone is not enough"
        yield f"  {number}. {remedy.what}: {plan.diagnosis.missed.value} {duration(remedy.seconds)}{enough}"


def _questions(plan: Planned, winner: Option) -> Iterator[str]:
    fleet, pool, able = winner.fleet, winner.pool, winner.capacity
    if fleet is None or pool is None or able is None:
        return
    lengths = plan.wanted.lengths
    plural = "" if fleet.replicas == 1 else "s"
    gpus = "1 GPU" if fleet.gpus == 1 else f"{fleet.gpus} GPUs"
    yield f"Chosen: {fleet.replicas} replica{plural} of {winner.label} ({gpus})."
    at_once = count(pool.sequences(lengths.input_mean + lengths.output_mean / 2.0))
    yield (
        f"  Can it run?             Weights take {gib(pool.weight_bytes)} of each GPU, the KV cache "
        f"{gib(pool.pool_bytes)}: {count(pool.tokens)} tokens, about {at_once} requests at once."
    )
    at, wanted = fleet.at_load, plan.wanted.objective.attainment
    asked = percent(wanted, MOST_DECIMALS)
    yield (
        f"  How long does it take?  At {rate(fleet.rps / fleet.replicas)} requests/s a replica, TTFT is "
        f"{duration(at.ttft_mean_seconds)} and TPOT {duration(at.tpot_mean_seconds)} on average, and for {asked} of "
        f"requests at most {duration(at.ttft.quantile(wanted))} and {duration(at.tpot.quantile(wanted))}; "
        f"{share(at.good)} meet the SLO. {_sentence(binds(able.wall))} at {rate(able.rps)} requests/s."
    )
    if fleet.cost.per_hour is None:
        ranked = f"Unknown: no price of {winner.gpu.name} is known, options were ranked by GPUs."
        yield f"  What does it cost?      {ranked}{_energy(fleet)}"
        return
    yield (
        f"  What does it cost?      {money(fleet.cost.per_hour)} $/h: {money(fleet.cost.per_thousand_requests)} $ per "
        f"1,000 requests, {money(fleet.cost.per_million_output_tokens)} $ per 1M output tokens"
        f"{price_source(winner.gpu)}.{_energy(fleet)}"
    )


def _energy(fleet: Fleet) -> str:
    """Power and energy, where the TDP is known."""
    if fleet.cost.watts is None or fleet.cost.kwh_per_million_output_tokens is None:
        return ""
    kwh = money(fleet.cost.kwh_per_million_output_tokens)
    return f" GPUs draw {count(fleet.cost.watts)} W, {kwh} kWh per 1M output tokens."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def price_source(gpu: GpuType) -> str:
    """Whose price it is, where nobody set one."""
    if not gpu.price_assumed:
        return ""
    whose = gpu.price_source.partition(",")[0] or "a list price"
    day = _DAY.search(gpu.price_source)
    return f" by {whose}{f' of {day[0]}' if day else ''}, assumed"


def _runners_up(plan: Planned) -> Iterator[str]:
    seen = {plan.options[0].gpu.name}
    others = []
    for option in plan.options[1:]:
        if option.meets and option.gpu.name not in seen:
            seen.add(option.gpu.name)
            others.append(option)
    if others:
        yield "Runners-up:"
    for option in others[:RUNNERS_UP]:
        replicas = f"{option.fleet.replicas} x " if option.fleet else ""
        yield f"  {replicas}{option.label}: {option.why}."


def _notches(plan: Planned) -> Iterator[str]:
    if plan.notches:
        yield "What each notch of the SLO costs:"
    same = []
    for notch in plan.notches:
        if notch.saving is not None and abs(notch.saving) < _NOTHING:
            same.append(_change(notch))
        else:
            yield f"  {notch_text(notch)}"
    if same:
        yield f"  Nothing changes with {', '.join(same)}"


def _change(notch: Notch) -> str:
    before, after = (
        percent(value, MOST_DECIMALS) if notch.bound == "attainment" else duration(value)
        for value in (notch.before, notch.after)
    )
    return f"{notch.bound} {before} -> {after}"


def notch_text(notch: Notch) -> str:
    """Such as `TPOT 50 -> 100 ms saves 34 % (1 x l40s TP1, 1.86 $/h)`."""
    change = _change(notch)
    if notch.option is None or notch.option.fleet is None:
        return f"{change} cannot be met by any of these types"
    fleet = notch.option.fleet
    what = f"{fleet.replicas} x {notch.option.label}"
    if notch.saving is None:
        return f"{change}: {what}"
    priced = f"{what}, {money(fleet.cost.per_hour)} $/h"
    if abs(notch.saving) < _NOTHING:
        return f"{change} changes nothing"
    if notch.saving > 0:
        return f"{change} saves {100.0 * notch.saving:.0f} % ({priced})"
    return f"{change} costs {-100.0 * notch.saving:.0f} % more ({priced})"


def _notes(plan: Planned) -> Iterator[str]:
    notes = [*_towers(plan), *_speculation(plan), *_reading(plan), *_reasoning(plan), *_batch(plan), *_left_out(plan)]
    if notes:
        yield "Notes:"
    for note in notes:
        yield f"  {note}"


def _towers(plan: Planned) -> Iterator[str]:
    if remark := towers_remark(plan.wanted.arch):
        yield f"{_sentence(remark)}."


def _speculation(plan: Planned) -> Iterator[str]:
    best = plan.options[0] if plan.options else None
    if best is None or not best.note:
        return
    text = f"Speculation on {best.label}: {best.note}."
    asked = best.shape.speculation
    if asked is not None and asked.acceptance is None and asked.method is DraftMethod.NGRAM:
        text += " That is believed of answers that repeat their prompts; free chat gains next to nothing."
    if best.shape.drafts is None:
        yield text
    elif plan.plain is None or plan.plain.fleet is None:
        yield f"{text} Without it nothing meets the SLO."
    else:
        fleet = plan.plain.fleet
        cost = "" if fleet.cost.per_hour is None else f" at {money(fleet.cost.per_hour)} $/h"
        yield f"{text} Without it the cheapest fleet is {fleet.replicas} x {plan.plain.label}{cost}."


def _reading(plan: Planned) -> Iterator[str]:
    remark = beyond_reading(plan.wanted.objective.tpot_seconds or 0.0)
    if not remark or plan.winner is None:
        return
    looser = next((n for n in plan.notches if n.bound == "TPOT" and n.after > n.before), None)
    if looser is None or looser.saving is None:
        yield f"{_sentence(remark)}."
    elif looser.saving >= _NOTHING:
        unless = "unless programs read or most tokens are reasoning"
        yield f"{_sentence(remark)}; a looser tpot is cheaper, {unless}: {notch_text(looser)}."
    else:
        yield f"{_sentence(remark)}; at this load a looser tpot costs the same."


def _reasoning(plan: Planned) -> Iterator[str]:
    winner = plan.winner
    if not plan.reasoning_tokens or winner is None or winner.fleet is None:
        return
    at = winner.fleet.at_load
    seconds = at.ttft_mean_seconds + plan.reasoning_tokens * at.tpot_mean_seconds
    thought = f"{plan.reasoning_tokens:.0f} tokens of reasoning at {duration(at.tpot_mean_seconds)} each"
    yield (
        f"Time to the first visible token is {duration(seconds)} on average: TTFT and {thought}. The SLO's TTFT bounds "
        "the first token of reasoning, which nobody sees."
    )


def _batch(plan: Planned) -> Iterator[str]:
    if plan.wanted.patient:
        yield (
            "Only whole requests have a deadline, and a long one: replicas are loaded as far as their memory and time "
            f"allow, and pipeline stages count like replicas{_limits(plan.winner)}."
        )


def _limits(winner: Option | None) -> str:
    """Engine limits that are not the engine's own."""
    if winner is None or winner.shape.max_num_batched_tokens is None:
        return ""
    return f"; max-num-seqs {winner.shape.max_num_seqs}, max-num-batched-tokens {winner.shape.max_num_batched_tokens}"


def _left_out(plan: Planned) -> Iterator[str]:
    for why, names in plan.left_out.items():
        some = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
        yield f"Left out: {len(names)} types ({some}): {why}."
    unpriced = sorted(
        {o.gpu.name for o in plan.options if o.meets and o.fleet is not None and o.fleet.cost.per_hour is None}
    )
    if unpriced and plan.winner is not None and plan.winner.gpu.price_per_hour is not None:
        yield (
            f"No price is known of {', '.join(unpriced)}, which meet the SLO too: not compared by cost. A GPUType of "
            "that name may set pricePerHour."
        )
