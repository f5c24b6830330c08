"""Edges of the latency histograms that engines export.

vLLM's own edges are up to a factor of 2.5 apart, so that the share of requests within an objective could be anything.
A fixed grid makes every engine of the fleet countable in one sum; round values make most objectives exact edges, and
the thresholds known at start are added so that they are exact in any case. Edges are seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from goodput.domain.intent import Objective

# One decade, neighbours at most 15 % apart, on values that people write as objectives.
_DECADE = (
    *(1.0, 1.1, 1.25, 1.35, 1.5, 1.7, 1.85, 2.0, 2.25, 2.5, 2.75, 3.0),
    *(3.4, 3.75, 4.0, 4.5, 5.0, 5.5, 6.0, 6.75, 7.5, 8.5, 9.25),
)


def _dense(low: float, high: float) -> list[float]:
    """The grid from `low` (a power of ten) to `high`, both included."""
    edges = [round(low * scale * step, 9) for scale in (1.0, 10.0, 100.0) for step in _DECADE]
    return [edge for edge in edges if edge <= high]


# Dense where objectives usually lie; outside, edges only tell a little late from very late.
TTFT_EDGES = (
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    *_dense(0.1, 3.0),
    4.0,
    5.0,
    7.5,
    10.0,
    15.0,
    20.0,
    40.0,
    80.0,
    160.0,
    640.0,
)
TPOT_EDGES = (
    0.0025,
    0.005,
    0.0075,
    *_dense(0.01, 0.2),
    0.25,
    0.3,
    0.4,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    10.0,
    20.0,
    40.0,
    80.0,
)
E2E_EDGES = (0.1, 0.3, 0.5, 0.75, *_dense(1.0, 60.0), 75.0, 90.0, 120.0, 180.0, 240.0, 480.0, 960.0, 1920.0, 7680.0)


def _with_threshold(grid: Iterable[float], threshold_seconds: float | None) -> list[float]:
    edges = set(grid)
    if threshold_seconds is not None and threshold_seconds > 0:
        edges.add(threshold_seconds)
    return sorted(edges)


def bucket_edges(objective: Objective | None) -> dict[str, list[float]]:
    """Edges by vLLM's histogram family. `inter_token_latency` also rules time per output token of a request."""
    return {
        "time_to_first_token": _with_threshold(TTFT_EDGES, objective.ttft_seconds if objective else None),
        "inter_token_latency": _with_threshold(TPOT_EDGES, objective.tpot_seconds if objective else None),
        "request_latency": _with_threshold(E2E_EDGES, objective.e2e_seconds if objective else None),
    }


def buckets_argument(objective: Objective | None) -> str:
    """Value of `--custom-histogram-buckets`."""
    return json.dumps(bucket_edges(objective), separators=(",", ":"))
