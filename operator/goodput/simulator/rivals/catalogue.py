"""Every rival law by its policy name, with what its guide has an operator measure or write before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from goodput.domain.intent import Objective
from goodput.simulator.rivals.aibrix import AibrixApa, AibrixKpa
from goodput.simulator.rivals.dynamo import Dynamo, StepSeconds
from goodput.simulator.rivals.hpa_kv import HpaKv
from goodput.simulator.rivals.hpa_queue import HpaQueue
from goodput.simulator.rivals.kubeai import KubeAi
from goodput.simulator.rivals.law import Law
from goodput.simulator.rivals.llmd_slo import LlmdSlo
from goodput.simulator.rivals.llmd_token import TAIL_SHARE, LlmdToken, prefill_threshold
from goodput.simulator.rivals.wva import Wva


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What was measured on one idle replica, and the prompts expected.

    `prefill_tokens_per_second` is llm-d's calibration (a full chunk over its median TTFT), `step_seconds` Dynamo's
    profile of the engine, `uncached_input_tokens` the mean prompt less what a prefix cache supplies.
    """

    prefill_tokens_per_second: float
    step_seconds: StepSeconds
    uncached_input_tokens: float


def rivals(objective: Objective, profile: Profile) -> dict[str, Law[Any]]:
    """The laws with their published defaults."""
    ttft, tpot = objective.ttft_seconds, objective.tpot_seconds
    velocity = profile.prefill_tokens_per_second
    laws: tuple[Law[Any], ...] = (
        LlmdSlo(ttft_seconds=ttft, tpot_seconds=tpot),
        LlmdSlo(ttft_seconds=ttft, tpot_seconds=tpot, predicted=True),
        LlmdToken(
            prefill_tokens_per_second=velocity,
            threshold_seconds=prefill_threshold(ttft, profile.uncached_input_tokens, velocity, TAIL_SHARE),
        ),
        Wva(),
        HpaQueue(),
        HpaKv(),
        AibrixApa(),
        AibrixKpa(),
        KubeAi(),
        Dynamo(step_seconds=profile.step_seconds, ttft_seconds=ttft, tpot_seconds=tpot),
    )
    return {law.name: law for law in laws}
