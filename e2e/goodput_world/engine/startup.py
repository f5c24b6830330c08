"""What stands between a container's start and its first answer: checks, memory, and the phases that take time."""

from __future__ import annotations

import math
import os
import sys
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from goodput.simulator.plant import Plant
from goodput.simulator.sequences import EngineConfig
from goodput_world.engine.options import Options

GIB = 2**30
DEFAULT_BLOCK_SIZE = 16
DEFAULT_MODEL_LEN = 131072
# A container without a volume there gets 64 MiB, which NCCL outgrows at once.
CONTAINER_SHM_BYTES = 64 * 2**20
_KV_SHARES = (("fp8", 0.5), ("int8", 0.5), ("nvfp4", 0.28), ("int4", 0.28), ("turboquant", 0.28))


class StartupError(Exception):
    """The engine cannot start; the text is what vLLM's log would end with."""


def log(place: str, text: str, level: str = "INFO") -> None:
    """One line in the manner of vLLM's log, on standard output."""
    stamp = time.strftime("%m-%d %H:%M:%S")
    print(f"(EngineCore pid={os.getpid()}) {level} {stamp} [{place}] {text}", file=sys.stdout, flush=True)


def cache_directories(environment: Mapping[str, str]) -> dict[str, str]:
    """Where vLLM and its libraries write, by the variable that moves it."""
    home = environment.get("HOME", "/")
    temporary = environment.get("TMPDIR", "/tmp")  # the default of the libraries meant here
    return {
        "HF_HOME": environment.get("HF_HOME", f"{home}/.cache/huggingface"),
        "VLLM_CACHE_ROOT": environment.get("VLLM_CACHE_ROOT", f"{home}/.cache/vllm"),
        "TORCHINDUCTOR_CACHE_DIR": environment.get("TORCHINDUCTOR_CACHE_DIR", f"{temporary}/torchinductor"),
        "TRITON_CACHE_DIR": environment.get("TRITON_CACHE_DIR", f"{home}/.triton/cache"),
        "TMPDIR": temporary,
    }


def check_environment(environment: Mapping[str, str], model: str, plant: Plant, options: Options) -> None:
    """Raise `StartupError` for surroundings in which vLLM would not come up.

    GOODPUT_SIM_WRITABLE (paths joined by `:`) tells which mounts of the container can be written; without it only
    directories that the environment names are tried, on the real file system. GOODPUT_SIM_SHM_BYTES is the size of
    /dev/shm, GOODPUT_SIM_GPU_COUNT the number of GPUs of the container.
    """
    port = environment.get("VLLM_PORT")
    if port is not None and not port.isdigit():
        if urllib.parse.urlparse(port).scheme:
            raise StartupError(
                f"ValueError: VLLM_PORT '{port}' appears to be a URI. This may be caused by a Kubernetes service "
                "discovery issue, check the warning in: https://docs.vllm.ai/en/stable/configuration/env_vars.html"
            )
        raise StartupError(f"ValueError: VLLM_PORT '{port}' must be a valid integer")
    gpus = int(environment.get("GOODPUT_SIM_GPU_COUNT", options.tensor_parallel_size))
    if gpus < 1:
        raise StartupError("RuntimeError: Failed to infer device type, please set the environment variable")
    if gpus < options.tensor_parallel_size:
        raise StartupError(
            f"ValueError: World size ({options.tensor_parallel_size}) is larger than the number of available GPUs "
            f"({gpus}) in this node."
        )
    _check_writable(environment)
    if options.tensor_parallel_size > 1:
        size = environment.get("GOODPUT_SIM_SHM_BYTES")
        if size is not None and int(size) <= CONTAINER_SHM_BYTES:
            raise StartupError(
                "torch.distributed.DistBackendError: NCCL error: unhandled system error. Last error: Error while "
                f"creating shared memory segment /dev/shm/nccl-sim (size {33 * 2**20}): No space left on device"
            )
        if size is None and not Path("/dev/shm").is_dir():
            raise StartupError("OSError: [Errno 2] No such file or directory: '/dev/shm'")
    if plant.gated and not (options.hf_token or environment.get("HF_TOKEN")):
        raise StartupError(
            f"OSError: You are trying to access a gated repo.\nMake sure to have access to it at "
            f"https://huggingface.co/{model}.\n401 Client Error. Cannot access gated repo. Please log in."
        )


