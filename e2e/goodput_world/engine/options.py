"""From flags to settings: the rules that vLLM checks after parsing, and its defaults by hardware."""

from __future__ import annotations

import argparse
import itertools
import math
from dataclasses import dataclass
from typing import Any

HISTOGRAM_FAMILIES = (
    "request_latency",
    "time_to_first_token",
    "inter_token_latency",
    "iteration_tokens",
    "request_params_n",
    "request_num_preemptions",
    "request_tokens",
    "kv_cache_residency",
)
KV_TRANSFER_KEYS = frozenset(
    {
        "kv_connector",
        "engine_id",
        "kv_buffer_device",
        "kv_role",
        "kv_port",
        "kv_connector_extra_config",
        "kv_connector_module_path",
        "enable_permute_local_kv",
        "kv_load_failure_policy",
    }
)
SPECULATIVE_KEYS = frozenset(
    {
        "method",
        "model",
        "num_speculative_tokens",
        "prompt_lookup_max",
        "prompt_lookup_min",
        "draft_tensor_parallel_size",
        "num_speculative_tokens_per_batch_size",
    }
)
SPECULATIVE_METHODS = ("draft_model", "eagle", "eagle3", "mtp", "ngram")
_GIB = 2**30


class ConfigError(ValueError):
    """What vLLM would refuse when it builds its configuration; exit code 1 with the text."""


class UsageError(ValueError):
    """What vLLM's parser would refuse; exit code 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings of one server. `None` where the engine's own default depends on what it runs on."""

    model: str
    served_names: tuple[str, ...]
    host: str
    port: int
    tensor_parallel_size: int
    gpu_memory_utilization: float
    quantization: str | None
    kv_cache_dtype: str
    kv_cache_memory_bytes: int | None
    num_gpu_blocks_override: int | None
    block_size: int | None
    max_model_len: int | None
    max_num_batched_tokens: int
    max_num_seqs: int
    max_num_active_seqs: int | None
    max_num_queued_reqs: int | None
    max_num_queued_tokens: int | None
    long_prefill_token_threshold: int
    watermark: float
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    kv_metrics_sample: float
    enable_mfu_metrics: bool
    disable_log_stats: bool
    load_tracking: bool
    api_server_count: int
    shutdown_timeout_seconds: int
    api_keys: tuple[str, ...]
    enable_lora: bool
    speculative_tokens: int
    histogram_edges: dict[str, tuple[float, ...]]
    hf_token: str | None


def _check_buckets(value: Any) -> dict[str, tuple[float, ...]]:
    if not isinstance(value, dict):
        raise ConfigError("custom_histogram_buckets must be an object of family to list of bounds")
    edges: dict[str, tuple[float, ...]] = {}
    for family, bounds in value.items():
        if family not in HISTOGRAM_FAMILIES:
            raise ConfigError(
                f"Unknown histogram family {family!r} in custom_histogram_buckets. "
                f"Supported families: {', '.join(sorted(HISTOGRAM_FAMILIES))}"
            )
        if not isinstance(bounds, list) or not bounds:
            raise ConfigError(f"custom_histogram_buckets[{family!r}] must be a non-empty list")
        numbers = [bound for bound in bounds if isinstance(bound, int | float) and not isinstance(bound, bool)]
        if len(numbers) != len(bounds) or not all(math.isfinite(bound) and bound > 0 for bound in numbers):
            raise ConfigError(f"custom_histogram_buckets[{family!r}] must hold finite numbers greater than 0")
        if any(later <= earlier for earlier, later in itertools.pairwise(numbers)):
            raise ConfigError(f"custom_histogram_buckets[{family!r}] must be strictly increasing")
        edges[family] = tuple(float(bound) for bound in numbers)
    return edges


def _check_kv_transfer(value: Any) -> None:
    if not isinstance(value, dict):
        raise UsageError("argument --kv-transfer-config: must be a JSON object")
    for key in value:
        if key not in KV_TRANSFER_KEYS:
            raise UsageError(f"argument --kv-transfer-config: unexpected keyword argument {key!r}")
    if value.get("kv_connector") is not None:
        if value.get("kv_role") not in ("kv_producer", "kv_consumer", "kv_both"):
            raise ConfigError(
                "Please specify kv_role when kv_connector is set, supported roles are kv_producer, kv_consumer, kv_both"
            )
        # Nothing here moves KV between engines, and to pretend would make every figure of it a lie.
        raise ConfigError(f"kv_connector {value['kv_connector']!r} is not simulated by this engine")
    if value.get("kv_load_failure_policy", "fail") not in ("fail", "recompute"):
        raise UsageError("argument --kv-transfer-config: kv_load_failure_policy must be 'fail' or 'recompute'")


def _speculative_tokens(value: Any) -> int:
    """Tokens drafted at a time; 0: no speculation. Only lookups: drafting with weights takes time of its own."""
    if value is None:
        return 0
    if not isinstance(value, dict):
        raise UsageError("argument --speculative-config: must be a JSON object")
    unknown = sorted(value.keys() - SPECULATIVE_KEYS)
    if unknown:
        raise ConfigError(f"speculative_config: unexpected keyword argument {unknown[0]!r}")
    method = value.get("method")
    if method not in SPECULATIVE_METHODS:
        raise ConfigError(f"speculative_config.method: Input should be one of {', '.join(SPECULATIVE_METHODS)}")
    if method != "ngram":
        raise ConfigError(f"speculative_config.method {method!r} is not simulated by this engine")
    tokens = value.get("num_speculative_tokens")
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        raise ConfigError(f"speculative_config: num_speculative_tokens must be at least 1, got {tokens!r}")
    low, high = (value.get(f"prompt_lookup_{end}", 5) for end in ("min", "max"))
    if not isinstance(low, int) or not isinstance(high, int) or not 1 <= low <= high:
        raise ConfigError(f"speculative_config: prompt_lookup_min {low!r} must be within 1..prompt_lookup_max {high!r}")
    return tokens


