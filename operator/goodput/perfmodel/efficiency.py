"""Share of the data sheet that the engine reaches, by GPU family and precision, and the times that no roof explains.

The constants are fitted to published end-to-end points by `scripts/calibrate` and read from `data/efficiency.json`,
which also holds the kernel measurements that they start from. A family without points keeps its kernel measurements
times what the measured families keep of theirs: kernels differ by family, what an engine loses between them hardly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from math import exp, log
from typing import Any

from goodput.domain.values import Value

# Families by how a catalogue name starts, the longest start first; Grace boards carry their GPU's family.
_STARTS = (
    ("rtx-pro-", "blackwell-rtx"),
    ("rtx-6000-ada", "ada"),
    ("h100", "hopper"),
    ("h200", "hopper"),
    ("h800", "hopper"),
    ("h20", "hopper"),
    ("gh200", "hopper"),
    ("b100", "blackwell"),
    ("b200", "blackwell"),
    ("b300", "blackwell"),
    ("gb200", "blackwell"),
    ("gb300", "blackwell"),
    ("a100", "ampere"),
    ("a800", "ampere"),
    ("a30", "ampere"),
    ("a10", "ampere"),
    ("l40", "ada"),
    ("l4", "ada"),
    ("t4", "turing"),
)
OTHER = "other"
# fp8 with one scale for each block of 128 x 128 weights: products of few rows are far slower than with one scale.
BLOCK_FP8 = "fp8-block"
# Any format that is unpacked to bf16 before it is multiplied.
WEIGHT_ONLY = "weight-only"
# A GPU that sends this much to each neighbour has a link of its own (NVLink, Infinity Fabric), not PCIe alone.
_LEAST_LINK_BYTES_PER_SECOND = 100e9
# What a family without points is believed to reach of a peak at most: what its own kernels do at their best.
_MOST_SHARE = 0.9
_WITHOUT_LINK = frozenset({"ada", "turing", "blackwell-rtx"})


class Efficiency(Value, frozen=True, kw_only=True):
    """What one GPU type reaches: shares (0..1) of its peaks, and seconds.

    A peak is the data sheet's dense figure at the precision that multiplies; shares by precision are of weights as
    they are stored.
    """

    weight_bandwidth: tuple[tuple[str, float], ...]  # reading weights, by precision
    kv_bandwidth: float  # reading the KV cache in decode
    kv_bandwidth_fp8: float  # the same where it is stored in fp8: some families convert slower than they read
    flops: tuple[tuple[str, float], ...]  # matrix products of a prefill chunk, by precision
    attention_flops: float  # attention of a prefill chunk
    expert_bandwidth: float  # reading experts, whose grouped products read at any precision alike
    expert_flops: float  # of flops, what grouped products of experts keep
    expert_padding_tokens: float  # rows of a tile that an expert multiplies with nothing
    expert_evenness: float  # shape of the gamma distribution of their popularity
    expert_copies: float  # times that a token's vector is read or written for each expert that it visits
    layer_seconds: float  # launches and small kernels of a layer
    sparse_layer_seconds: float  # what routing, permuting and combining add in a layer with experts
    block_layer_seconds: float  # what fp8 with a scale for each block adds to a layer
    step_seconds: float  # scheduling and sampling of a step
    sequence_seconds: float  # the same for each sequence of the step
    prompt_layer_seconds: float  # least time of a layer in a step with prompts: the host launches kernel by kernel
    prompt_layer_doubling_seconds: float  # what each doubling of tensor ranks adds: all wait for the slowest host
    sparse_prompt_layer_seconds: float  # what experts add to that
    all_reduce_seconds: float  # latency of one all-reduce between two ranks
    all_reduce_doubling_seconds: float  # what each doubling of ranks adds
    all_reduce_bytes_per_second: float
    hand_over_seconds: float  # from one pipeline stage to the next
    data_parallel_seconds: float  # what ranks of data parallelism wait for each other in a step
    request_seconds: float  # HTTP and hand-over before a request is scheduled, and back
    request_token_seconds: float  # the same for each token of the prompt: tokenisation and parsing on the host


def family(gpu_name: str) -> str:
    """Family of kernels of a catalogue name: ampere, ada, hopper, blackwell, blackwell-rtx, turing or other."""
    lowered = gpu_name.lower()
    for start, name in _STARTS:
        if lowered.startswith(start):
            return name
    return OTHER


def share_of(table: tuple[tuple[str, float], ...], name: str) -> float:
    """Value of `name` in a short table. Raises `KeyError`."""
    for key, value in table:
        if key == name:
            return value
    raise KeyError(name)


def experts_touched(share: float, tokens: float, evenness: float) -> float:
    """Share (0..1) of the experts that `tokens` tokens touch, of which each visits `share`.

    E*(1-(1-k/E)^t) of E experts, were all equally popular. Popularity that is gamma-distributed with shape a leaves
    (1+x*t)^-a of them untouched, where x is such that one token visits k.
    """
    if share >= 1.0:
        return min(1.0, tokens)
    visits = (1.0 - share) ** (-1.0 / evenness) - 1.0
    untouched: float = (1.0 + visits * tokens) ** -evenness
    return 1.0 - untouched


@cache
def constants() -> dict[str, Any]:
    """The package's data/efficiency.json."""
    text = files("goodput.perfmodel").joinpath("data", "efficiency.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@lru_cache(maxsize=256)
def efficiency(gpu_name: str, scale_up_bytes_per_second: float | None = None) -> Efficiency:
    """Prior of a GPU type, and of its links if their speed is known; of an unknown one, the family `other`."""
    data = constants()
    fitted = {name: entry["value"] for name, entry in data["fitted"].items()}
    return from_constants(gpu_name, scale_up_bytes_per_second, data["kernels"], fitted)


def from_constants(
    gpu_name: str, scale_up_bytes_per_second: float | None, kernels: Mapping[str, Any], fitted: Mapping[str, float]
) -> Efficiency:
    """Efficiency of a GPU type from kernel measurements by family and the fitted constants by name."""
    name = family(gpu_name)
    known = kernels["families"][name]
    bandwidth = _of_family("weight_bandwidth", name, kernels, fitted)
    flops = _of_family("flops", name, kernels, fitted)
    formats = sorted(kernels["formats"].items())
    linked = (
        scale_up_bytes_per_second >= _LEAST_LINK_BYTES_PER_SECOND
        if scale_up_bytes_per_second is not None
        else name not in _WITHOUT_LINK
    )
    measured = kernels["links"]["link"]
    link = kernels["links"]["link" if linked else "pcie"]
    # A link without points keeps its measured times, times what an engine makes of those of the other.
    latency = fitted["all_reduce_seconds"] / measured["all_reduce_seconds"]
    doubling = fitted["all_reduce_doubling_seconds"] / measured["all_reduce_doubling_seconds"]
    rate = scale_up_bytes_per_second or link["bytes_per_second"]
    kv = _of_family("kv_bandwidth", name, kernels, fitted)
    return Efficiency(
        weight_bandwidth=tuple(
            (key, bandwidth * fitted.get(f"weight_bandwidth.{key}", entry["bandwidth"])) for key, entry in formats
        ),
        kv_bandwidth=kv,
        kv_bandwidth_fp8=kv * fitted.get(f"kv_fp8.{name}", known["kv_fp8"]),
        flops=tuple((key, flops * fitted.get(f"flops.{key}", entry["flops"])) for key, entry in formats),
        attention_flops=known["attention_flops"] * fitted["attention_flops"],
        expert_bandwidth=bandwidth * fitted["expert_bandwidth"],
        expert_flops=fitted["expert_flops"],
        expert_padding_tokens=fitted["expert_padding_tokens"],
        expert_evenness=fitted["expert_evenness"],
        expert_copies=fitted["expert_copies"],
        layer_seconds=fitted["layer_seconds"],
        sparse_layer_seconds=fitted["sparse_layer_seconds"],
        block_layer_seconds=fitted["block_layer_seconds"],
        step_seconds=kernels["step_seconds"],
        sequence_seconds=fitted["sequence_seconds"],
        prompt_layer_seconds=fitted["prompt_layer_seconds"],
        prompt_layer_doubling_seconds=fitted["prompt_layer_doubling_seconds"],
        sparse_prompt_layer_seconds=fitted["sparse_prompt_layer_seconds"],
        all_reduce_seconds=link["all_reduce_seconds"] * latency,
        all_reduce_doubling_seconds=link["all_reduce_doubling_seconds"] * doubling,
        all_reduce_bytes_per_second=rate * link["share"],
        hand_over_seconds=kernels["hand_over_seconds"],
        data_parallel_seconds=fitted["data_parallel_seconds"],
        request_seconds=fitted["request_seconds"],
        request_token_seconds=fitted["request_token_seconds"],
    )


def _of_family(what: str, name: str, kernels: Mapping[str, Any], fitted: Mapping[str, float]) -> float:
    """The fitted share of a family with points; else its kernels' share times what those families keep of theirs."""
    families = kernels["families"]
    own = fitted.get(f"{what}.{name}")
    if own is not None:
        return own
    fitted_families = [key for key in families if f"{what}.{key}" in fitted]
    kept = [log(fitted[f"{what}.{key}"] / families[key][what]) for key in fitted_families]
    share: float = families[name][what] * exp(sum(kept) / len(kept))
    return min(_MOST_SHARE, share)
