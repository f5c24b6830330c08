"""The exposition has the families, types and labels of a real vLLM dump, and moves as vLLM's does."""

import re
from pathlib import Path

import pytest

FAMILIES = Path(__file__).parents[2] / "data/vllm_metric_families.tsv"
ENGINE = '{engine="0",model_name="m"}'


def expected():
    """name -> (type, label names) of vLLM 0.32/0.33 with --kv-cache-metrics."""
    lines = FAMILIES.read_text(encoding="utf-8").splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    return {name: (kind, {label for label in labels.split(",") if label}) for name, kind, labels in rows}


def families(text):
    """The same of an exposition."""
    found = {}
    name = kind = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            found[name] = (kind, set())
        elif not line.startswith("#"):
            sample = re.match(r"([^{ ]+)", line)[1]
            suffixes = {"histogram": ("_bucket", "_count", "_sum"), "summary": ("_count", "_sum")}.get(kind, ("",))
            assert sample in {name + suffix for suffix in suffixes}, line
            found[name][1].update(set(re.findall(r'(\w+)="', line)) - {"le"})
    return found


async def exposition(running):
    """The whole text."""
    async with running.session.get(f"{running.url}/metrics") as answer:
        assert answer.headers["content-type"].startswith("text/plain; version=")
        return await answer.text()


async def test_families_types_and_labels_are_those_of_vllm(run_server, monkeypatch):
    """Nothing missing, nothing invented."""
    monkeypatch.setenv("PROMETHEUS_DISABLE_CREATED_SERIES", "True")
    async with run_server("--kv-cache-metrics") as running:
        await running.post(prompt="x", max_tokens=1)
        found = families(await exposition(running))

    assert found == expected()


async def test_created_series_are_there_unless_switched_off(run_server, monkeypatch):
    """A gauge beside every counter, histogram and summary."""
    monkeypatch.delenv("PROMETHEUS_DISABLE_CREATED_SERIES", raising=False)
    async with run_server() as running:
        found = families(await exposition(running))

    assert found["vllm:generation_tokens_created"][0] == "gauge"
    assert found["vllm:time_to_first_token_seconds_created"][0] == "gauge"


async def test_optional_families_need_their_flags(run_server):
    """KV residency, LoRA, process figures with one API server only."""
    async with run_server("--api-server-count", "2", "--enable-lora") as running:
        found = families(await exposition(running))

    assert "vllm:kv_block_lifetime_seconds" not in found
    assert "vllm:lora_requests_info" in found
    assert not [name for name in found if name.startswith(("process_", "python_"))]


async def test_default_and_custom_edges(run_server):
    """One family replaced, the others as they are; token counts end at the model length."""
    edges = '{"time_to_first_token": [0.25, 0.5]}'
    async with run_server("--custom-histogram-buckets", edges) as running:
        metrics = await running.metrics()

    def bounds(name):
        return [re.search(r'le="([^"]+)"', key)[1] for key in metrics if key.startswith(f"vllm:{name}_bucket")]

    assert bounds("time_to_first_token_seconds") == ["0.25", "0.5", "+Inf"]
    assert bounds("request_time_per_output_token_seconds")[:3] == ["0.01", "0.025", "0.05"]
    assert bounds("e2e_request_latency_seconds")[-2:] == ["7680.0", "+Inf"]
    assert bounds("request_prompt_tokens")[-2:] == ["5000.0", "+Inf"]


async def test_series_exist_with_0_before_the_first_request(run_server):
    """So that a rate works from the first scrape."""
    async with run_server() as running:
        metrics = await running.metrics()

    for name in ("prompt_tokens_total", "num_preemptions_total", "time_to_first_token_seconds_count"):
        assert metrics[f"vllm:{name}{ENGINE}"] == 0
    assert metrics['vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="awake"}'] == 1


async def test_a_request_moves_every_figure_once(run_server):
    """40 prompt tokens, 11 output tokens, the second time 32 of the prompt from the cache."""
    async with run_server() as running:
        for _ in range(2):
            await running.post(prompt=list(range(40)), max_tokens=11)
        metrics = await running.metrics()

    assert metrics[f"vllm:prompt_tokens_total{ENGINE}"] == 80
    assert metrics[f"vllm:generation_tokens_total{ENGINE}"] == 22
    by_source = 'vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="%s"}'
    assert metrics[by_source % "local_compute"] == 48
    assert metrics[by_source % "local_cache_hit"] == 32
    assert metrics[f"vllm:prefix_cache_queries_total{ENGINE}"] == 80
    assert metrics[f"vllm:prefix_cache_hits_total{ENGINE}"] == 32
    device = 'vllm:prompt_tokens_cached_by_source_total{engine="0",model_name="m",source="device"}'
    assert metrics[device] == 32
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds"):
        assert metrics[f"vllm:{name}_count{ENGINE}"] == 2
    assert metrics[f"vllm:inter_token_latency_seconds_count{ENGINE}"] == 20
    assert metrics[f"vllm:request_prefill_kv_computed_tokens_sum{ENGINE}"] == 48
    assert metrics[f"vllm:iteration_tokens_total_sum{ENGINE}"] == 102
    assert metrics[f"vllm:request_params_max_tokens_sum{ENGINE}"] == 22
    requests = 'http_requests_total{handler="/v1/completions",method="POST",status="2xx"}'
    assert metrics[requests] == 2
    assert metrics["http_request_duration_highr_seconds_count"] == 2


