"""Decisions in words: one sentence of what was done and why, with numbers and units, and why not one more or fewer."""

from __future__ import annotations

from goodput.domain.decision import Action, Clamp, Quantity, Rejected, Rule

_RULES = {
    Rule.INITIAL: "a new Model starts at its minimum",
    Rule.DEMAND: "the load to provide for needs it",
    Rule.CERTAIN_MISSES: "even at best fewer requests meet the SLO than it asks for",
    Rule.TRIM: "attainment is undecided, so capacity is trimmed by a step",
    Rule.SCALE_DOWN_ALLOWED: "load left room for the whole window",
    Rule.SCALE_DOWN_WAITING: "load leaves room, but not for the whole window yet",
    Rule.ENOUGH: "what runs is what the load needs",
    Rule.HOLD_METRICS: "metrics are not fresh, so nothing is decided from them",
    Rule.HOLD_STARTING: "capacity is on its way",
    Rule.HOLD_ROLLOUT: "no scale-down during a roll-out",
    Rule.HOLD_PAUSED: "the Model is paused",
    Rule.HOLD_CONFLICT: "something else writes the replicas of this Deployment",
    Rule.HOLD_PROBLEM: "the Model has a problem that its author must mend",
    Rule.HOLD_MEMORY: "no scale-down before a full window was watched",
    Rule.BOUNDS: "the bounds of the Model ask for it",
}
_VERBS = {
    Action.PLACE: "Place",
    Action.SCALE_UP: "Scale up",
    Action.SCALE_DOWN: "Scale down",
    Action.HOLD: "Hold",
    Action.ADVISE_UP: "Advise up",
    Action.ADVISE_DOWN: "Advise down",
    Action.REPLACE: "Replace",
}


def number(value: float) -> str:
    """Two decimals below 100, none above: enough to recompute the decision."""
    return f"{value:.2f}" if abs(value) < 100.0 else f"{value:.0f}"


def quantities(inputs: tuple[Quantity, ...]) -> str:
    return ", ".join(f"{item.name} {number(item.value)}{' ' + item.unit if item.unit else ''}" for item in inputs)


def sentence(
    action: Action,
    rule: Rule,
    clamp: Clamp,
    *,
    before: int,
    after: int,
    wanted: int,
    inputs: tuple[Quantity, ...],
    detail: str = "",
) -> str:
    """The message of a decision."""
    moved = action in (Action.SCALE_UP, Action.SCALE_DOWN, Action.ADVISE_UP, Action.ADVISE_DOWN, Action.REPLACE)
    count = f"{before} -> {after} replicas" if moved else f"{after} replica{'' if after == 1 else 's'}"
    text = f"{_VERBS[action]} {count}: {_RULES[rule]}"
    if inputs:
        text += f" ({quantities(inputs)})"
    if clamp is not Clamp.NONE and wanted != after:
        text += f". Capped by {clamp.value}: {wanted} wanted"
    if detail:
        text += f". {detail}"
    return text


def neighbours(replicas: int, load_rps: float | None, peak_rps: float, capacity_rps: float) -> tuple[Rejected, ...]:
    """Why not one replica fewer, and why not one more."""
    if load_rps is None or capacity_rps <= 0.0:
        return ()
    found = []
    if replicas > 0:
        fewer = replicas - 1
        have = fewer * capacity_rps
        if load_rps > have:
            reason = f"{number(have)} requests/s of capacity is less than the {number(load_rps)} to provide for"
        elif peak_rps > have:
            reason = (
                f"{number(have)} requests/s of capacity is less than the highest load to provide for in the window,"
                f" {number(peak_rps)}"
            )
        else:
            reason = "load has not left room for the whole window"
        found.append(Rejected(f"{fewer} replicas", reason))
    have = replicas * capacity_rps
    if have >= load_rps:
        reason = f"{replicas} give {number(have)} requests/s, the load to provide for is {number(load_rps)}"
    else:
        reason = "a limit stops it"
    found.append(Rejected(f"{replicas + 1} replicas", reason))
    return tuple(found)
