"""Text of what `scripts/calibrate` writes: the constants as JSON, and the errors as a page of documentation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

from benchmarks.calibration import (
    CONSTANTS,
    CORRECTION_BATCHES,
    MOST_TTFT_SECONDS,
    MOST_WEIGHT_SHARE,
    Excluded,
    Measured,
    corrected,
    fit_constants,
    held_out,
    kernels,
    loops,
    split,
    tpot_error,
    ttft_error,
)

from goodput.perfmodel.closedloop import Loop

_FEW = 8
_HEAD = """# Calibration of the time model

Written by `scripts/calibrate` from `benchmarks/data/vllm_points.csv`; do not edit.
TPOT errors are the mean of |predicted / measured - 1| (MAPE), TTFT errors its median. Dense: models without experts.

"""


def texts(
    loaded: tuple[list[Measured], list[Excluded], int],
    start: Mapping[str, float] | None,
    stored: Mapping[str, Mapping[str, float]],
) -> tuple[str, str, str]:
    """(efficiency.json, held_out.json, calibration.md)."""
    points, excluded, duplicates = loaded
    constants = fit_constants(points, start)
    found = loops(points, constants)
    by_model, fits = held_out(points, lambda each: each.point.model, constants, stored)
    by_gpu, gpu_fits = held_out(points, lambda each: each.gpu.name, constants, stored)
    page = _HEAD
    page += _errors(points, {"fitted": found, "leave one model out": by_model, "leave one GPU out": by_gpu})
    page += _corrections(points, {"fitted": found, "leave one model out": by_model, "leave one GPU out": by_gpu})
    page += _ttft(points, {"fitted": found, "leave one model out": by_model})
    page += _groups(points, found, by_model, by_gpu)
    page += _exclusions(excluded, duplicates, len(points))
    page += _constants(constants)
    return _efficiency(constants), _json(fits | gpu_fits), page


def _efficiency(constants: Mapping[str, float]) -> str:
    fitted = {
        each.name: {"value": constants[each.name], "unit": each.unit, "meaning": each.meaning} for each in CONSTANTS
    }
    return _json({"fitted": fitted, "kernels": kernels()})


def _json(value: Any) -> str:
    return json.dumps(value, indent=1) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n\n"


def _percent(value: float) -> str:
    return "-" if isnan(value) else f"{value:.1f}"


def _of(points: Sequence[Measured], found: Sequence[Loop]) -> list[str]:
    """TPOT errors: dense, with experts."""
    cells = []
    for sparse in (False, True):
        chosen, values = split(points, found, sparse=sparse)
        cells.append(_percent(tpot_error(chosen, [each.tpot_seconds for each in values])))
    return cells


def _errors(points: Sequence[Measured], fits: Mapping[str, Sequence[Loop]]) -> str:
    rows = [[name, *_of(points, found)] for name, found in fits.items()]
    return "## TPOT\n\n" + _table(("fit", "dense, %", "experts, %"), rows)


def _corrections(points: Sequence[Measured], fits: Mapping[str, Sequence[Loop]]) -> str:
    batches = ", ".join(str(each) for each in CORRECTION_BATCHES)
    text = (
        "After one correction per replica (model, precision, GPU, parallelism, engine version): the median of\n"
        f"measured over believed TPOT at batch {batches} of one pair of lengths.\n\n"
    )
    rows = []
    for name, found in fits.items():
        applied = {
            "same lengths, all batches": {"over_lengths": False, "learned_from": True},
            "same lengths, batches that it was not learned from": {"over_lengths": False},
            "other lengths": {"over_lengths": True},
        }
        for where, how in applied.items():
            kept, values = corrected(points, found, **how)
            cells = []
            for sparse in (False, True):
                chosen, of = split(kept, values, sparse=sparse)
                cells.append(f"{_percent(tpot_error(chosen, of))} ({len(chosen)})")
            rows.append([name, where, *cells])
    return text + _table(("fit", "applied to", "dense, % (points)", "experts, % (points)"), rows)


def _ttft(points: Sequence[Measured], fits: Mapping[str, Sequence[Loop]]) -> str:
    text = (
        "## TTFT\n\nClosed loop: the loop starts with a burst of all requests at once, whose share of the mean TTFT\n"
        "is a term of its own that no open-loop load has.\n\n"
    )
    rows = []
    for name, found in fits.items():
        few = [(each, loop) for each, loop in zip(points, found, strict=True) if each.point.concurrency <= _FEW]
        share = sum(each.burst_seconds / (each.ttft_seconds + each.burst_seconds) for each in found) / len(found)
        rows.append(
            [
                name,
                _percent(ttft_error([each for each, _ in few], [loop for _, loop in few])),
                _percent(ttft_error(points, found)),
                f"{share:.0%}",
            ]
        )
    return text + _table(("fit", f"batch <= {_FEW}, %", "all, %", "mean share of the burst"), rows)


def _groups(points: Sequence[Measured], found: Sequence[Loop], by_model: Sequence[Loop], by_gpu: Sequence[Loop]) -> str:
    text = "## By model and GPU\n\nTPOT; bias is the mean of predicted / measured - 1 of the fit.\n\n"
    keys = sorted({(each.point.model, each.gpu.name, each.point.precision or "bf16") for each in points})
    rows = []
    for key in keys:
        places = [
            place
            for place, each in enumerate(points)
            if (each.point.model, each.gpu.name, each.point.precision or "bf16") == key
        ]
        chosen = [points[place] for place in places]
        cells = [
            _percent(tpot_error(chosen, [loop[place].tpot_seconds for place in places]))
            for loop in (found, by_model, by_gpu)
        ]
        bias = sum(found[place].tpot_seconds / points[place].tpot_seconds - 1.0 for place in places) / len(places)
        rows.append([*key, str(len(places)), *cells, f"{100 * bias:+.1f}"])
    head = ("model", "GPU", "precision", "points", "fitted, %", "model left out, %", "GPU left out, %", "bias, %")
    return text + _table(head, rows)


def _exclusions(excluded: Sequence[Excluded], duplicates: int, points: int) -> str:
    text = (
        f"## Rows\n\n{points} points; {duplicates} duplicates removed; {len(excluded)} rows excluded by these rules:\n"
        f"TTFT above {MOST_TTFT_SECONDS:.0f} s, weights above {MOST_WEIGHT_SHARE:.0%} of memory, incomplete or not an\n"
        "aggregated replica.\n\n"
    )
    rows = sorted([each.label, each.batch, each.reason] for each in excluded)
    return text + _table(("row", "batch", "rule"), rows)


def _constants(constants: Mapping[str, float]) -> str:
    text = (
        f"## The {len(CONSTANTS)} constants\n\n"
        "Priors are log-normal; spread is that of the logarithm. They and the form\n"
        "of the model were chosen after looking at fits of all points: what is held out above is held out of\n"
        "the fit, not of that choice, and a model or GPU that nobody has seen may be further off.\n\n"
    )
    rows = [
        [
            f"`{each.name}`",
            f"{constants[each.name]:.3g}",
            each.unit,
            f"{each.start:.3g}",
            f"{each.spread:g}",
            each.meaning,
        ]
        for each in CONSTANTS
    ]
    return text + _table(("constant", "value", "unit", "prior", "spread", "meaning"), rows)