async def test_drafts_are_counted_where_there_are_some(run_server):
    """41 tokens in fewer steps: an inter-token time for each output, tokens and accepted positions add up."""
    async with run_server() as running:
        assert not [name for name in await running.metrics() if "spec_decode" in name]
    config = '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 5, "prompt_lookup_min": 2}'
    async with run_server("--speculative-config", config) as running:
        _, answer = await running.post(prompt=list(range(40)), max_tokens=41)
        metrics = await running.metrics()

    assert answer["usage"]["completion_tokens"] == 41
    drafts = metrics[f"vllm:spec_decode_num_drafts_total{ENGINE}"]
    accepted = metrics[f"vllm:spec_decode_num_accepted_tokens_total{ENGINE}"]
    assert 10 <= drafts < 40
    assert metrics[f"vllm:spec_decode_num_draft_tokens_total{ENGINE}"] == 3 * drafts
    by_position = 'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="%d"}'
    assert accepted == sum(metrics[by_position % position] for position in range(3)) > 0
    assert metrics[f"vllm:inter_token_latency_seconds_count{ENGINE}"] == drafts
    assert metrics[f"vllm:generation_tokens_total{ENGINE}"] == 41


async def test_times_add_up(run_server):
    """Queue + prefill + decode is what the engine had, below the end-to-end time; TPOT is decode over n - 1."""
    async with run_server() as running:
        await running.post(prompt=list(range(40)), max_tokens=21)
        metrics = await running.metrics()

    def total(name):
        return metrics[f"vllm:{name}_sum{ENGINE}"]

    assert total("request_inference_time_seconds") == pytest.approx(
        total("request_prefill_time_seconds") + total("request_decode_time_seconds")
    )
    assert total("e2e_request_latency_seconds") > total("request_inference_time_seconds")
    assert total("request_time_per_output_token_seconds") == pytest.approx(total("request_decode_time_seconds") / 20)
    assert total("inter_token_latency_seconds") == pytest.approx(total("request_decode_time_seconds"))


async def test_a_one_token_request_observes_a_tpot_of_0(run_server):
    """As vLLM: it pollutes the lowest bucket."""
    async with run_server() as running:
        await running.post(prompt="x", max_tokens=1)
        metrics = await running.metrics()

    name = "vllm:request_time_per_output_token_seconds_bucket"
    assert metrics[f'{name}{{engine="0",le="0.01",model_name="m"}}'] == 1


async def test_client_errors_are_counted_by_status_group(run_server):
    """Probes and scrapes are not."""
    async with run_server() as running:
        await running.post(prompt=[1] * 9000)
        async with running.session.get(f"{running.url}/health"):
            pass
        metrics = await running.metrics()

    counted = {name: value for name, value in metrics.items() if name.startswith("http_requests_total")}
    assert counted == {'http_requests_total{handler="/v1/completions",method="POST",status="4xx"}': 1}


async def test_kv_residency_is_reported_at_eviction(run_server):
    """With every block sampled, a pool of 39 blocks turns over."""
    arguments = ["--kv-cache-metrics", "--kv-cache-metrics-sample", "1", "--num-gpu-blocks-override", "40"]
    async with run_server(*arguments, "--max-model-len", "600") as running:
        for index in range(4):
            await running.post(prompt=[index] * 320, max_tokens=1)
        metrics = await running.metrics()

    assert metrics[f"vllm:kv_block_lifetime_seconds_count{ENGINE}"] == 4 * 20 - 39
    assert metrics[f"vllm:kv_block_idle_before_evict_seconds_count{ENGINE}"] == 4 * 20 - 39
    assert metrics[f"vllm:kv_block_reuse_gap_seconds_count{ENGINE}"] == 0


@pytest.mark.parametrize(("flag", "moves"), [("--enable-mfu-metrics", True), ("--enforce-eager", False)])
async def test_work_is_estimated_with_its_flag_only(run_server, fast_plant, flag, moves):
    """FLOPs of prompt and decode tokens."""
    async with run_server(flag) as running:
        await running.post(prompt=[1] * 100, max_tokens=2)
        flops = (await running.metrics())[f"vllm:estimated_flops_per_gpu_total{ENGINE}"]

    assert (flops >= 101 * fast_plant.flops_per_token) is moves
    assert (flops == 0) is not moves


async def test_a_scrape_is_cheap(run_server):
    """Rendering costs well under 10 ms of processor time."""
    import time

    async with run_server("--kv-cache-metrics") as running:
        server = running.server
        began = time.process_time()
        for _ in range(10):
            server.render_metrics()
        assert (time.process_time() - began) / 10 < 0.01
