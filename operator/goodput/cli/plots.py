"""Pictures of a plan: cost against the SLO, and the model's phases on the roofs of the GPUs. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from pathlib import Path
from typing import Any

import click

from goodput.cli.planned import Planned
from goodput.domain.intent import GpuType
from goodput.perfmodel import phases
from goodput.perfmodel.cost import READING_SECONDS_PER_TOKEN
from goodput.perfmodel.judging import Option
from goodput.perfmodel.notches import BOUNDS, frontier

KINDS = ("roofline", "frontier")
FORMATS = (".svg", ".png", ".pdf")
# Types of one picture, the cheapest first.
MOST_TYPES = 6
_STEPS = 40
# Times the bound of the SLO that the frontier spans.
_SPAN = (0.1, 8.0)
# FLOP per byte that the roofline spans: below one sequence in decode, above any ridge.
_LEAST_INTENSITY, _MOST_INTENSITY = 0.4, 4000.0
_COLOURS = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3", "#937860")
_INK, _FAINT = "#2b2b2b", "#9a9a9a"


def parse(text: str) -> tuple[str, Path]:
    """`frontier=cost.svg` -> (kind, file).

    Raises:
        click.BadParameter: it is something else.
    """
    kind, equals, file = text.partition("=")
    if kind not in KINDS or not equals or Path(file).suffix.lower() not in FORMATS:
        raise click.BadParameter(
            f"{text!r} is not {' or '.join(f'{each}=FILE' for each in KINDS)} with a FILE in {', '.join(FORMATS)}",
            param_hint="--plot",
        )
    return kind, Path(file)


def pyplot() -> Any:
    """matplotlib, drawing to files alone.

    Raises:
        click.ClickException: it is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise click.ClickException("--plot needs matplotlib: pip install 'goodput-operator[plot]'") from error
    mpl.use("Agg")
    # The same plan gives the same file.
    mpl.rcParams["svg.hashsalt"] = "goodput"
    mpl.rcParams.update({"font.size": 10, "axes.edgecolor": _FAINT, "text.color": _INK, "axes.labelcolor": _INK})
    from matplotlib import pyplot as found

    return found


def draw(plan: Planned, kind: str, path: Path) -> None:
    """Draw one of `KINDS`.

    Raises:
        click.ClickException: there is nothing to draw, or the file cannot be written.
    """
    (draw_frontier if kind == "frontier" else draw_roofline)(plan, path)


def types_shown(plan: Planned) -> list[Option]:
    """The best option of each type, the cheapest types first."""
    shown: dict[str, Option] = {}
    for option in plan.options:
        if option.pool is not None and option.gpu.name not in shown and len(shown) < MOST_TYPES:
            shown[option.gpu.name] = option
    return list(shown.values())


def draw_frontier(plan: Planned, path: Path) -> None:
    """What the cheapest fleet costs against the tightest bound of the SLO, of all types and of each.

    Raises:
        click.ClickException: no bound is set, or no type has a price.
    """
    plt = pyplot()
    objective = plan.wanted.objective
    field = next((name for name in ("tpot_seconds", "ttft_seconds", "e2e_seconds") if getattr(objective, name)), None)
    shown = [option for option in types_shown(plan) if option.gpu.price_per_hour is not None]
    if field is None or not shown:
        raise click.ClickException("--plot frontier needs a bound in the SLO and a GPU type with a price")
    bound = getattr(objective, field)
    low, high = (bound * times for times in _SPAN)
    values = [low * (high / low) ** (step / (_STEPS - 1)) for step in range(_STEPS)]
    unit, scale = ("ms", 1e3) if bound < 1.0 else ("s", 1.0)
    figure, axis = plt.subplots(figsize=(9, 5.2), layout="constrained")
    ends: list[tuple[float, str, str]] = []
    best = _costs(plan, plan.gpu_types, field, values)
    reachable = [cost for cost in best if cost is not None]
    if not reachable:
        raise click.ClickException("--plot frontier: no fleet meets the SLO however loose this bound is")
    for colour, option in zip(_COLOURS, shown, strict=False):
        costs = _costs(plan, [option.gpu], field, values)
        axis.step([v * scale for v in values], costs, where="post", color=colour, linewidth=1.6, alpha=0.9)
        if costs[-1] is not None:
            ends.append((costs[-1], option.gpu.name, colour))
    axis.step([v * scale for v in values], best, where="post", color=_INK, linewidth=5, alpha=0.18, zorder=1)
    axis.annotate(
        "cheapest of all types",
        (values[-1] * scale, reachable[-1]),
        xytext=(-2, -16),
        ha="right",
        textcoords="offset points",
        color=_FAINT,
    )
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_ylim(0.75 * min(reachable), 16.0 * min(reachable))
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:g}"[0] in "25" else "")
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:g}"[0] in "25" else "")
    _mark(axis, bound * scale, f"SLO: {bound * scale:g} {unit}", _INK)
    if field == "tpot_seconds" and low < READING_SECONDS_PER_TOKEN < high:
        _mark(axis, READING_SECONDS_PER_TOKEN * scale, "reading speed", _FAINT)
    winner = plan.winner
    if winner is not None and winner.fleet is not None and winner.fleet.cost.per_hour is not None:
        axis.plot([bound * scale], [winner.fleet.cost.per_hour], "o", color=_INK, markersize=7, zorder=5)
        _point(axis, (bound * scale, winner.fleet.cost.per_hour), f"{winner.fleet.replicas} x {winner.label}")
    _labels(axis, ends)
    axis.set_xlabel(f"{BOUNDS[field]} objective ({unit})")
    axis.set_ylabel("cheapest fleet that meets the SLO ($/h)")
    axis.set_title(_title(plan), loc="left", fontsize=10)
    _finish(plt, figure, axis, path)


