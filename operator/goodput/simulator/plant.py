"""What the simulated hardware can do: a roofline with efficiencies, and the time of one engine step.

A plant is the truth of a simulation. It is given as plain numbers and never shared with the controller, which has
to find out about it from times, as it would from a real engine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace


class PlantError(ValueError):
    """A plant description that cannot be used; the message names the field."""


@dataclass(frozen=True, slots=True)
class Plant:
    """One replica of one model on its GPUs.

    `mbu` and `mfu` are the shares (0..1] of `bandwidth_bytes_per_second` and `peak_flops_per_second` that the kernels
    reach. `kv_pool_tokens` is what the KV pool holds at vLLM's default `--gpu-memory-utilization` of 0.92.
    `request_overhead_seconds` passes between a request's arrival and the scheduler (tokenising, process hops).
    `draft_acceptance` and `draft_coverage` are what becomes of drafts where the engine speculates.
    With `gpu_memory_bytes` (per GPU) the pool follows the memory flags, as in vLLM.
    """

    weights_bytes: float
    flops_per_token: float
    kv_bytes_per_token: float
    bandwidth_bytes_per_second: float
    peak_flops_per_second: float
    mbu: float
    mfu: float
    step_overhead_seconds: float
    per_sequence_overhead_seconds: float
    kv_pool_tokens: int
    startup_seconds: float
    host_memory_bytes: float
    request_overhead_seconds: float
    attention_flops_per_token_pair: float = 0.0
    gpus: int = 1
    gpu_memory_bytes: float | None = None
    activation_bytes: float = 0.0
    max_model_len: int | None = None
    teardown_seconds: float = 0.0
    draft_acceptance: float = 0.7
    draft_coverage: float = 1.0
    gated: bool = False

    def __post_init__(self) -> None:
        """Raise `PlantError` for a number that no hardware has."""
        positive = (
            "weights_bytes",
            "flops_per_token",
            "kv_bytes_per_token",
            "bandwidth_bytes_per_second",
            "peak_flops_per_second",
            "mbu",
            "mfu",
            "kv_pool_tokens",
            "gpus",
        )
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in positive and not value > 0:
                raise PlantError(f"plant.{field.name}: {value!r} must be greater than 0")
            if isinstance(value, int | float) and value < 0:
                raise PlantError(f"plant.{field.name}: {value!r} must not be negative")
        for name in ("mbu", "mfu", "draft_acceptance", "draft_coverage"):
            if getattr(self, name) > 1:
                raise PlantError(f"plant.{name}: {getattr(self, name)!r} is a share and must not exceed 1")

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> Plant:
        """Build a plant from decoded JSON; keys that start with `_` and `comment` are notes.

        Raises `PlantError` on a missing or unknown key, or a value of the wrong type.
        """
        known = {field.name: field for field in fields(cls)}
        arguments: dict[str, object] = {}
        for key, value in values.items():
            if key == "comment" or key.startswith("_"):
                continue
            if key not in known:
                raise PlantError(f"plant.{key}: unknown field; known are {', '.join(sorted(known))}")
            wanted = (bool,) if key == "gated" else (int, float)
            if value is not None and (not isinstance(value, wanted) or (key != "gated" and isinstance(value, bool))):
                raise PlantError(f"plant.{key}: {value!r} is not a {'boolean' if key == 'gated' else 'number'}")
            arguments[key] = value
        try:
            return cls(**arguments)  # type: ignore[arg-type]  # checked key by key above
        except TypeError as error:
            raise PlantError(f"plant: {error}") from None

    def with_gpus(self, gpus: int) -> Plant:
        """The same model spread over another number of GPUs by tensor parallelism.

        Each doubling keeps 3/4 of the bandwidth efficiency and 9/10 of the arithmetic one: all-reduces and thinner
        kernels. (Measured MBU of vLLM: Llama-70B fp8 on H100 .61 at TP2, .45 at TP4, .29 at TP8.)
        """
        if gpus == self.gpus:
            return self
        doublings = math.log2(gpus / self.gpus)
        scale = gpus / self.gpus
        return replace(
            self,
            gpus=gpus,
            bandwidth_bytes_per_second=self.bandwidth_bytes_per_second * scale,
            peak_flops_per_second=self.peak_flops_per_second * scale,
            mbu=min(1.0, self.mbu * 0.75**doublings),
            mfu=min(1.0, self.mfu * 0.9**doublings),
        )


@dataclass(frozen=True, slots=True)
class StepTimeModel:
    """Time of one engine step by the roofline: the slower of memory traffic and arithmetic, plus launch overhead."""

    seconds_per_byte: float
    seconds_per_flop: float
    weights_bytes: float
    kv_bytes_per_token: float
    flops_per_token: float
    attention_flops_per_token_pair: float
    step_overhead_seconds: float
    per_sequence_overhead_seconds: float

    @classmethod
    def of(cls, plant: Plant) -> StepTimeModel:
        """The step times of `plant`."""
        return cls(
            seconds_per_byte=1.0 / (plant.bandwidth_bytes_per_second * plant.mbu),
            seconds_per_flop=1.0 / (plant.peak_flops_per_second * plant.mfu),
            weights_bytes=plant.weights_bytes,
            kv_bytes_per_token=plant.kv_bytes_per_token,
            flops_per_token=plant.flops_per_token,
            attention_flops_per_token_pair=plant.attention_flops_per_token_pair,
            step_overhead_seconds=plant.step_overhead_seconds,
            per_sequence_overhead_seconds=plant.per_sequence_overhead_seconds,
        )

    def step_seconds(
        self, prefill_tokens: int, decode_seqs: int, kv_tokens_read: float, attention_pairs: float = 0.0
    ) -> float:
        """Seconds of a step over `prefill_tokens` prompt tokens and one token of each of `decode_seqs` sequences.

        `kv_tokens_read` is the sum of contexts that attention reads from the KV pool; `attention_pairs` the sum over
        prompt tokens of the tokens before them (the quadratic part of prefill).
        """
        traffic = (self.weights_bytes + kv_tokens_read * self.kv_bytes_per_token) * self.seconds_per_byte
        arithmetic = self.flops(prefill_tokens + decode_seqs, attention_pairs) * self.seconds_per_flop
        return max(traffic, arithmetic) + self.step_overhead_seconds + decode_seqs * self.per_sequence_overhead_seconds

    def flops(self, tokens: int, attention_pairs: float = 0.0) -> float:
        """Floating point operations for `tokens` tokens of which `attention_pairs` look back in a prompt."""
        return tokens * self.flops_per_token + attention_pairs * self.attention_flops_per_token_pair
