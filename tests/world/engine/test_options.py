"""What vLLM checks after parsing, and the defaults it takes from the hardware."""

import pytest

from goodput_world.engine.flags import parse
from goodput_world.engine.options import ConfigError, UsageError, resolve

GIB = 2**30


def options(*arguments, memory=48 * GIB):
    """Resolved settings."""
    return resolve(parse(["org/model", *arguments]), memory)


@pytest.mark.parametrize(
    ("memory", "tokens", "seqs"),
    [(None, 2048, 256), (48 * GIB, 2048, 256), (79.2 * GIB, 8192, 1024), (180 * GIB, 16384, 1024)],
)
def test_batch_defaults_follow_the_gpu(memory, tokens, seqs):
    """48 GB, 80 GB, 180 GB."""
    resolved = options(memory=memory)

    assert (resolved.max_num_batched_tokens, resolved.max_num_seqs) == (tokens, seqs)


def test_throughput_mode_doubles_them():
    """--performance-mode throughput."""
    resolved = options("--performance-mode", "throughput")

    assert (resolved.max_num_batched_tokens, resolved.max_num_seqs) == (4096, 512)


def test_the_model_is_served_under_its_own_name_by_default():
    """And listens on every address at 8000; prefix caching and chunked prefill are on, drain is off."""
    resolved = options()

    assert resolved.served_names == ("org/model",)
    assert (resolved.host, resolved.port, resolved.shutdown_timeout_seconds) == ("0.0.0.0", 8000, 0)
    assert (resolved.enable_prefix_caching, resolved.enable_chunked_prefill) == (True, True)
    assert (resolved.gpu_memory_utilization, resolved.kv_metrics_sample) == (0.92, 0.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu-memory-utilization", "1.5"], "gpu_memory_utilization"),
        (["--gpu-memory-utilization", "0"], "gpu_memory_utilization"),
        (["--max-num-seqs", "0"], "max_num_seqs"),
        (["--max-num-queued-reqs", "-1"], "max_num_queued_reqs"),
        (["--shutdown-timeout", "-1"], "shutdown_timeout"),
        (["--max-model-len", "0"], "max_model_len"),
        (["--max-num-seqs", "8", "--max-num-active-seqs", "9"], "must be <= max_num_seqs"),
        (["--kv-cache-metrics-sample", "0"], "kv_cache_metrics_sample"),
        (["--custom-histogram-buckets", '{"ttft": [1]}'], "Unknown histogram family 'ttft'"),
        (["--custom-histogram-buckets", '{"time_to_first_token": [1, 1]}'], "strictly increasing"),
        (["--custom-histogram-buckets", '{"time_to_first_token": [0, 1]}'], "greater than 0"),
        (["--custom-histogram-buckets", '{"time_to_first_token": []}'], "non-empty"),
        (["--custom-histogram-buckets", '{"time_to_first_token": ["1"]}'], "finite numbers"),
        (["--kv-transfer-config", '{"kv_connector": "NixlConnector"}'], "kv_role"),
        (
            ["--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'],
            "'NixlConnector' is not simulated",
        ),
        (["--speculative-config", '{"method": "ngram"}'], "num_speculative_tokens must be at least 1"),
        (["--speculative-config", '{"method": "mtp", "num_speculative_tokens": 1}'], "'mtp' is not simulated"),
        (["--speculative-config", '{"method": "medusa", "num_speculative_tokens": 1}'], "should be one of"),
        (["--speculative-config", '{"methods": "ngram"}'], "unexpected keyword argument 'methods'"),
        (
            ["--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 9}'],
            "prompt_lookup_min 9 must be within",
        ),
        (["--kv-offloading-size", "4"], "kv_offloading_size is not simulated"),
        (["--data-parallel-size", "2"], "data_parallel_size beyond 1 is not simulated"),
    ],
)
def test_configuration_errors_name_the_setting(arguments, message):
    """What the configuration refuses, and what this engine does not pretend to do."""
    with pytest.raises(ConfigError, match=message):
        options(*arguments)


def test_an_unknown_kv_transfer_key_is_a_parse_error():
    """`kv_rank` was removed."""
    with pytest.raises(UsageError, match="kv_rank"):
        options("--kv-transfer-config", '{"kv_rank": 0}')


def test_custom_edges_are_kept_in_order():
    """As floats."""
    resolved = options("--custom-histogram-buckets", '{"time_to_first_token": [0.1, 0.5, 2]}')

    assert resolved.histogram_edges == {"time_to_first_token": (0.1, 0.5, 2.0)}
