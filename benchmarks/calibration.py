"""Fit of the constants of `goodput.perfmodel.efficiency` to published points of vLLM, and how well they hold elsewhere.

Robust least squares on log ratios of TPOT and TTFT, with a prior on every constant. A constant of which no point
speaks stays at its prior. Priors began as kernel measurements and orders of magnitude and were then moved by hand after
looking at fits of these same points, so errors of what is held out are somewhat better than of what nobody has seen.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, inf, log
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from goodput.domain.architecture import Architecture
from goodput.domain.errors import InvalidObject, ModelDoesNotFit
from goodput.domain.intent import GpuType
from goodput.perfmodel.closedloop import Loop, closed_loop
from goodput.perfmodel.efficiency import from_constants
from goodput.perfmodel.memory import engine_defaults, fit
from goodput.perfmodel.points import (
    UNIFORM_MEAN,
    Point,
    Unpredictable,
    architecture_of,
    gpu_of,
    kv_dtype_of,
    read_point,
)
from goodput.perfmodel.roofline import StepTimes, step_times
from goodput.perfmodel.weights import rank_weights

ROOT = Path(__file__).resolve().parent.parent
POINTS = ROOT / "benchmarks" / "data" / "vllm_points.csv"
KERNELS = ROOT / "operator" / "goodput" / "perfmodel" / "data" / "kernels.json"
MOST_TTFT_SECONDS = 5.0
MOST_WEIGHT_SHARE = 0.9
# Of one standard deviation in the sum of squares: how far a point that the model describes well is off.
_TPOT_SPREAD = 0.05
_TTFT_SPREAD = 0.40
# Batches from whose ratios a correction is learned.
CORRECTION_BATCHES = (8, 32, 64)


@dataclass(frozen=True)
class Constant:
    """Prior of one fitted constant: log-normal round `start`; `limit` is what physics allows."""

    name: str
    start: float
    spread: float
    unit: str
    meaning: str
    limit: float = inf


_SHARE = "of peak"
_OF_FAMILY = "of the family's"
CONSTANTS = (
    Constant("weight_bandwidth.hopper", 0.88, 0.025, _SHARE, "MBU of reading bf16 weights on Hopper", 0.95),
    Constant("weight_bandwidth.blackwell", 0.90, 0.025, _SHARE, "the same on Blackwell", 0.95),
    Constant("weight_bandwidth.fp8", 0.97, 0.025, _OF_FAMILY, "MBU of fp8 weights", 1.1),
    Constant("weight_bandwidth.nvfp4", 0.80, 0.075, _OF_FAMILY, "MBU of nvfp4 weights"),
    Constant("expert_bandwidth", 0.95, 0.05, _OF_FAMILY, "MBU of reading experts", 1.0),
    Constant("kv_bandwidth.hopper", 0.65, 0.05, _SHARE, "MBU of reading KV on Hopper", 0.9),
    Constant("kv_fp8.hopper", 0.60, 0.075, _OF_FAMILY, "of it, what reading fp8 KV keeps on Hopper", 1.0),
    Constant("kv_bandwidth.blackwell", 0.75, 0.05, _SHARE, "the same on Blackwell", 0.9),
    Constant("flops.hopper", 0.58, 0.05, _SHARE, "MFU of bf16 products on Hopper", 0.9),
    Constant("flops.blackwell", 0.52, 0.05, _SHARE, "the same on Blackwell", 0.9),
    Constant("flops.fp8", 0.80, 0.05, _OF_FAMILY, "MFU of fp8 products"),
    Constant("flops.fp8-block", 0.60, 0.15, _OF_FAMILY, "MFU of fp8 products with a scale for each block"),
    Constant("flops.nvfp4", 0.60, 0.15, _OF_FAMILY, "MFU of nvfp4 products"),
    Constant("flops.mxfp4", 0.80, 0.15, _OF_FAMILY, "MFU of mxfp4 products at the fp8 rate", 1.2),
    Constant("flops.weight-only", 0.60, 0.1, _OF_FAMILY, "MFU of products of weights unpacked to bf16"),
    Constant("expert_flops", 0.80, 0.1, "of plain products'", "MFU of grouped products of experts", 1.0),
    Constant("expert_padding_tokens", 16.0, 0.25, "rows", "rows of nothing that fill an expert's last tile"),
    Constant("expert_evenness", 2.0, 0.05, "", "shape of the gamma distribution of the popularity of experts"),
    Constant("expert_copies", 15.0, 0.2, "", "times that a token's vector is moved for each expert that it visits"),
    Constant("attention_flops", 1.0, 0.05, "of kernels'", "MFU of attention in prefill", 1.25),
    Constant("layer_seconds", 55e-6, 0.075, "s", "launches and fixed times of the kernels of a layer"),
    Constant("sparse_layer_seconds", 20e-6, 0.15, "s", "routing and combining in a layer with experts"),
    Constant("block_layer_seconds", 25e-6, 0.2, "s", "what fp8 with a scale for each block adds to a layer"),
    Constant("sequence_seconds", 10e-6, 0.35, "s", "the same for each sequence"),
    Constant("prompt_layer_seconds", 250e-6, 0.075, "s", "least time of a layer in a step with prompts"),
    Constant("prompt_layer_doubling_seconds", 100e-6, 0.15, "s", "what each doubling of tensor ranks adds to that"),
    Constant("sparse_prompt_layer_seconds", 100e-6, 0.2, "s", "what experts add to it"),
    Constant("all_reduce_seconds", 5e-6, 0.25, "s", "latency of an all-reduce of two ranks over a link"),
    Constant("all_reduce_doubling_seconds", 2e-6, 0.35, "s", "what each doubling of ranks adds"),
    Constant("data_parallel_seconds", 2e-3, 0.25, "s", "what ranks of data parallelism wait for each other in a step"),
    Constant("request_seconds", 0.030, 0.15, "s", "HTTP and hand-over of a request"),
    Constant("request_token_seconds", 5e-6, 0.25, "s", "tokenisation of one token of a prompt"),
)


@dataclass(frozen=True)
class Measured:
    """A measured point with what does not change while constants do."""

    point: Point
    arch: Architecture
    gpu: GpuType
    version: str
    mean_length: float  # of the nominal one
    most_running: float
    ttft_seconds: float
    tpot_seconds: float

    @property
    def sparse(self) -> bool:
        """Whether the model has experts."""
        return self.arch.experts > 0

    @property
    def label(self) -> str:
        """The configuration in words."""
        each = self.point
        parts = [f"TP{each.tensor}"]
        parts += [f"DP{each.data}"] if each.data > 1 else []
        parts += ["EP"] if each.expert else []
        precision = each.precision or "bf16"
        return f"{each.model} {precision} {each.system} {' '.join(parts)}"


@dataclass(frozen=True)
class Excluded:
    """Rows left out by one rule."""

    label: str
    batch: str
    reason: str


def load(path: Path = POINTS) -> tuple[list[Measured], list[Excluded], int]:
    """(points, rows excluded by rule, number of duplicates removed)."""
    with path.open(encoding="utf-8") as source:
        rows = list(csv.DictReader(source))
    unique = {tuple(value for name, value in row.items() if name != "measured_on"): row for row in rows}
    points: list[Measured] = []
    excluded: list[Excluded] = []
    for row in unique.values():
        label = " ".join(row[name] for name in ("model_path", "precision", "system")) + f" {row['isl']}/{row['osl']}"
        found = _measured(row)
        if isinstance(found, str):
            excluded.append(Excluded(f"{label} TP{row['tp_size']}", row["batch_size"], found))
        else:
            points.append(found)
    return points, excluded, len(rows) - len(unique)


def _measured(row: Mapping[str, str]) -> Measured | str:
    """The point of a row, or the rule that excludes it."""
    if row["mode"] != "agg":
        return "prefill and decode on separate replicas"
    try:
        point = read_point(row)
        gpu = gpu_of(point.system)
        arch = architecture_of(point.model, point.precision)
    except Unpredictable as reason:
        return str(reason)
    ttft = float(row["ttft_ms"]) / 1e3
    if ttft > MOST_TTFT_SECONDS:
        return f"TTFT above {MOST_TTFT_SECONDS:.0f} s: requests queue for KV cache"
    if rank_weights(arch, point.parallel).total > MOST_WEIGHT_SHARE * gpu.memory_bytes:
        return f"weights above {MOST_WEIGHT_SHARE:.0%} of memory"
    try:
        longest = int(point.input_tokens + point.output_tokens)
        pool = fit(arch, gpu, parallel=point.parallel, kv_dtype=kv_dtype_of(arch, gpu), max_model_len=longest)
        most = max(1.0, pool.sequences(float(longest)))
    except (InvalidObject, ModelDoesNotFit):
        most = inf  # it ran, so it fits somehow
    return Measured(
        point=point,
        arch=arch,
        gpu=gpu,
        version=row["backend_version"],
        # The dated rows are of one public benchmark, which draws lengths from 80 to 100 %; the others are exact.
        mean_length=UNIFORM_MEAN if row["measured_on"] else 1.0,
        most_running=most,
        ttft_seconds=ttft,
        tpot_seconds=float(row["tpot_ms"]) / 1e3,
    )


@cache
def kernels() -> dict[str, Any]:
    """The kernel measurements."""
    loaded: dict[str, Any] = json.loads(KERNELS.read_text(encoding="utf-8"))
    return loaded


def loops(points: Sequence[Measured], constants: Mapping[str, float]) -> list[Loop]:
    """What the model says of each point."""
    reached: dict[str, Any] = {}
    times: dict[tuple[Any, ...], StepTimes] = {}
    results = []
    for each in points:
        point = each.point
        key = (point.model, point.precision, point.system, point.parallel)
        if key not in times:
            if point.system not in reached:
                reached[point.system] = from_constants(
                    each.gpu.name, each.gpu.scale_up_bytes_per_second, kernels(), constants
                )
            times[key] = step_times(
                each.arch,
                each.gpu,
                point.tensor,
                pipeline_parallel=point.pipeline,
                data_parallel=point.data,
                expert_parallel=point.expert,
                kv_dtype=kv_dtype_of(each.arch, each.gpu),
                reached=reached[point.system],
            )
        results.append(
            closed_loop(
                times[key],
                point.concurrency,
                point.input_tokens * each.mean_length,
                point.output_tokens * each.mean_length,
                engine_defaults(each.gpu)[1],
                most_running=each.most_running,
                stages=point.pipeline,
            )
        )
    return results


def fit_constants(points: Sequence[Measured], start: Mapping[str, float] | None = None) -> dict[str, float]:
    """Constants that describe `points` best, from `start` (default: the priors)."""
    spreads = np.array([each.spread for each in CONSTANTS])
    centre = np.array([log(each.start) for each in CONSTANTS])
    limits = np.array([log(each.limit) if each.limit < inf else inf for each in CONSTANTS])
    tpot = np.log([each.tpot_seconds for each in points])
    ttft = np.log([each.ttft_seconds for each in points])

    def residuals(logs: np.ndarray) -> np.ndarray:
        found = loops(points, _named(logs))
        of_tpot = np.log([each.tpot_seconds for each in found]) - tpot
        of_ttft = np.log([each.ttft_seconds + each.burst_seconds for each in found]) - ttft
        return np.concatenate([of_tpot / _TPOT_SPREAD, of_ttft / _TTFT_SPREAD, (logs - centre) / spreads])

    first = centre if start is None else np.array([log(start[each.name]) for each in CONSTANTS])
    solution = least_squares(
        residuals,
        np.minimum(first, limits - 1e-6),
        bounds=(np.full(len(centre), -inf), limits),
        loss="soft_l1",
        x_scale=spreads,
        ftol=1e-5,
        xtol=1e-5,
        max_nfev=40,
    )
    return {name: float(f"{value:.4g}") for name, value in _named(solution.x).items()}


def _named(logs: np.ndarray) -> dict[str, float]:
    return {each.name: exp(value) for each, value in zip(CONSTANTS, logs, strict=True)}


def held_out(
    points: Sequence[Measured],
    group: Callable[[Measured], str],
    start: Mapping[str, float],
    stored: Mapping[str, Mapping[str, float]],
) -> tuple[list[Loop], dict[str, dict[str, float]]]:
    """(what is said of each point by a fit that never saw its group, the constants of these fits).

    A fit starts from the one that was `stored` for its group, else from `start`.
    """
    results: list[Loop | None] = [None] * len(points)
    fits: dict[str, dict[str, float]] = {}
    for name in sorted({group(each) for each in points}):
        fits[name] = fit_constants([each for each in points if group(each) != name], stored.get(name, start))
        places = [place for place, each in enumerate(points) if group(each) == name]
        for place, loop in zip(places, loops([points[place] for place in places], fits[name]), strict=True):
            results[place] = loop
    return [each for each in results if each is not None], fits


def tpot_error(points: Sequence[Measured], found: Sequence[float]) -> float:
    """Mean absolute error of TPOT in per cent (MAPE); NaN of no points."""
    errors = [abs(value / each.tpot_seconds - 1.0) for each, value in zip(points, found, strict=True)]
    return 100.0 * mean(errors) if errors else float("nan")


def ttft_error(points: Sequence[Measured], found: Sequence[Loop]) -> float:
    """Median absolute error of TTFT in per cent, the burst's part included."""
    totals = [each.ttft_seconds + each.burst_seconds for each in found]
    return 100.0 * median(abs(value / each.ttft_seconds - 1.0) for each, value in zip(points, totals, strict=True))


