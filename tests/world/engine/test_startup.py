"""What keeps a vLLM container from coming up, and what it says then."""

import dataclasses

import pytest

from goodput.simulator.derive import L40S, LLAMA_3_1_8B, derive
from goodput_world.engine.flags import parse
from goodput_world.engine.options import resolve
from goodput_world.engine.startup import StartupError, as_loaded, cache_config, check_environment, engine_config, phases

PLANT = derive(LLAMA_3_1_8B, L40S)


def options(*arguments):
    """Resolved settings on that plant."""
    return resolve(parse(["meta-llama/Llama-3.1-8B-Instruct", *arguments]), PLANT.gpu_memory_bytes)


def check(environment, *arguments, plant=PLANT):
    """Check surroundings."""
    settings = options(*arguments)
    check_environment(environment, settings.model, plant, settings)


WRITABLE = {"GOODPUT_SIM_WRITABLE": "/tmp:/cache", "USER": "vllm", "HOME": "/cache"}


def test_a_pod_with_its_caches_on_volumes_starts():
    """Everything under HOME and /tmp."""
    check(WRITABLE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"HF_HOME": "/root/.cache"}, "Read-only file system: '/root/.cache'"),
        ({"HOME": "/home/vllm"}, "Read-only file system: '/home/vllm/.cache/huggingface'"),
        ({"TRITON_CACHE_DIR": "/cachefoo"}, "Read-only file system: '/cachefoo'"),
        ({"TMPDIR": "/var/tmp"}, "Read-only file system"),
        ({"USER": ""}, "getpwuid"),
        ({"VLLM_PORT": "tcp://10.0.0.1:80"}, "appears to be a URI"),
        ({"VLLM_PORT": "x"}, "must be a valid integer"),
        ({"GOODPUT_SIM_GPU_COUNT": "0"}, "Failed to infer device type"),
    ],
)
def test_surroundings_that_break_vllm(change, message):
    """Read-only caches, no user, a Service named vllm, no GPU."""
    with pytest.raises(StartupError, match=message):
        check({**WRITABLE, **change})


def test_outside_a_pod_named_directories_are_tried(tmp_path):
    """A file where the cache should be."""
    (tmp_path / "file").touch()
    check({"HF_HOME": str(tmp_path / "new")})

    with pytest.raises(StartupError, match=r"OSError: \[Errno"):
        check({"HF_HOME": str(tmp_path / "file" / "below")})


def test_tensor_parallelism_needs_gpus_and_shared_memory():
    """The container's default of 64 MiB is not enough for NCCL."""
    with pytest.raises(StartupError, match=r"World size \(2\) is larger than the number of available GPUs \(1\)"):
        check({"GOODPUT_SIM_GPU_COUNT": "1"}, "-tp", "2")
    with pytest.raises(StartupError, match="No space left on device"):
        check({"GOODPUT_SIM_GPU_COUNT": "2", "GOODPUT_SIM_SHM_BYTES": str(64 * 2**20)}, "-tp", "2")
    check({"GOODPUT_SIM_GPU_COUNT": "2", "GOODPUT_SIM_SHM_BYTES": str(2**31)}, "-tp", "2")


def test_a_gated_model_needs_a_token():
    """From the environment or the flag."""
    gated = dataclasses.replace(PLANT, gated=True)
    with pytest.raises(StartupError, match="gated repo"):
        check({}, plant=gated)

    check({"HF_TOKEN": "x"}, plant=gated)
    check({}, "--hf-token", "x", plant=gated)


def test_the_pool_follows_the_memory_flags():
    """Utilization, bytes given outright, blocks given outright, the KV type."""
    default = engine_config(PLANT, options()).kv_blocks

    assert default == PLANT.kv_pool_tokens // 16
    fewer = engine_config(PLANT, options("--gpu-memory-utilization", "0.8", "--max-model-len", "8192")).kv_blocks
    assert fewer == pytest.approx(default - 0.12 * 44.4 * 2**30 / 131072 / 16, abs=2)
    by_bytes = options("--kv-cache-memory-bytes", "20G")
    assert engine_config(PLANT, by_bytes).kv_blocks == 20 * 2**30 // (131072 * 16)
    assert engine_config(PLANT, options("--num-gpu-blocks-override", "9000")).kv_blocks == 9000
    assert engine_config(PLANT, options("--kv-cache-dtype", "fp8")).kv_blocks == pytest.approx(2 * default, abs=2)


def test_a_pool_too_small_for_one_request_is_an_error_with_an_estimate():
    """vLLM's own text; -1 fits the length to the memory instead."""
    small = ["--gpu-memory-utilization", "0.5"]
    with pytest.raises(StartupError, match=r"max seq len \(131072\), \(16\.00 GiB KV cache is needed.* estimated"):
        engine_config(PLANT, options(*small))

    fitted = engine_config(PLANT, options(*small, "--max-model-len", "-1"))
    assert fitted.max_model_len == (fitted.kv_blocks - 1) * 16


def test_no_memory_left_is_an_error():
    """Below the weights, and just above them."""
    with pytest.raises(StartupError, match="No available memory for the cache blocks"):
        engine_config(PLANT, options("--gpu-memory-utilization", "0.3"))
    tiny = dataclasses.replace(PLANT, gpu_memory_bytes=8 * 2**30)
    with pytest.raises(StartupError, match=r"torch\.OutOfMemoryError"):
        engine_config(tiny, options())


def test_a_length_beyond_the_model_is_an_error():
    """128k is what it was trained for."""
    with pytest.raises(StartupError, match="User-specified max_model_len"):
        engine_config(PLANT, options("--max-model-len", "200000"))


def test_phases_are_logged_in_order_and_end_with_the_start():
    """What an operator may parse for learned start-up times."""
    config = engine_config(PLANT, options())
    lines = phases(PLANT, config, 100.0)

    assert [at for at, _, _ in lines] == sorted(at for at, _, _ in lines)
    assert lines[-1][0] == 100.0
    text = "\n".join(line for _, _, line in lines)
    assert "Loading weights took 35.00 seconds" in text
    assert f"GPU KV cache size: {config.kv_blocks * 16:,} tokens" in text


def test_cache_config_speaks_of_capacity():
    """The labels that a controller reads."""
    settings = options("--enable-prefix-caching")
    labels = cache_config(PLANT, settings, engine_config(PLANT, settings))

    assert labels["block_size"] == "16"
    assert labels["num_gpu_blocks"] == str(PLANT.kv_pool_tokens // 16)
    assert labels["kv_cache_size_tokens"] == str(PLANT.kv_pool_tokens // 16 * 16)


def test_weights_are_quantised_while_they_load():
    """Half the bytes, and what that leaves goes to the KV cache; a format of the checkpoint's own changes nothing."""
    small = as_loaded(PLANT, options("--quantization", "fp8"))
    assert small.weights_bytes == PLANT.weights_bytes / 2
    assert engine_config(small, options()).kv_blocks > engine_config(PLANT, options()).kv_blocks
    assert as_loaded(PLANT, options("-q", "awq")) == PLANT == as_loaded(PLANT, options())
