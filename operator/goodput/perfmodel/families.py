"""Efficiency priors per GPU family: the share of peak bandwidth and FLOP/s that kernels reach, and fixed times.

Derived from kernel timings published with aiconfigurator (see data/ATTRIBUTION.md). They are priors: one correction
per Model, learned from live step times, is laid over them.
"""

from __future__ import annotations

from goodput.domain.values import Value


class Efficiency(Value, frozen=True, kw_only=True):
    """Shares 0..1 of the data sheet's figures, and seconds of communication."""

    weight_bandwidth: float  # of memory bandwidth, reading weights at small batches
    weight_bandwidth_fp8: float
    kv_bandwidth: float  # of memory bandwidth, reading the KV cache
    flops: float  # of dense peak, matrix products of a prefill chunk
    flops_fp8: float
    attention_flops: float  # of dense peak, attention of a prefill chunk
    all_reduce_seconds: float  # fixed part of one all-reduce
    all_reduce_bytes_per_second: float


# Time that a layer and a step cost beside the kernels' own (launches, norms, sampling, scheduling). Fitted to
# published end-to-end points of dense models on H100 at batch 1..8, where kernels alone explain 60-80 %.
LAYER_SECONDS = 25e-6
STEP_SECONDS = 300e-6
SEQUENCE_SECONDS = 5e-6
# HTTP, tokenisation and hand-over between processes before a request is scheduled.
REQUEST_SECONDS = 0.010
# Of the kernel-level prefill efficiency, what whole chunks reach: elementwise work and gaps between kernels.
PREFILL_END_TO_END = 0.85

_FAMILIES: tuple[tuple[tuple[str, ...], Efficiency], ...] = (
    (
        ("h200",),
        Efficiency(
            weight_bandwidth=0.74,
            weight_bandwidth_fp8=0.52,
            kv_bandwidth=0.68,
            flops=0.82,
            flops_fp8=0.64,
            attention_flops=0.50,
            all_reduce_seconds=12e-6,
            all_reduce_bytes_per_second=200e9,
        ),
    ),
    (
        ("h100", "gh200"),
        Efficiency(
            weight_bandwidth=0.80,
            weight_bandwidth_fp8=0.63,
            kv_bandwidth=0.72,
            flops=0.82,
            flops_fp8=0.59,
            attention_flops=0.50,
            all_reduce_seconds=12e-6,
            all_reduce_bytes_per_second=200e9,
        ),
    ),
    (
        ("b200", "b300", "gb200", "gb300"),
        Efficiency(
            weight_bandwidth=0.70,
            weight_bandwidth_fp8=0.36,
            kv_bandwidth=0.70,
            flops=0.68,
            flops_fp8=0.46,
            attention_flops=0.42,
            all_reduce_seconds=20e-6,
            all_reduce_bytes_per_second=300e9,
        ),
    ),
    (
        ("a100", "a30", "a10", "t4"),
        Efficiency(
            weight_bandwidth=0.69,
            weight_bandwidth_fp8=0.69,
            kv_bandwidth=0.67,
            flops=0.82,
            flops_fp8=0.82,
            attention_flops=0.48,
            all_reduce_seconds=15e-6,
            all_reduce_bytes_per_second=120e9,
        ),
    ),
    (
        ("l40", "l4", "rtx-6000-ada"),
        Efficiency(
            weight_bandwidth=0.80,
            weight_bandwidth_fp8=0.67,
            kv_bandwidth=0.72,
            flops=0.63,
            flops_fp8=0.49,
            attention_flops=0.44,
            all_reduce_seconds=40e-6,
            all_reduce_bytes_per_second=12e9,
        ),
    ),
    (
        ("rtx-pro-6000",),
        Efficiency(
            weight_bandwidth=0.80,
            weight_bandwidth_fp8=0.72,
            kv_bandwidth=0.78,
            flops=0.80,
            flops_fp8=0.77,
            attention_flops=0.54,
            all_reduce_seconds=40e-6,
            all_reduce_bytes_per_second=20e9,
        ),
    ),
)
# A part of which no kernel was measured (AMD among them): the lowest of the measured datacentre parts.
_UNKNOWN = Efficiency(
    weight_bandwidth=0.65,
    weight_bandwidth_fp8=0.45,
    kv_bandwidth=0.60,
    flops=0.55,
    flops_fp8=0.45,
    attention_flops=0.35,
    all_reduce_seconds=25e-6,
    all_reduce_bytes_per_second=100e9,
)


def efficiency(gpu_name: str) -> Efficiency:
    """Prior of the family whose name `gpu_name` starts with; a cautious one where none was measured."""
    for prefixes, prior in _FAMILIES:
        if gpu_name.startswith(prefixes):
            return prior
    return _UNKNOWN