def corrected(
    points: Sequence[Measured], found: Sequence[Loop], *, over_lengths: bool, learned_from: bool = False
) -> tuple[list[Measured], list[float]]:
    """(points, their TPOT after the correction of their replica); those learned from only with `learned_from`.

    A replica is (model, precision, GPU, parallelism, engine version). Its correction is the median of measured over
    believed TPOT at batches 8, 32 and 64 of one pair of lengths, and is applied to the other points of these lengths,
    or with `over_lengths` to those of other lengths.
    """
    ratios: dict[tuple[Any, ...], list[float]] = {}
    for each, loop in zip(points, found, strict=True):
        if each.point.concurrency in CORRECTION_BATCHES:
            ratios.setdefault(_lengths(each), []).append(each.tpot_seconds / loop.tpot_seconds)
    learned = {key: median(values) for key, values in ratios.items() if len(values) >= len(CORRECTION_BATCHES)}
    kept: list[Measured] = []
    values: list[float] = []
    for each, loop in zip(points, found, strict=True):
        own = _lengths(each)
        if over_lengths:
            others = [value for key, value in learned.items() if key[0] == own[0] and key != own]
        else:
            counts = learned_from or each.point.concurrency not in CORRECTION_BATCHES
            others = [learned[own]] if own in learned and counts else []
        for ratio in others:
            kept.append(each)
            values.append(loop.tpot_seconds * ratio)
    return kept, values


def _lengths(each: Measured) -> tuple[Any, ...]:
    point = each.point
    replica = (point.model, point.precision, point.system, point.parallel, each.version)
    return replica, point.input_tokens, point.output_tokens


def split(points: Sequence[Measured], found: Iterable[Any], *, sparse: bool) -> tuple[list[Measured], list[Any]]:
    """Only the points of models with experts, or without."""
    pairs = [(each, value) for each, value in zip(points, found, strict=True) if each.sparse == sparse]
    return [each for each, _ in pairs], [value for _, value in pairs]
