"""Requests as the engine model sees them, and what an engine is configured with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


class RequestError(ValueError):
    """A request that this engine can never serve."""


class AdmissionRejectedError(Exception):
    """A queue limit is reached; `reason` is the label vLLM gives it: max_num_queued_reqs or max_num_queued_tokens."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The scheduler settings of one engine, named as vLLM's flags. `kv_blocks` counts the null block, as vLLM does."""

    kv_blocks: int
    block_size: int = 16
    max_model_len: int = 131072
    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 256
    max_num_active_seqs: int | None = None
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    max_num_queued_reqs: int | None = None
    max_num_queued_tokens: int | None = None
    kv_metrics_sample: float = 0.0
    # Tokens drafted at a time (0: no speculation), the chance that one is accepted if those before it were, and the
    # share of steps of a sequence that have a draft. What happens to a draft follows from the sequence and its length.
    speculative_tokens: int = 0
    draft_acceptance: float = 0.0
    draft_coverage: float = 1.0

    def __post_init__(self) -> None:
        """Raise `ValueError`, naming the field, for settings that vLLM refuses too."""
        for name in ("block_size", "max_model_len", "max_num_batched_tokens", "max_num_seqs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} must be at least 1")
        for name in ("draft_acceptance", "draft_coverage"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name}: {getattr(self, name)} must be within 0..1")
        if self.speculative_tokens < 0:
            raise ValueError(f"speculative_tokens: {self.speculative_tokens} must not be negative")
        for name in ("max_num_queued_reqs", "max_num_queued_tokens", "long_prefill_token_threshold"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name}: {value} must not be negative")
        if self.max_num_active_seqs is not None and not 1 <= self.max_num_active_seqs <= self.max_num_seqs:
            raise ValueError(f"max_num_active_seqs: {self.max_num_active_seqs} must be within 1..max_num_seqs")
        if not self.enable_chunked_prefill and self.max_num_batched_tokens < self.max_model_len:
            raise ValueError("max_num_batched_tokens: must reach max_model_len when chunked prefill is off")
        if (self.kv_blocks - 1) * self.block_size < self.max_model_len:
            raise ValueError(f"kv_blocks: {self.kv_blocks} cannot hold one request of max_model_len")

    @property
    def max_batch(self) -> int:
        """Sequences that may run at once."""
        return self.max_num_seqs if self.max_num_active_seqs is None else self.max_num_active_seqs


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """`output_tokens` is where generation ends. `block_hashes` name the full blocks of the prompt, each chained to
    its parent; without them the prompt shares nothing with any other."""

    request_id: str
    prompt_tokens: int
    output_tokens: int
    block_hashes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Raise `RequestError` for an empty prompt or no output."""
        if self.prompt_tokens < 1:
            raise RequestError(f"prompt_tokens: {self.prompt_tokens} must be at least 1")
        if self.output_tokens < 1:
            raise RequestError(f"output_tokens: {self.output_tokens} must be at least 1")


@dataclass(slots=True, eq=False)
class Sequence:
    """One request on its way through an engine. Times are the caller's seconds; None means not yet.

    `computed` counts tokens with KV in `blocks`, `generated` output tokens so far, `cached_tokens` those of the prompt
    that the prefix cache supplied at the first admission. `decoding` says that its prompt is complete. `owner` is the
    caller's and never looked at.
    """

    request: EngineRequest
    target: int
    arrived_at: float
    eligible_at: float
    owner: Any = None
    serial: int = 0
    order: int = 0
    blocks: list[int] = field(default_factory=list)
    computed: int = 0
    generated: int = 0
    cached_tokens: int = 0
    decoding: bool = False
    preemptions: int = 0
    scheduled_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None

    @property
    def total_tokens(self) -> int:
        """Prompt and output tokens that exist."""
        return self.request.prompt_tokens + self.generated

    @property
    def finished(self) -> bool:
        """Whether every output token exists."""
        return self.generated >= self.target

    def hash_at(self, index: int) -> int:
        """The hash of the index-th full block: the prompt's own where given, else one that only this sequence has."""
        hashes = self.request.block_hashes
        return hashes[index] if index < len(hashes) else hash((0x5EED, self.serial, index))
