"""Pods of one pool by state, counted once a tick."""

from __future__ import annotations

from goodput.domain.observed import PodState, PoolView
from goodput.domain.values import Value


class Count(Value, frozen=True):
    """Numbers of pods; `starting` are pending or not yet ready, `lost` sit on lost nodes and are not terminating."""

    ready: int
    starting: int
    failed: int
    unschedulable: int
    placed: int
    lost: int
    newest_ready_at: float

    @classmethod
    def of(cls, pool: PoolView) -> Count:
        ready = starting = failed = unschedulable = placed = lost = 0
        newest = 0.0
        for pod in pool.pods:
            state = pod.state
            if state is PodState.READY:
                ready += 1
            elif state is PodState.STARTING:
                starting += 1
            elif state is PodState.PENDING:
                starting += 1
                if "nschedulable" in pod.trouble:
                    unschedulable += 1
            elif state is PodState.FAILED:
                failed += 1
            if pod.node is not None:
                placed += 1
            if pod.node_lost and state is not PodState.TERMINATING:
                lost += 1
            if pod.ready_at is not None and pod.ready_at > newest:
                newest = pod.ready_at
        return cls(ready, starting, failed, unschedulable, placed, lost, newest)
