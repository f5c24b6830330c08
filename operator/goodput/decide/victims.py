"""Which replicas go first when their number falls."""

from __future__ import annotations

from collections.abc import Mapping

from goodput.domain.observed import PodState, PodView, PoolView

# Costs of victims; every other pod keeps 0. The first to go has the lowest.
_LOWEST = -1000
_ORDER = {
    PodState.FAILED: 0,
    PodState.PENDING: 1,
    PodState.STARTING: 2,
    PodState.UNREADY: 3,
    PodState.READY: 4,
}


def victims(
    pool: PoolView, replicas: int, in_flight: Mapping[str, float], slow: str = ""
) -> tuple[tuple[str, int], ...]:
    """(pod, deletion cost) of the pods to remove for `replicas` to be left.

    On lost nodes first, then the one that is `slow`, then not ready, then who was chosen before, then the least loaded
    and the youngest.
    """
    alive = [pod for pod in pool.pods if pod.state is not PodState.TERMINATING]
    surplus = len(alive) - replicas
    if surplus <= 0:
        return ()

    def rank(pod: PodView) -> tuple[int, int, int, int, float, float, str]:
        return (
            0 if pod.node_lost else 1,
            0 if pod.name == slow else 1,
            _ORDER[pod.state],
            min(0, pod.deletion_cost),
            in_flight.get(pod.name, 0.0),
            -pod.created_at,
            pod.name,
        )

    chosen = sorted(alive, key=rank)[:surplus]
    return tuple(sorted((pod.name, _LOWEST + index) for index, pod in enumerate(chosen)))