def _costs(plan: Planned, gpus: Sequence[GpuType], field: str, values: Sequence[float]) -> list[float | None]:
    found = []
    for _, option in frontier(plan.wanted, gpus, field, values):
        fleet = option.fleet if option is not None else None
        found.append(fleet.cost.per_hour if fleet is not None else None)
    return found


def _point(axis: Any, at: tuple[float, float], text: str) -> None:
    axis.annotate(text, at, xytext=(-8, -15), ha="right", textcoords="offset points", color=_INK, weight="bold")


def _mark(axis: Any, at: float, text: str, colour: str) -> None:
    axis.axvline(at, color=colour, linewidth=1, linestyle=(0, (2, 3)), zorder=0)
    axis.annotate(
        text, (at, 1.0), xycoords=("data", "axes fraction"), xytext=(4, -12), textcoords="offset points", color=colour
    )


def _labels(axis: Any, ends: list[tuple[float, str, str]]) -> None:
    """Names at the right ends of lines, moved apart where they would overlap (log scale)."""
    low, high = axis.get_ylim()
    last = -1.0
    for value, name, colour in sorted(ends):
        at = max(log(value / low) / log(high / low), last + 0.042)
        last = at
        axis.annotate(
            name,
            (1.0, at),
            xycoords="axes fraction",
            xytext=(6, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            annotation_clip=False,
        )


def _title(plan: Planned) -> str:
    lengths = plan.wanted.lengths
    demand = f"{plan.wanted.rps:g} requests/s" if plan.wanted.rps else "one replica"
    return f"{plan.wanted.arch.name}: {demand} of {lengths.input_mean:.0f} tokens in and {lengths.output_mean:.0f} out"


def _finish(plt: Any, figure: Any, axis: Any, path: Path) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(visible=True, which="major", color="#ececec", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(colors=_INK, which="both")
    try:
        figure.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from error
    finally:
        plt.close(figure)


def draw_roofline(plan: Planned, path: Path) -> None:
    """Prefill and decode of the model on the roof of each type: FLOP/s over FLOP per byte, of one GPU.

    Raises:
        click.ClickException: no type holds the model.
    """
    plt = pyplot()
    shown = types_shown(plan)
    if not shown:
        raise click.ClickException("--plot roofline: no type holds the model")
    arch, lengths = plan.wanted.arch, plan.wanted.lengths
    context = lengths.input_mean + lengths.output_mean / 2.0
    figure, axis = plt.subplots(figsize=(9, 5.6), layout="constrained")
    ends: list[tuple[float, str, str]] = []
    lowest, highest = float("inf"), 0.0
    for colour, option in zip(_COLOURS, shown, strict=False):
        gpu, shape = option.gpu, option.shape
        peak = phases.peak_flops(arch, gpu)
        at = phases.ridge(arch, gpu)
        bandwidth = gpu.memory_bandwidth_bytes_per_second
        axis.plot(
            [_LEAST_INTENSITY, at, _MOST_INTENSITY],
            [_LEAST_INTENSITY * bandwidth, peak, peak],
            color=colour,
            linewidth=1.8,
        )
        ends.append((peak, gpu.name, colour))
        batch = option.fleet.at_load.batch if option.fleet is not None else 1.0
        alone = phases.decode(arch, gpu, shape, batch=1.0, context_tokens=context)
        loaded = phases.decode(arch, gpu, shape, batch=max(1.0, batch), context_tokens=context)
        prompt = phases.prefill(arch, gpu, shape, lengths)
        for phase, marker, size in ((alone, "o", 6), (loaded, "o", 10), (prompt, "^", 10)):
            axis.plot([phase.intensity], [phase.flop_per_second], marker, color=colour, markersize=size, zorder=4)
            lowest, highest = min(lowest, phase.flop_per_second), max(highest, peak)
        axis.plot(
            [alone.intensity, loaded.intensity],
            [alone.flop_per_second, loaded.flop_per_second],
            color=colour,
            linewidth=1,
            linestyle=":",
        )
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(_LEAST_INTENSITY, _MOST_INTENSITY)
    axis.set_ylim(0.5 * lowest, 2.5 * highest)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.yaxis.set_major_formatter(lambda value, _: f"{value / 1e12:g}")
    _labels(axis, ends)
    _legend(axis)
    binding = (0.01, "left", "below a slope memory bandwidth binds"), (0.99, "right", "below a flat roof arithmetic")
    for side, align, text in binding:
        axis.annotate(text, (side, 0.98), xycoords="axes fraction", ha=align, va="top", color=_FAINT)
    axis.set_xlabel("arithmetic intensity (FLOP per byte of memory moved)")
    axis.set_ylabel("TFLOP/s of one GPU")
    axis.set_title(_title(plan), loc="left", fontsize=10)
    _finish(plt, figure, axis, path)


def _legend(axis: Any) -> None:
    """What the markers are, in no GPU's colour."""
    for marker, size, text in (
        ("o", 6, "decode, one sequence"),
        ("o", 10, "decode, batch at the expected load"),
        ("^", 10, "prefill of a mean prompt"),
    ):
        axis.plot([], [], marker, color=_FAINT, markersize=size, label=text)
    axis.legend(loc="lower right", frameon=False)
