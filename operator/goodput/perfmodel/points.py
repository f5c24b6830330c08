"""Benchmark points: rows of a table, what they mean, and what the model predicts for them.

A row names a model, a GPU type, precision and parallelism, nominal lengths, and the requests kept in flight
(`batch_size`). What cannot be predicted is answered with a reason, not with a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import isfinite

from msgspec.structs import replace

from goodput.domain.architecture import Architecture
from goodput.domain.errors import InvalidObject, ModelDoesNotFit
from goodput.domain.intent import GpuType
from goodput.domain.values import Value
from goodput.perfmodel.catalogue import architecture
from goodput.perfmodel.closedloop import closed_loop
from goodput.perfmodel.gpus import built_in_gpu_types, gpu_type, whole_cards
from goodput.perfmodel.memory import engine_defaults, fit
from goodput.perfmodel.precision import with_precision
from goodput.perfmodel.roofline import StepTimes, step_times
from goodput.perfmodel.weights import Parallel, cannot_split

COLUMNS = (
    "model_path",
    "system",
    "precision",
    "tp_size",
    "pp_size",
    "attention_dp_size",
    "moe_ep_size",
    "isl",
    "osl",
    "batch_size",
)
RESULTS = ("ttft_ms", "ttft_queue_ms", "tpot_ms", "tokens_per_second_per_gpu", "reason")
# Benchmarks that draw lengths uniformly from 80 to 100 % of the nominal one have this mean of it.
UNIFORM_MEAN = 0.9
# Precisions by the names that tables of benchmarks use; empty: as the checkpoint is stored.
_PRECISIONS = {
    "": "",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp16": "bf16",
    "float16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8",
    "int8": "int8",
    "int4": "int4",
    "awq": "int4",
    "gptq": "int4",
    "w4a16": "int4",
    "fp4": "nvfp4",
    "nvfp4": "nvfp4",
    "mxfp4": "mxfp4",
}
# Columns that say a degree of `Parallel`.
_DEGREES = {"tensor": "tp_size", "pipeline": "pp_size"}
_FOUR_BITS = frozenset({"nvfp4", "mxfp4", "int4"})
_MOST = 10**7
_MOST_RANKS = 1024


class Point(Value, frozen=True, kw_only=True):
    """One configuration under a closed loop; lengths are nominal tokens."""

    model: str
    system: str
    precision: str
    tensor: int
    pipeline: int
    data: int
    expert: bool
    input_tokens: float
    output_tokens: float
    concurrency: float

    @property
    def parallel(self) -> Parallel:
        """Parallelism of the replica."""
        return Parallel(tensor=self.tensor, pipeline=self.pipeline, data=self.data, expert=self.expert)


class Prediction(Value, frozen=True, kw_only=True):
    """Mean times of a request in seconds, and output tokens per second of one GPU."""

    ttft_seconds: float  # the burst's part included
    burst_seconds: float
    tpot_seconds: float
    tokens_per_second_per_gpu: float


class Unpredictable(ValueError):
    """A row that has no prediction; the message names the column and says why."""


def read_point(row: Mapping[str, str]) -> Point:
    """The point that a row describes. Raises `Unpredictable` that names the column.

    Where `tp_size` equals an `attention_dp_size` above 1 both speak of the same GPUs: attention is data-parallel over
    them, experts are spread over all. (The sequences that fit the KV cache of published runs tell so.)
    """
    tensor, data = _degree(row, "tp_size"), _degree(row, "attention_dp_size")
    if data > 1 and tensor == data:
        tensor = 1
    precision = (row.get("precision") or "").strip().lower()
    if precision not in _PRECISIONS:
        raise Unpredictable(f"precision: {precision!r} is not known")
    return Point(
        model=(row.get("model_path") or "").strip(),
        system=(row.get("system") or "").strip(),
        precision=_PRECISIONS[precision],
        tensor=tensor,
        pipeline=_degree(row, "pp_size"),
        data=data,
        expert=_degree(row, "moe_ep_size") > 1,
        input_tokens=_count(row, "isl"),
        output_tokens=_count(row, "osl"),
        concurrency=_count(row, "batch_size"),
    )


def _degree(row: Mapping[str, str], name: str) -> int:
    """Ranks of a kind of parallelism; 1 where the table leaves it empty or 0."""
    if str(row.get(name) or "").strip() in ("", "0"):
        return 1
    return _count(row, name, _MOST_RANKS)


def _count(row: Mapping[str, str], name: str, most: int = _MOST) -> int:
    text = str(row.get(name) or "").strip()
    if not text:
        raise Unpredictable(f"{name}: is missing")
    try:
        value = float(text)
    except ValueError:
        raise Unpredictable(f"{name}: {text!r} is not a number") from None
    if not isfinite(value) or value != int(value) or not 0 < value <= most:
        raise Unpredictable(f"{name}: {text!r} is not a whole number from 1 to {most:,}")
    return int(value)


@lru_cache(maxsize=256)
def gpu_of(system: str) -> GpuType:
    """Built-in GPU type of a benchmark's name (`h100_sxm`, `b200_sxm`, `l40s`). Raises `Unpredictable`."""
    name = system.strip().lower().replace("_", "-").replace(" ", "-")
    for wanted in (name, name.removesuffix("-sxm")):
        found = gpu_type(wanted)
        if found is not None:
            return found
    whole = whole_cards(built_in_gpu_types())
    start, _, form = name.partition("-")
    alike = [gpu for gpu in whole if gpu.name.startswith(f"{start}-") and gpu.name.endswith(form)]
    if name and not form and len({gpu.name for gpu in alike}) > 1:
        known = ", ".join(sorted(gpu.name for gpu in alike))
        raise Unpredictable(f"system: {system!r} may be any of {known}")
    if name and alike:
        return max(alike, key=lambda gpu: gpu.memory_bytes)
    raise Unpredictable(f"system: {system!r} is no built-in GPU type")