def _check_writable(environment: Mapping[str, str]) -> None:
    mounts = environment.get("GOODPUT_SIM_WRITABLE")
    if mounts is not None:
        if not environment.get("USER") and not environment.get("LOGNAME"):
            raise StartupError(f"KeyError: 'getpwuid(): uid not found: {os.getuid()}'")
        roots = [Path(mount) for mount in mounts.split(":") if mount]
        for directory in cache_directories(environment).values():
            if not any(Path(directory).is_relative_to(root) for root in roots):
                raise StartupError(f"OSError: [Errno 30] Read-only file system: '{directory}'")
        return
    for name, directory in cache_directories(environment).items():
        if name not in environment:
            continue
        probe = Path(directory) / f".writable-{os.getpid()}"
        try:
            probe.parent.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise StartupError(f"OSError: [Errno {error.errno}] {error.strerror}: '{directory}'") from None


def as_loaded(plant: Plant, options: Options) -> Plant:
    """The plant with the weights of `--quantization fp8`: one byte where there were two."""
    return replace(plant, weights_bytes=plant.weights_bytes / 2.0) if options.quantization == "fp8" else plant


def kv_bytes_per_token(plant: Plant, kv_cache_dtype: str) -> float:
    """KV bytes of a token over all GPUs for `--kv-cache-dtype`; the plant's own are for `auto`."""
    for prefix, share in _KV_SHARES:
        if kv_cache_dtype.startswith(prefix):
            return plant.kv_bytes_per_token * share
    return plant.kv_bytes_per_token


def kv_memory_bytes(plant: Plant, options: Options) -> float:
    """Memory for KV over all GPUs. Raises `StartupError` with vLLM's own text if nothing is left."""
    per_token = kv_bytes_per_token(plant, options.kv_cache_dtype)
    if options.kv_cache_memory_bytes is not None:
        return float(options.kv_cache_memory_bytes * plant.gpus)
    if plant.gpu_memory_bytes is None:
        return plant.kv_pool_tokens * plant.kv_bytes_per_token
    weights = plant.weights_bytes / plant.gpus
    if weights > plant.gpu_memory_bytes:
        raise StartupError(
            "torch.OutOfMemoryError: CUDA out of memory. GPU 0 has a total capacity of "
            f"{plant.gpu_memory_bytes / GIB:.2f} GiB; the weights need {weights / GIB:.2f} GiB."
        )
    requested = math.ceil(plant.gpu_memory_bytes * options.gpu_memory_utilization)
    left = requested - weights - plant.activation_bytes
    if left < per_token * DEFAULT_BLOCK_SIZE:
        raise StartupError(
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
            "initializing the engine."
        )
    return left * plant.gpus


