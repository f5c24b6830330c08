"""Learned start-up time: from the creation of a pod to its first Ready."""

from __future__ import annotations

from goodput.domain.memory import LoopMemory
from goodput.domain.observed import PodState, PoolView

_MOST = 32


def learn_startups(pool: PoolView, memory: LoopMemory) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """(`pods_seen_ready`, `startup_seconds`) with the pods that became ready since the last look.

    A pod that waited for a free GPU is marked as seen at once: its wait is not a start-up.
    """
    seen = memory.pods_seen_ready
    startups = memory.startup_seconds
    if seen == pool.tally.uids:
        return seen, startups
    known = set(seen)
    uids = {pod.uid for pod in pool.pods}
    new = [pod for pod in pool.pods if pod.uid not in known]
    for pod in new:
        if pod.state is PodState.PENDING and pod.trouble:
            known.add(pod.uid)
        elif pod.ready_at is not None and pod.ready_at > pod.created_at:
            known.add(pod.uid)
            # A pod from before our memory may have restarted since: its last Ready is no start-up.
            if pod.restarts == 0 and pod.created_at >= memory.born_at:
                startups = (*startups, round(pod.ready_at - pod.created_at, 2))[-_MOST:]
    return tuple(sorted(known & uids)), startups