@lru_cache(maxsize=512)
def architecture_of(model: str, precision: str) -> Architecture:
    """Architecture of a hub id whose weights are stored in `precision`; empty: as the checkpoint has them.

    A published checkpoint of that precision is taken before what re-quantising all layers would give.
    Raises `Unpredictable`.
    """
    found = architecture(model)
    if found is None:
        raise Unpredictable(f"model_path: {model!r} is not in the catalogue")
    stored = found.precision
    if not precision or stored == precision or {stored, precision} <= _FOUR_BITS:
        return found
    ending = {"nvfp4": "NVFP4", "fp8": "FP8"}.get(precision)
    published = architecture(f"nvidia/{model.rpartition('/')[2]}-{ending}") if ending else None
    if published is not None:
        return published
    try:
        return with_precision(found, precision)
    except InvalidObject as invalid:
        raise Unpredictable(f"precision: {invalid.message}") from None


def kv_dtype_of(arch: Architecture, gpu: GpuType) -> str:
    """KV precision that benchmarks of quantised checkpoints are run with: fp8, but for experts on older parts."""
    if arch.precision == "bf16" or "fp8" not in dict(gpu.flops):
        return "auto"
    return "fp8" if not arch.experts or "fp4" in dict(gpu.flops) else "auto"


@lru_cache(maxsize=4096)
def _replica(
    model: str, system: str, precision: str, parallel: Parallel, max_model_len: int
) -> tuple[StepTimes, float, int]:
    """(step times, tokens of KV cache that one token of context is counted by, chunk) of a configuration."""
    gpu, arch = gpu_of(system), architecture_of(model, precision)
    # A run that was published has been loaded: experts that no engine cuts so finely were whole, whatever it says.
    whole = replace(parallel, expert=True)
    refused = cannot_split(arch, whole)
    if refused is not None:
        raise Unpredictable(f"{_DEGREES[refused[0]]}: {refused[1]}")
    kv_dtype = kv_dtype_of(arch, gpu)
    held = parallel if cannot_split(arch, parallel) is None else whole
    pool = fit(arch, gpu, parallel=held, kv_dtype=kv_dtype, max_model_len=max_model_len)
    times = step_times(
        arch,
        gpu,
        parallel.tensor,
        pipeline_parallel=parallel.pipeline,
        data_parallel=parallel.data,
        expert_parallel=bool(parallel.expert),
        kv_dtype=kv_dtype,
    )
    return times, pool.sequences(float(max_model_len)), engine_defaults(gpu)[1]


def predict(point: Point, *, mean_length: float = 1.0) -> Prediction:
    """TTFT, TPOT and throughput of `point`; actual lengths are on average `mean_length` of the nominal ones.

    Raises `Unpredictable` for a model, GPU type or precision that is not known, a parallelism that does not exist, a
    request longer than the model's, or where it does not fit.
    """
    longest = int(point.input_tokens + point.output_tokens)
    most = architecture_of(point.model, point.precision).max_model_len
    if longest > most:
        raise Unpredictable(f"isl: {longest} tokens in and out are more than the {most} of {point.model}")
    try:
        times, sequences, chunk_tokens = _replica(point.model, point.system, point.precision, point.parallel, longest)
    except ModelDoesNotFit as failure:
        raise Unpredictable(f"{'precision' if failure.part == 'precision' else 'tp_size'}: {failure}") from None
    # No request is shorter than a token either way.
    tokens_in, tokens_out = (max(1.0, tokens * mean_length) for tokens in (point.input_tokens, point.output_tokens))
    loop = closed_loop(
        times,
        point.concurrency,
        tokens_in,
        tokens_out,
        chunk_tokens,
        most_running=max(1.0, sequences),
        stages=point.pipeline,
    )
    return Prediction(
        ttft_seconds=loop.ttft_seconds + loop.burst_seconds,
        burst_seconds=loop.burst_seconds,
        # The engine counts 0 for requests of one token.
        tpot_seconds=loop.tpot_seconds if tokens_out > 1.0 else 0.0,
        tokens_per_second_per_gpu=loop.requests_per_second * tokens_out / point.parallel.gpus,
    )


def predict_rows(rows: Iterable[Mapping[str, str]], *, mean_length: float = UNIFORM_MEAN) -> list[dict[str, str]]:
    """The same rows in order, each with `RESULTS`: milliseconds as text, or empty with a reason."""
    answers = []
    for row in rows:
        answer = dict(row) | dict.fromkeys(RESULTS, "")
        try:
            found = predict(read_point(row), mean_length=mean_length)
        except Unpredictable as reason:
            answer["reason"] = str(reason)
        else:
            answer["ttft_ms"] = f"{found.ttft_seconds * 1e3:.2f}"
            answer["ttft_queue_ms"] = f"{found.burst_seconds * 1e3:.2f}"
            answer["tpot_ms"] = f"{found.tpot_seconds * 1e3:.3f}"
            answer["tokens_per_second_per_gpu"] = f"{found.tokens_per_second_per_gpu:.1f}"
        answers.append(answer)
    return answers
