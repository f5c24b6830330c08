"""The fleet of the published ramp: Qwen3-32B on two H100s a replica, as fast as llm-d reports its engines.

`ramp_fleet` is all of it, to be run with `traces.generators.published_ramp`. `RAMP_PLANT` is the truth of a replica,
`RAMP_ENGINE` its settings, `RAMP_OBJECTIVE` what is good. With even arrivals one replica holds `RAMP_REPLICA_RPS`: then
a KV pool of 70 sequences is full. Decision 25 has the fit, `benchmarks/ramp_plant.py` repeats it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from goodput.domain.intent import Objective
from goodput.simulator.capacity import engine_config
from goodput.simulator.derive import H100_SXM, QWEN3_32B, derive
from goodput.simulator.fleet.settings import FleetSettings
from goodput.simulator.traces.generators import PUBLISHED_RAMP

RAMP_MODEL = QWEN3_32B.name
RAMP_GPU_TYPE = "h100-sxm"
RAMP_OBJECTIVE = Objective(ttft_seconds=3.0, tpot_seconds=0.1, e2e_seconds=None)
RAMP_SECONDS = sum(phase.seconds for phase in PUBLISHED_RAMP)
# The least and the most replicas of the published run; it starts with the least, all of them ready.
RAMP_REPLICAS = (3, 8)
# Requests/s that one replica holds; a twentieth more is over the cliff.
RAMP_REPLICA_RPS = 1.4
# Prompt and output tokens of a mean request, and how many of them the KV pool is reported to hold half way.
MEAN_INPUT_TOKENS, MEAN_OUTPUT_TOKENS = 4000, 1000
_KV_SEQUENCES = 70
# 64 query heads of 128: QK and PV take 2 x 2 x 8,192 operations a layer for each pair of tokens.
ATTENTION_FLOPS_PER_TOKEN_PAIR = 4.0 * 64 * 64 * 128
# Shares of bandwidth and arithmetic that fit the points of vLLM 0.12 best, and how much faster llm-d's engines are.
POINTS_MBU, POINTS_MFU = 0.68, 0.46
FASTER = 1.12
# vLLM's own limits on cards of 70 GiB and more.
MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS = 8192, 1024

_POOL_TOKENS = _KV_SEQUENCES * (MEAN_INPUT_TOKENS + MEAN_OUTPUT_TOKENS // 2)

RAMP_PLANT = replace(
    derive(QWEN3_32B, H100_SXM, gpus=2),
    mbu=POINTS_MBU * FASTER,
    mfu=POINTS_MFU * FASTER,
    attention_flops_per_token_pair=ATTENTION_FLOPS_PER_TOKEN_PAIR,
    kv_pool_tokens=_POOL_TOKENS,
)
RAMP_ENGINE = engine_config(RAMP_PLANT, MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS)


def ramp_fleet(**changes: Any) -> FleetSettings:
    """The published run: 3 to 8 replicas on 16 GPUs, 3 of them ready when it starts, 135 s to start another.

    `changes` are fields of `FleetSettings`.
    """
    least, most = RAMP_REPLICAS
    fleet = FleetSettings(
        plant=RAMP_PLANT,
        engine=RAMP_ENGINE,
        objective=RAMP_OBJECTIVE,
        seconds=RAMP_SECONDS,
        replicas=least,
        min_replicas=least,
        max_replicas=most,
        gpu_type=RAMP_GPU_TYPE,
        gpus_per_node=(8, 8),
        startup_seconds=135.0,
    )
    return replace(fleet, **changes)
