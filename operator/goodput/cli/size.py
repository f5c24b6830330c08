"""`size`: what a model takes of memory, and on which GPUs it fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import click

from goodput.cli.flags import complete_model, files_option, gpu_type_option, output_option
from goodput.cli.output import emit, say, show, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from goodput.domain.architecture import Architecture
    from goodput.domain.intent import GpuType
    from goodput.perfmodel import KvPool

_DEGREES = (1, 2, 4, 8, 16)
_COLUMNS = (
    "gpu type",
    "memory",
    "tp",
    "weights",
    "kv cache",
    "kv tokens",
    "longest request",
    "at once",
    "per card",
    "why no fewer",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The smallest replica of one GPU type that holds what was asked; `pool` None: none does, `why` says why."""

    gpu: GpuType
    tensor_parallel: int
    pool: KvPool | None
    at_once: float  # requests of the context asked for
    per_card: float  # replicas on one card: several slices, or a part of a replica
    why: str  # the next smaller one does not do, or none does


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """One model: its parts in bytes, and where it fits."""

    arch: Architecture
    kv_dtype: str
    batch: int
    context: int
    kv_bytes_per_token: float  # of a long sequence, not divided over GPUs
    window_bytes_per_token: float  # of a token that every window still holds
    kv_bytes: int  # of `batch` sequences of `context` tokens
    places: tuple[Place, ...]


@click.command(
    epilog="""\b
Examples:
  kubectl goodput size meta-llama/Llama-3.1-8B-Instruct
  kubectl goodput size meta-llama/Llama-3.1-70B-Instruct --batch 32 --context 8192 --gpu-type 'h100*'
  kubectl goodput size Qwen/Qwen3-32B --precision int4 --kv-cache-dtype fp8 --mig
  kubectl goodput size -f config.json -o json
"""
)
@click.argument("model", required=False, metavar="[MODEL]", shell_complete=complete_model)
@files_option(required=False)
@click.option("--batch", type=click.IntRange(1, 1_000_000), default=1, show_default=True, help="Sequences at once.")
@click.option(
    "--context",
    type=click.IntRange(1, 100_000_000),
    help="Tokens of each, input and output.",
)
@gpu_type_option
@click.option("--mig", is_flag=True, help="Also slices of GPUs (MIG profiles).")
@click.option("--tp", type=click.IntRange(1, 64), help="Tensor parallelism. Unset: the smallest that fits.")
@click.option("--kv-cache-dtype", default="auto", show_default=True, help="As the engine takes it: auto, fp8, ...")
@click.option("--precision", help="As if the checkpoint stored weights in fp8, int8, int4, nvfp4 or mxfp4.")
@output_option
def size(
    *,
    model: str | None,
    files: tuple[TextIO, ...],
    batch: int,
    context: int | None,
    patterns: tuple[str, ...],
    mig: bool,
    tp: int | None,
    kv_cache_dtype: str,
    precision: str | None,
    output: str,
) -> None:
    """Tell what MODEL takes of memory, and on which GPUs so many requests of so many tokens fit.

    MODEL is a Hugging Face id of the built-in catalogue; for any other give its config.json, or a manifest with the
    Model, with -f. Everything is counted as vLLM counts it: weights, activations and CUDA graphs first, and what they
    leave of 92 % of a GPU's memory is the KV cache.
    """
    from goodput.cli import models

    if bool(model) == bool(files):
        raise click.UsageError("say what to size: the hub id of a model, or its config.json with -f")
    found = [models.named(model)] if model else models.read(files)
    sized = [
        _sized(
            arch,
            patterns,
            mig=mig,
            batch=batch,
            context=context,
            tp=tp,
            kv_dtype=kv_cache_dtype.lower(),
            precision=precision,
        )
        for arch in found
    ]
    if output != "table":
        emit([_as_json(each) for each in sized], output)
        return
    for index, each in enumerate(sized):
        if index:
            click.echo("")
        _show(each)