def _at_least(name: str, value: float | None, lowest: float) -> None:
    if value is not None and value < lowest:
        raise ConfigError(f"{name}\n  Input should be greater than or equal to {lowest:g} [input_value={value!r}]")


def _share(name: str, value: float, *, zero: bool) -> None:
    if not (0 <= value <= 1) or (value == 0 and not zero):
        bound = "greater than or equal to 0" if zero else "greater than 0"
        raise ConfigError(f"{name}\n  Input should be {bound} and less than or equal to 1 [input_value={value!r}]")


def resolve(flags: argparse.Namespace, gpu_memory_bytes: float | None) -> Options:
    """Check the flags as vLLM 0.33 does and fill in its defaults.

    Raises `UsageError` (the parser's business) or `ConfigError` (the configuration's).
    """
    _at_least("port", flags.port, 1)
    gpu_share = 0.92 if flags.gpu_memory_utilization is None else flags.gpu_memory_utilization
    _share("gpu_memory_utilization", gpu_share, zero=False)
    sample = 0.01 if flags.kv_cache_metrics_sample is None else flags.kv_cache_metrics_sample
    _share("kv_cache_metrics_sample", sample, zero=False)
    watermark = flags.watermark or 0.0
    _share("watermark", watermark, zero=True)
    for name in (
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "max_num_batched_tokens",
        "max_num_seqs",
        "max_num_active_seqs",
        "block_size",
        "num_gpu_blocks_override",
        "kv_cache_memory_bytes",
        "api_server_count",
    ):
        _at_least(name, getattr(flags, name), 1)
    for name in ("max_num_queued_reqs", "max_num_queued_tokens", "shutdown_timeout", "long_prefill_token_threshold"):
        _at_least(name, getattr(flags, name), 0)
    for name, default in (("pipeline_parallel_size", 1), ("data_parallel_size", 1)):
        if (getattr(flags, name) or default) != 1:
            raise ConfigError(f"{name} beyond 1 is not simulated by this engine")
    if flags.kv_offloading_size is not None:
        raise ConfigError("kv_offloading_size is not simulated by this engine")
    if flags.kv_transfer_config is not None:
        _check_kv_transfer(flags.kv_transfer_config)
    if flags.max_model_len is not None and flags.max_model_len != -1:
        _at_least("max_model_len", flags.max_model_len, 1)

    # The defaults of the API server follow the size of the GPU (an A100 counts as small, whatever it has).
    large, medium = (gpu_memory_bytes or 0) >= 160 * _GIB, (gpu_memory_bytes or 0) >= 70 * _GIB
    tokens, seqs = (16384, 1024) if large else (8192, 1024) if medium else (2048, 256)
    if flags.performance_mode == "throughput":
        tokens, seqs = 2 * tokens, 2 * seqs
    max_num_seqs = flags.max_num_seqs or seqs
    if flags.max_num_active_seqs is not None and flags.max_num_active_seqs > max_num_seqs:
        raise ConfigError(f"max_num_active_seqs ({flags.max_num_active_seqs}) must be <= max_num_seqs ({max_num_seqs})")
    model = flags.model_tag or flags.model or "Qwen/Qwen3-0.6B"
    return Options(
        model=model,
        served_names=tuple(flags.served_model_name or (model,)),
        host=flags.host or "0.0.0.0",
        port=flags.port or 8000,
        tensor_parallel_size=flags.tensor_parallel_size or 1,
        gpu_memory_utilization=gpu_share,
        quantization=flags.quantization,
        kv_cache_dtype=flags.kv_cache_dtype or "auto",
        kv_cache_memory_bytes=flags.kv_cache_memory_bytes,
        num_gpu_blocks_override=flags.num_gpu_blocks_override,
        block_size=flags.block_size,
        max_model_len=flags.max_model_len,
        max_num_batched_tokens=flags.max_num_batched_tokens or tokens,
        max_num_seqs=max_num_seqs,
        max_num_active_seqs=flags.max_num_active_seqs,
        max_num_queued_reqs=flags.max_num_queued_reqs,
        max_num_queued_tokens=flags.max_num_queued_tokens,
        long_prefill_token_threshold=flags.long_prefill_token_threshold or 0,
        watermark=watermark,
        enable_prefix_caching=flags.enable_prefix_caching is not False,
        enable_chunked_prefill=flags.enable_chunked_prefill is not False,
        kv_metrics_sample=sample if flags.kv_cache_metrics else 0.0,
        enable_mfu_metrics=bool(flags.enable_mfu_metrics),
        disable_log_stats=bool(flags.disable_log_stats),
        load_tracking=bool(flags.enable_server_load_tracking),
        api_server_count=flags.api_server_count or 1,
        shutdown_timeout_seconds=flags.shutdown_timeout or 0,
        api_keys=tuple(flags.api_key or ()),
        enable_lora=bool(flags.enable_lora),
        speculative_tokens=_speculative_tokens(flags.speculative_config),
        histogram_edges=_check_buckets(flags.custom_histogram_buckets)
        if flags.custom_histogram_buckets is not None
        else {},
        hf_token=flags.hf_token,
    )
