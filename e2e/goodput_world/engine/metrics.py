"""The metric families of vLLM's V1 engine, and how a step of the simulated engine moves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from goodput.simulator.engine import Engine, StepResult
from goodput.simulator.sequences import Sequence as EngineSequence
from goodput_world.engine.edges import DEFAULT_EDGES, token_edges
from goodput_world.engine.exposition import Histogram, Registry, Value

FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")
CACHE_TIERS = ("device", "host", "p2p", "disk", "external_unspecified")
PROMPT_SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")
REJECTIONS = ("max_num_queued_reqs", "max_num_queued_tokens")


class EngineMetrics:
    """All `vllm:` series of one engine, created with 0 so that a rate works from the first scrape."""

    def __init__(
        self,
        registry: Registry,
        *,
        model_name: str,
        max_model_len: int,
        edges: Mapping[str, Sequence[float]],
        cache_config: Mapping[str, str],
        kv_metrics: bool,
        lora: bool,
        speculative_tokens: int = 0,
    ) -> None:
        self._registry = registry
        self._labels = {"model_name": model_name, "engine": "0"}
        self._kv_metrics = kv_metrics
        self._create_gauges_and_counters(model_name)
        self._drafts: Value | None = None
        if speculative_tokens:
            self._create_draft_counters(speculative_tokens)
        self._create_histograms({**DEFAULT_EDGES, "request_tokens": token_edges(max_model_len), **edges})
        if lora:
            registry.value(
                "vllm:lora_requests_info",
                "gauge",
                "LoRA adapters in use.",
                {"max_lora": "1", "waiting_lora_adapters": "", "running_lora_adapters": ""},
            )
        registry.value(
            "vllm:cache_config_info", "gauge", "The engine's cache configuration.", {**cache_config, "engine": "0"}
        ).set(1.0)

    def _create_gauges_and_counters(self, model_name: str) -> None:
        self.flops = self._counter("estimated_flops_per_gpu", "Floating point operations by the model of one GPU.")
        self.read_bytes = self._counter("estimated_read_bytes_per_gpu", "Bytes read from GPU memory, by the model.")
        self.write_bytes = self._counter("estimated_write_bytes_per_gpu", "Bytes written to GPU memory, by the model.")
        self._running = self._gauge("num_requests_running", "Requests in the running batch.")
        self._waiting = self._gauge("num_requests_waiting", "Requests waiting to be scheduled.")
        by_reason = "Requests waiting to be scheduled, by reason."
        self._waiting_capacity = self._gauge("num_requests_waiting_by_reason", by_reason, reason="capacity")
        self._gauge("num_requests_waiting_by_reason", by_reason, reason="deferred")
        for state in ("awake", "weights_offloaded", "discard_all"):
            gauge = self._gauge("engine_sleep_state", "1 for the sleep state the engine is in.", sleep_state=state)
            gauge.set(1.0 if state == "awake" else 0.0)
        self._usage = self._gauge("kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.")
        self._queries = self._counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.")
        self._hits = self._counter("prefix_cache_hits", "Prompt tokens found in the prefix cache.")
        self._counter("external_prefix_cache_queries", "Prompt tokens looked up in an external cache.")
        self._counter("external_prefix_cache_hits", "Prompt tokens found in an external cache.")
        self._counter("mm_cache_queries", "Multi-modal items looked up in the cache.")
        self._counter("mm_cache_hits", "Multi-modal items found in the cache.")
        self._preemptions = self._counter("num_preemptions", "Preemptions of running requests.")
        self._prompt = self._counter("prompt_tokens", "Prompt tokens processed.")
        self._prompt_by = {
            source: self._counter("prompt_tokens_by_source", "Prompt tokens by where they came from.", source=source)
            for source in PROMPT_SOURCES
        }
        self._cached = self._counter("prompt_tokens_cached", "Prompt tokens that a cache supplied.")
        self._cached_by = {
            tier: self._counter("prompt_tokens_cached_by_source", "Prompt tokens supplied, by cache tier.", source=tier)
            for tier in CACHE_TIERS
        }
        self._generation = self._counter("generation_tokens", "Output tokens produced.")
        self._success = {
            reason: self._counter("request_success", "Requests finished, by reason.", finished_reason=reason)
            for reason in FINISH_REASONS
        }
        self._rejected = {
            reason: self._registry.value(
                "vllm:admission_rejections_total",
                "counter",
                "Requests refused at a queue limit.",
                {"model_name": model_name, "reason": reason},
            )
            for reason in REJECTIONS
        }

    def _create_draft_counters(self, tokens: int) -> None:
        self._drafts = self._counter("spec_decode_num_drafts", "Number of spec decoding drafts.")
        self._draft_tokens = self._counter("spec_decode_num_draft_tokens", "Number of draft tokens.")
        self._accepted = self._counter("spec_decode_num_accepted_tokens", "Number of accepted tokens.")
        self._accepted_at = [
            self._counter(
                "spec_decode_num_accepted_tokens_per_pos", "Accepted tokens per draft position.", position=str(position)
            )
            for position in range(tokens)
        ]

    def _count_drafts(self, result: StepResult) -> None:
        assert self._drafts is not None
        self._drafts.add(len(result.accepted))
        self._draft_tokens.add(result.drafted_tokens)
        self._accepted.add(sum(result.accepted))
        for taken in result.accepted:
            for counter in self._accepted_at[:taken]:
                counter.add(1)

    def _create_histograms(self, bounds: Mapping[str, Sequence[float]]) -> None:
        def histogram(name: str, family: str, text: str) -> Histogram:
            return self._registry.histogram(f"vllm:{name}", text, self._labels, bounds[family])

        self._prompt_length = histogram("request_prompt_tokens", "request_tokens", "Prompt tokens of a request.")
        self._output_length = histogram("request_generation_tokens", "request_tokens", "Output tokens of a request.")
        self._iteration = histogram("iteration_tokens_total", "iteration_tokens", "Tokens of an engine step.")
        self._max_output = histogram(
            "request_max_num_generation_tokens", "request_tokens", "Most output tokens of a request's choices."
        )
        self._param_n = histogram("request_params_n", "request_params_n", "The parameter n of a request.")
        self._param_max = histogram("request_params_max_tokens", "request_tokens", "The parameter max_tokens.")
        self._ttft = histogram("time_to_first_token_seconds", "time_to_first_token", "Seconds to the first token.")
        self._itl = histogram("inter_token_latency_seconds", "inter_token_latency", "Seconds between tokens.")
        self._tpot = histogram(
            "request_time_per_output_token_seconds", "inter_token_latency", "A request's mean seconds per token."
        )
        self._e2e = histogram("e2e_request_latency_seconds", "request_latency", "Seconds from arrival to the end.")
        self._queue = histogram("request_queue_time_seconds", "request_latency", "Seconds in the queue.")
        self._inference = histogram("request_inference_time_seconds", "request_latency", "Seconds in the batch.")
        self._prefill = histogram("request_prefill_time_seconds", "request_latency", "Seconds from batch to token.")
        self._decode = histogram("request_decode_time_seconds", "request_latency", "Seconds from first to last token.")
        self._request_preemptions = histogram(
            "request_num_preemptions", "request_num_preemptions", "Preemptions of a request."
        )
        self._computed = histogram(
            "request_prefill_kv_computed_tokens", "request_tokens", "Prompt tokens computed, cached ones left out."
        )
        if self._kv_metrics:
            self._block_life = histogram("kv_block_lifetime_seconds", "kv_cache_residency", "Life of a KV block.")
            self._block_idle = histogram(
                "kv_block_idle_before_evict_seconds", "kv_cache_residency", "Idle time of a KV block at eviction."
            )
            self._block_gap = histogram(
                "kv_block_reuse_gap_seconds", "kv_cache_residency", "Time between touches of a KV block."
            )

    def _counter(self, name: str, text: str, **labels: str) -> Value:
        return self._registry.value(f"vllm:{name}_total", "counter", text, {**self._labels, **labels})

    def _gauge(self, name: str, text: str, **labels: str) -> Value:
        return self._registry.value(f"vllm:{name}", "gauge", text, {**self._labels, **labels})

    def rejected(self, reason: str) -> None:
        """A request met a queue limit."""
        self._rejected[reason].add(1)

    def gauges(self, engine: Engine) -> None:
        """Set the gauges and the cache counters to what the engine says now."""
        self._running.set(engine.running)
        self._waiting.set(engine.waiting)
        self._waiting_capacity.set(engine.waiting)
        self._usage.set(engine.kv_usage)
        self._queries.set(engine.prefix_queries_tokens)
        self._hits.set(engine.prefix_hits_tokens)
        self._cached_by["device"].set(engine.prefix_hits_tokens)

    def step(self, result: StepResult, prompt_tokens: int) -> None:
        """A step ended; `prompt_tokens` are those of the requests that got their first token in it."""
        self._generation.add(result.generated_tokens)
        if self._drafts is not None:
            self._count_drafts(result)
        self._iteration.observe(prompt_tokens + result.generated_tokens)
        if self._kv_metrics:
            for eviction in result.evictions:
                self._block_life.observe(eviction.lifetime_seconds)
                self._block_idle.observe(eviction.idle_seconds)
                for gap in eviction.reuse_gaps_seconds:
                    self._block_gap.observe(gap)

    def inter_token(self, seconds: float, times: int) -> None:
        """`times` requests waited that long for their next token."""
        self._itl.observe(seconds, times)

    def first_token(self, sequence: EngineSequence, seconds: float) -> None:
        """A request got its first token `seconds` after it arrived."""
        prompt = sequence.request.prompt_tokens
        self._ttft.observe(seconds)
        self._prompt.add(prompt)
        self._prompt_by["local_compute"].add(prompt - sequence.cached_tokens)
        self._prompt_by["local_cache_hit"].add(sequence.cached_tokens)
        self._cached.add(sequence.cached_tokens)

    def preempted(self, times: int) -> None:
        """A request that was preempted `times` speaks again: vLLM counts it only now."""
        self._preemptions.add(times)

    def finished(self, sequence: EngineSequence, reason: str, e2e_seconds: float, max_tokens: int | None) -> None:
        """A request got its last token; only now do its own figures enter the histograms."""
        first, last, scheduled = sequence.first_token_at, sequence.last_token_at, sequence.scheduled_at
        assert first is not None
        assert last is not None
        assert scheduled is not None
        tokens = sequence.generated
        self._success[reason].add(1)
        self._prompt_length.observe(sequence.request.prompt_tokens)
        self._output_length.observe(tokens)
        self._max_output.observe(tokens)
        self._param_n.observe(1)
        if max_tokens is not None:
            self._param_max.observe(max_tokens)
        self._e2e.observe(e2e_seconds)
        self._queue.observe(scheduled - sequence.eligible_at)
        self._inference.observe(last - scheduled)
        self._prefill.observe(first - scheduled)
        self._decode.observe(last - first)
        self._tpot.observe((last - first) / (tokens - 1) if tokens > 1 else 0.0)
        self._request_preemptions.observe(sequence.preemptions)
        self._computed.observe(sequence.request.prompt_tokens - sequence.cached_tokens)