def _sized(
    arch: Architecture,
    patterns: Sequence[str],
    *,
    mig: bool,
    batch: int,
    context: int | None,
    tp: int | None,
    kv_dtype: str,
    precision: str | None,
) -> Sized:
    from goodput.domain.errors import InvalidObject
    from goodput.perfmodel.kvcache import KvSettings, plan_kv
    from goodput.perfmodel.precision import with_precision
    from goodput.perfmodel.weights import Parallel, cannot_split

    kv_dtype = kv_dtype.lower()
    tokens = context if context is not None else min(4096, arch.max_model_len)
    if tokens > arch.max_model_len:
        raise click.ClickException(f"--context: {tokens} is more than the {arch.max_model_len} tokens of {arch.name}")
    try:
        if precision is not None:
            arch = with_precision(arch, precision.lower())
        plan = plan_kv(arch, KvSettings(kv_dtype=kv_dtype))
    except InvalidObject as error:
        flag = "--precision" if error.field.endswith("weights") else "--kv-cache-dtype"
        raise click.ClickException(f"{flag}: {error.message}") from error
    refused = None if tp is None else cannot_split(arch, Parallel(tensor=tp))
    if refused is not None:
        raise click.ClickException(f"--tp: {refused[1]} ({arch.name})")
    far = 1 << 30
    return Sized(
        arch=arch,
        kv_dtype=kv_dtype,
        batch=batch,
        context=tokens,
        kv_bytes_per_token=plan.block_bytes * (plan.held_blocks(2.0 * far) - plan.held_blocks(float(far))) / far,
        window_bytes_per_token=plan.block_bytes * (plan.held_blocks(1.0) - plan.held_blocks(0.0)),
        kv_bytes=batch * plan.block_bytes * plan.blocks_per_request(tokens),
        places=tuple(_place(arch, gpu, batch, tokens, tp=tp, kv_dtype=kv_dtype) for gpu in _types(patterns, mig)),
    )


def _types(patterns: Sequence[str], mig: bool) -> list[GpuType]:
    from goodput.cli.gputypes import matching
    from goodput.perfmodel import built_in_gpu_types

    types = built_in_gpu_types()
    return matching(types, patterns, mig=mig) if patterns else [gpu for gpu in types if mig or not gpu.slice_of]


def _place(arch: Architecture, gpu: GpuType, batch: int, tokens: int, *, tp: int | None, kv_dtype: str) -> Place:
    from goodput.domain.errors import ModelDoesNotFit
    from goodput.perfmodel.precision import cannot_keep, cannot_run
    from goodput.perfmodel.weights import Parallel, cannot_split

    degrees = (tp,) if tp else tuple(degree for degree in _DEGREES if degree <= gpu.gpus_per_node)
    why = cannot_run(arch.precision, gpu) or cannot_keep(kv_dtype, gpu)
    if why:
        return Place(gpu=gpu, tensor_parallel=degrees[0], pool=None, at_once=0.0, per_card=0.0, why=why)
    last = Place(gpu=gpu, tensor_parallel=degrees[-1], pool=None, at_once=0.0, per_card=0.0, why="")
    short = ""  # what the largest degree that can be cut lacks
    for degree in degrees:
        refused = cannot_split(arch, Parallel(tensor=degree))
        if refused is not None:
            why = f"{short}; {refused[1]}" if short else refused[1]
            continue
        if degree > gpu.gpus_per_node:
            why = f"a node of {gpu.name} has {gpu.gpus_per_node} GPU{'' if gpu.gpus_per_node == 1 else 's'}"
            continue
        try:
            pool = _fit(arch, gpu, degree, tokens, kv_dtype)
        except ModelDoesNotFit as error:
            why = short = _short(str(error), degree)
            continue
        at_once = pool.sequences(float(tokens)) if pool.max_model_len >= tokens else 0.0
        last = Place(
            gpu=gpu, tensor_parallel=degree, pool=pool, at_once=at_once, per_card=_per_card(gpu) / degree, why=why
        )
        if int(at_once) >= batch:
            return last
        holds = f"{int(at_once)} of {batch} sequences" if at_once else f"a request of {pool.max_model_len} tokens"
        why = short = f"TP {degree}: the KV cache holds {holds}"
    return Place(gpu=gpu, tensor_parallel=last.tensor_parallel, pool=None, at_once=0.0, per_card=0.0, why=why)


def _fit(arch: Architecture, gpu: GpuType, degree: int, tokens: int, kv_dtype: str) -> KvPool:
    """What fits beside requests of at least `tokens`; the operator itself asks for room for 4,096."""
    from goodput.domain.errors import ModelDoesNotFit
    from goodput.perfmodel import fit

    try:
        return fit(arch, gpu, degree, kv_dtype=kv_dtype)
    except ModelDoesNotFit as error:
        if error.part != "kv-cache":
            raise
        return fit(arch, gpu, degree, kv_dtype=kv_dtype, max_model_len=tokens)


