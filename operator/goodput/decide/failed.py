"""Pods that fail to run, also while they start once more.

Between two crashes a container runs for as long as it takes to die. That it was started again is no end of a crash
loop: that it is ready is. What never ran (an image, a Secret that was missing) has no such pause: once it runs, it is
over.
"""

from __future__ import annotations

from msgspec.structs import replace

from goodput.domain.memory import LoopMemory
from goodput.domain.observed import PodState, PodView, PoolView

_STARTS_AGAIN = frozenset({PodState.STARTING, PodState.UNREADY})


def failed_pods(pool: PoolView, memory: LoopMemory) -> tuple[PodView, ...]:
    """Pods that fail, or did and are not ready since, each with the trouble that it had when it was down."""
    if not pool.tally.failed and not memory.failed:
        return ()
    known = dict(memory.failed)
    found = []
    for pod in pool.pods:
        if pod.state is PodState.FAILED:
            found.append(pod)
        elif pod.state in _STARTS_AGAIN and pod.restarts and pod.uid in known:
            found.append(replace(pod, trouble=known[pod.uid]))
    return tuple(found)


def remembered(failed: tuple[PodView, ...]) -> tuple[tuple[str, str], ...]:
    """Of those, what is to be known at the next look: (uid, trouble)."""
    return tuple(sorted((pod.uid, pod.trouble) for pod in failed))