def engine_config(plant: Plant, options: Options) -> EngineConfig:
    """The scheduler's settings with the KV pool that fits. Raises `StartupError` if no request of full length does."""
    block_size = options.block_size or DEFAULT_BLOCK_SIZE
    per_token = kv_bytes_per_token(plant, options.kv_cache_dtype)
    memory = kv_memory_bytes(plant, options)
    blocks = options.num_gpu_blocks_override or int(memory // (per_token * block_size))
    fits = max(0, blocks - 1) * block_size
    wanted = options.max_model_len or plant.max_model_len or DEFAULT_MODEL_LEN
    if options.max_model_len == -1:
        wanted = min(fits, plant.max_model_len or DEFAULT_MODEL_LEN)
    if options.max_model_len and plant.max_model_len and options.max_model_len > plant.max_model_len:
        raise StartupError(
            f"ValueError: User-specified max_model_len ({options.max_model_len}) is greater than the derived "
            f"max_model_len (max_position_embeddings={plant.max_model_len} or model_max_length=None in model's "
            "config.json)."
        )
    if wanted > fits or fits == 0:
        raise StartupError(
            f"ValueError: To serve at least one request with the models's max seq len ({wanted}), "
            f"({wanted * per_token / plant.gpus / GIB:.2f} GiB KV cache is needed, which is larger than the available "
            f"KV cache memory ({memory / plant.gpus / GIB:.2f} GiB). Based on the available memory, the estimated "
            f"maximum model length is {fits}. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` "
            "when initializing the engine."
        )
    try:
        return EngineConfig(
            kv_blocks=blocks,
            block_size=block_size,
            max_model_len=wanted,
            max_num_batched_tokens=options.max_num_batched_tokens,
            max_num_seqs=options.max_num_seqs,
            max_num_active_seqs=options.max_num_active_seqs,
            enable_prefix_caching=options.enable_prefix_caching,
            enable_chunked_prefill=options.enable_chunked_prefill,
            long_prefill_token_threshold=options.long_prefill_token_threshold,
            watermark=options.watermark,
            max_num_queued_reqs=options.max_num_queued_reqs,
            max_num_queued_tokens=options.max_num_queued_tokens,
            kv_metrics_sample=options.kv_metrics_sample,
            speculative_tokens=options.speculative_tokens,
            draft_acceptance=plant.draft_acceptance,
            draft_coverage=plant.draft_coverage,
        )
    except ValueError as error:
        raise StartupError(f"ValueError: {error}") from None


def cache_config(plant: Plant, options: Options, config: EngineConfig) -> dict[str, str]:
    """The labels of `vllm:cache_config_info`."""
    tokens = config.kv_blocks * config.block_size
    values: dict[str, object] = {
        "_block_size_resolved": True,
        "block_size": config.block_size,
        "cache_dtype": options.kv_cache_dtype,
        "cache_hit_alignment_tokens": None,
        "effective_attention_block_size": config.block_size,
        "enable_mamba_shared_prefix_checkpoint": False,
        "enable_prefix_caching": config.enable_prefix_caching,
        "gpu_memory_utilization": options.gpu_memory_utilization,
        "hash_block_size": None,
        "is_attention_free": False,
        "kv_cache_dtype_skip_layers": [],
        "kv_cache_layout": None,
        "kv_cache_max_concurrency": tokens / config.max_model_len,
        "kv_cache_memory_bytes": options.kv_cache_memory_bytes,
        "kv_cache_size_tokens": tokens,
        "kv_offloading_backend": "native",
        "kv_offloading_size": None,
        "kv_sharing_fast_prefill": False,
        "mamba_block_size": None,
        "mamba_cache_dtype": "auto",
        "mamba_cache_mode": "none",
        "mamba_page_size_padded": None,
        "mamba_ssm_cache_dtype": "auto",
        "num_cpu_blocks": None,
        "num_gpu_blocks": config.kv_blocks,
        "num_gpu_blocks_override": options.num_gpu_blocks_override,
        "prefix_cache_retention_interval": 0,
        "prefix_caching_hash_algo": "sha256",
        "prefix_match_unit": None,
        "replayssm_buffer_len": 16,
        "skip_page_size_padded": None,
        "sliding_window": None,
        "swa_bounded_replay": True,
        "use_kda_recoverssm": False,
        "use_replayssm": False,
        "user_specified_block_size": options.block_size is not None,
    }
    return {name: str(value) for name, value in values.items()}


def phases(plant: Plant, config: EngineConfig, seconds: float) -> list[tuple[float, str, str]]:
    """When (seconds after the start) which line is logged; the shares follow a real start with a cold compile."""
    weights_gib = plant.weights_bytes / plant.gpus / GIB
    tokens = config.kv_blocks * config.block_size
    load, compiled, graphs = 0.35 * seconds, 0.3 * seconds, 0.15 * seconds
    return [
        (0.45 * seconds, "default_loader.py", f"Loading weights took {load:.2f} seconds"),
        (0.45 * seconds, "gpu_model_runner.py", f"Model loading took {weights_gib:.2f} GiB and {load:.2f} s"),
        (0.80 * seconds, "monitor.py", f"torch.compile took {compiled:.2f} s in total"),
        (
            0.85 * seconds,
            "kv_cache_utils.py",
            f"GPU KV cache size: {tokens:,} tokens, Maximum concurrency for {config.max_model_len:,} tokens per "
            f"request: {tokens / config.max_model_len:.2f}x",
        ),
        (0.98 * seconds, "gpu_model_runner.py", f"Graph capturing finished in {graphs:.0f} secs, took 0.61 GiB"),
        (
            seconds,
            "core.py",
            f"init engine (profile, create kv cache, warmup model) took {0.55 * seconds:.2f} s",
        ),
    ]
