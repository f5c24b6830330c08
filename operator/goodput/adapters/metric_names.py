"""Every metric name that Goodput reads, in one place, with the names that vLLM versions gave it.

A quantity may have several names: the first is what vLLM 0.32 and 0.33 export, later ones are what older versions did.
A query asks for all of them at once; whichever a pod exports is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

POD_LABEL_MODEL = "goodput_dev_model"
POD_LABEL_POOL = "goodput_dev_pool"


class Quantity(StrEnum):
    """What is measured, whatever its metric is called."""

    FIRST_TOKENS = "first tokens"
    FINISHED = "finished requests"
    RUNNING = "running requests"
    WAITING = "waiting requests"
    REJECTED = "rejected requests"
    TTFT_WITHIN = "time to first token"
    TPOT_WITHIN = "time per output token"
    E2E_WITHIN = "end-to-end time"
    PROMPT_TOKENS = "prompt tokens"
    CACHED_PROMPT_TOKENS = "cached prompt tokens"
    GENERATION_TOKENS = "generation tokens"
    ITL_SUM = "inter-token latency, sum"
    ITL_COUNT = "inter-token latency, count"
    PREFILL_SUM = "prefill time of requests, sum"
    PREFILL_COUNT = "prefill time of requests, count"
    DRAFTS = "drafts of speculative decoding"
    ACCEPTED_TOKENS = "accepted tokens of speculative decoding"
    ROUTER_ATTEMPTS = "attempts of the router"
    ROUTER_RETRIES = "retries of the router"
    ROUTER_ERRORS = "errors of the router"
    ROUTER_EXHAUSTED = "requests that failed after all retries of the router"


@dataclass(frozen=True, slots=True)
class Names:
    """Alternative metric names of one quantity, newest first."""

    alternatives: tuple[str, ...]

    @property
    def regex(self) -> str:
        return "|".join(self.alternatives)


def _names(*alternatives: str) -> Names:
    return Names(alternatives)


ENGINE_COUNTERS: dict[Quantity, Names] = {
    Quantity.FIRST_TOKENS: _names("vllm:time_to_first_token_seconds_count"),
    # Aborted requests are in neither of these: vLLM observes a request's times only when it finishes.
    Quantity.FINISHED: _names("vllm:e2e_request_latency_seconds_count"),
    Quantity.RUNNING: _names("vllm:num_requests_running"),
    Quantity.WAITING: _names("vllm:num_requests_waiting"),
    Quantity.REJECTED: _names("vllm:admission_rejections_total"),
}
ENGINE_BUCKETS: dict[Quantity, Names] = {
    Quantity.TTFT_WITHIN: _names("vllm:time_to_first_token_seconds_bucket"),
    # Until 0.10 the per-request mean had no histogram of its own; the old name was per token and is not the same.
    Quantity.TPOT_WITHIN: _names("vllm:request_time_per_output_token_seconds_bucket"),
    Quantity.E2E_WITHIN: _names("vllm:e2e_request_latency_seconds_bucket"),
}
POOL_SUMS: dict[Quantity, Names] = {
    Quantity.PROMPT_TOKENS: _names("vllm:prompt_tokens_total"),
    Quantity.CACHED_PROMPT_TOKENS: _names("vllm:prompt_tokens_cached_total", "vllm:prefix_cache_hits_total"),
    Quantity.GENERATION_TOKENS: _names("vllm:generation_tokens_total"),
    Quantity.ITL_SUM: _names("vllm:inter_token_latency_seconds_sum", "vllm:time_per_output_token_seconds_sum"),
    Quantity.ITL_COUNT: _names("vllm:inter_token_latency_seconds_count", "vllm:time_per_output_token_seconds_count"),
    # From the first step that a request is scheduled in to its first token; observed when the request finishes.
    Quantity.PREFILL_SUM: _names("vllm:request_prefill_time_seconds_sum"),
    Quantity.PREFILL_COUNT: _names("vllm:request_prefill_time_seconds_count"),
    # Only engines that speculate export these.
    Quantity.DRAFTS: _names("vllm:spec_decode_num_drafts_total"),
    Quantity.ACCEPTED_TOKENS: _names("vllm:spec_decode_num_accepted_tokens_total"),
}
REQUEST_SECONDS_BUCKET = _names("vllm:e2e_request_latency_seconds_bucket")
# No single counter of the router counts each request of a user once, at its arrival (docs/router-facts.md).
ROUTER_COUNTERS: dict[Quantity, Names] = {
    Quantity.ROUTER_ATTEMPTS: _names("vllm_router_processed_requests_total"),
    Quantity.ROUTER_RETRIES: _names("vllm_router_retries_total"),
    Quantity.ROUTER_ERRORS: _names("vllm_router_request_errors_total"),
    Quantity.ROUTER_EXHAUSTED: _names("vllm_router_retries_exhausted_total"),
}
ROUTER_ERROR_TYPE = "error_type"
# An attempt that found no engine is in no other counter of attempts.
ROUTER_NO_WORKER = "no_available_workers"
# An engine refused the request itself (4xx): it is not tried again.
ROUTER_REFUSED = "non_retryable_error"