def _per_card(gpu: GpuType) -> int:
    from goodput.perfmodel.gpus import gpu_type, slices_per_card

    card = gpu_type(gpu.slice_of) if gpu.slice_of else None
    return slices_per_card(gpu, card) if card is not None else 1


def _short(message: str, degree: int) -> str:
    """Without what the row says already: the model and the GPU type."""
    return f"TP {degree}: {message.partition('): ')[2] or message}".partition(";")[0]


def _show(sized: Sized) -> None:
    say(_told(sized))
    click.echo("")
    rows = [_row(place) for place in sorted(sized.places, key=lambda place: (place.pool is None, place.gpu.name))]
    show(table(_COLUMNS, rows))


def _told(sized: Sized) -> Iterator[str]:
    from goodput.cli.figures import count, gib
    from goodput.perfmodel.config_towers import towers_remark

    arch = sized.arch
    active = f", {arch.active_parameters / 1e9:.3g}B of them for a token" if arch.experts else ""
    yield f"{arch.name}: {arch.parameters / 1e9:.3g}B parameters{active}, {arch.layers} layers"
    stored = f"{arch.weight_bytes_per_parameter:.2g} bytes a parameter" if arch.precision != "bf16" else "bf16"
    yield f"  Weights        {gib(arch.weight_bytes)} ({arch.precision}, {stored})".replace("(bf16, bf16)", "(bf16)")
    if remark := towers_remark(arch):
        yield f"                 {remark}"
    windows = {kept.window_tokens for kept in arch.kv_layers if kept.window_tokens}
    recent = (
        f"; {count(sized.window_bytes_per_token)} each of the last {count(max(windows))}" if len(windows) == 1 else ""
    )
    yield f"  KV cache       {count(sized.kv_bytes_per_token)} bytes a token ({gib(sized.kv_bytes_per_token)}){recent}"
    sequences = f"{sized.batch} sequence{'' if sized.batch == 1 else 's'} of {count(sized.context)} tokens"
    yield f"                 {count(sized.kv_bytes)} bytes for {sequences} ({gib(sized.kv_bytes)})"
    yield f"  Longest        {count(arch.max_model_len)} tokens"


def _row(place: Place) -> list[Any]:
    from goodput.cli.figures import count, gib

    memory = gib(place.gpu.memory_bytes)
    if place.pool is None:
        return [place.gpu.name, memory, *[None] * 7, f"does not fit: {place.why}"]
    pool = place.pool
    return [
        place.gpu.name,
        memory,
        place.tensor_parallel,
        gib(pool.weight_bytes),
        gib(pool.pool_bytes),
        count(pool.tokens),
        count(pool.max_model_len),
        count(int(place.at_once)),
        f"{place.per_card:.0f}" if place.per_card >= 1.0 else f"1/{1.0 / place.per_card:.0f}",
        place.why,
    ]


def _as_json(sized: Sized) -> dict[str, Any]:
    arch = sized.arch
    return {
        "model": arch.name,
        "parameters": round(arch.parameters),
        "activeParameters": round(arch.active_parameters),
        "precision": arch.precision,
        "weightBytes": round(arch.weight_bytes),
        "notCounted": list(arch.unsized_towers),
        "kvCacheDtype": sized.kv_dtype,
        "kvBytesPerToken": round(sized.kv_bytes_per_token),
        "kvBytesPerTokenInWindow": round(sized.window_bytes_per_token),
        "batch": sized.batch,
        "context": sized.context,
        "kvBytes": sized.kv_bytes,
        "maxModelLen": arch.max_model_len,
        "gpuTypes": [
            {
                "name": place.gpu.name,
                "memoryBytes": round(place.gpu.memory_bytes),
                "fits": place.pool is not None,
                "why": place.why or None,
                "tensorParallel": place.tensor_parallel if place.pool else None,
                "weightBytesPerGpu": round(place.pool.weight_bytes) if place.pool else None,
                "kvPoolBytesPerGpu": round(place.pool.pool_bytes) if place.pool else None,
                "kvTokens": place.pool.tokens if place.pool else None,
                "maxModelLen": place.pool.max_model_len if place.pool else None,
                "replicasPerCard": place.per_card if place.pool else None,
                "sequencesAtOnce": int(place.at_once) if place.pool else None,
            }
            for place in sized.places
        ],
    }
