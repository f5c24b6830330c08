"""One L40S for a small model: where tests that need some placement put it."""

from __future__ import annotations

from typing import Any

from goodput.domain.plan import Placement


def placement(**changes: Any) -> Placement:
    values: dict[str, Any] = {
        "gpu_type": "l40s",
        "resource_name": "nvidia.com/gpu",
        "node_selector": (("nvidia.com/gpu.product", "NVIDIA-L40S"),),
        "max_num_seqs": 64,
        "max_num_batched_tokens": 2048,
        "max_model_len": 8192,
        "max_num_queued_requests": 40,
        "max_num_queued_tokens": 8192,
        "capacity_rps": 3.1,
        "price_per_hour": 1.25,
    }
    return Placement(**{**values, **changes})
