"""Pods of one pool by state, counted once a tick."""

from __future__ import annotations

from goodput.domain.observed import PodState, PodView, PoolView
from goodput.domain.values import Value


def is_unschedulable(pod: PodView) -> bool:
    """Whether the scheduler found no node for it."""
    return pod.state is PodState.PENDING and "nschedulable" in pod.trouble


class Count(Value, frozen=True):
    """Numbers of pods; `starting` are pending or not yet ready, `lost` sit on lost nodes and are not terminating.

    `coming` are those that start and those that are asked for and were not created yet (or are refused).
    """

    ready: int
    starting: int
    coming: int
    failed: int
    unschedulable: int
    placed: int
    lost: int
    newest_ready_at: float

    @classmethod
    def of(cls, pool: PoolView) -> Count:
        ready = starting = failed = unschedulable = placed = lost = leaving = 0
        newest = 0.0
        for pod in pool.pods:
            state = pod.state
            if state is PodState.READY:
                ready += 1
            elif state is PodState.STARTING:
                starting += 1
            elif state is PodState.PENDING:
                starting += 1
                if is_unschedulable(pod):
                    unschedulable += 1
            elif state is PodState.FAILED:
                failed += 1
            elif state is PodState.TERMINATING:
                leaving += 1
            if pod.node is not None:
                placed += 1
            if pod.node_lost and state is not PodState.TERMINATING:
                lost += 1
            if pod.ready_at is not None and pod.ready_at > newest:
                newest = pod.ready_at
        coming = starting + max(0, pool.spec_replicas - (len(pool.pods) - leaving))
        return cls(ready, starting, coming, failed, unschedulable, placed, lost, newest)
