"""Nodes that die, come back, are cordoned and drained, with what the control plane makes of it and when."""

from __future__ import annotations

from collections import Counter

from goodput.simulator.fleet.events import Events
from goodput.simulator.fleet.faults import NodeCordon, NodeFailure
from goodput.simulator.fleet.pods import Pod
from goodput.simulator.fleet.pool import Pool

# `kubectl drain` asks again this often for an eviction that the disruption budget refused.
_EVICTION_RETRY_SECONDS = 5.0


class Outages:
    """Faults of nodes.

    A node that does not answer turns NotReady after `grace_seconds`, and so do its pods; `eviction_seconds` later they
    are deleted, and stay Terminating until a kubelet confirms it. One that is back in time starts containers again.
    """

    def __init__(self, events: Events, pool: Pool, *, grace_seconds: float, eviction_seconds: float) -> None:
        self._events = events
        self._pool = pool
        self._grace_seconds = grace_seconds
        self._eviction_seconds = eviction_seconds
        self._failures: Counter[int] = Counter()  # of each node so far

    def plan(self, fault: NodeFailure | NodeCordon) -> None:
        """Let it happen at its time; raise `ValueError` for a node that is not there."""
        if not 0 <= fault.node < self._pool.nodes.count:
            raise ValueError(f"faults: there is no node {fault.node}")
        if isinstance(fault, NodeFailure):
            self._events.at(fault.at_seconds, self._fail, fault)
        else:
            self._events.at(fault.from_seconds, self._cordon, fault)
            self._events.at(fault.to_seconds, self._uncordon, fault.node)

    # ---------------------------------------------------------------- a node dies
    def _fail(self, fault: NodeFailure) -> None:
        node, nodes = fault.node, self._pool.nodes
        if node in nodes.dead:
            return
        nodes.dead.add(node)
        self._failures[node] += 1
        for pod in self._pods(node):
            self._pool.lose(pod)
        self._events.at(self._events.now + self._grace_seconds, self._notice, node, self._failures[node])
        if fault.back_at_seconds is not None:
            self._events.at(fault.back_at_seconds, self._return, node)

    def _notice(self, node: int, failure: int) -> None:
        if node not in self._pool.nodes.dead or failure != self._failures[node]:
            return
        self._pool.nodes.not_ready.add(node)
        for pod in self._pods(node):
            pod.reported = None
        self._events.at(self._events.now + self._eviction_seconds, self._evict_lost, node, failure)

    def _evict_lost(self, node: int, failure: int) -> None:
        if node in self._pool.nodes.not_ready and failure == self._failures[node]:
            for pod in self._pods(node):
                self._pool.abandon(pod)
            self._pool.fill()

    def _return(self, node: int) -> None:
        nodes = self._pool.nodes
        nodes.dead.discard(node)
        nodes.not_ready.discard(node)
        for pod in self._pods(node):
            self._pool.revive(pod)
        self._pool.place_pending()

    # ---------------------------------------------------------------- a node is cordoned
    def _cordon(self, fault: NodeCordon) -> None:
        self._pool.nodes.cordoned.add(fault.node)
        if fault.drain:
            self._drain(fault.node)

    def _uncordon(self, node: int) -> None:
        self._pool.nodes.cordoned.discard(node)
        self._pool.place_pending()

    def _drain(self, node: int) -> None:
        """Evict what may go now: at most one ready replica less than the Deployment asks for, and all that are not."""
        if node not in self._pool.nodes.cordoned:
            return
        rest = [pod for pod in self._pods(node) if pod.deleted_at is None]
        for pod in rest:
            if not pod.ready or self._pool.ready >= self._pool.desired:
                self._pool.evict(pod)
        if any(pod.deleted_at is None for pod in rest):
            self._events.at(self._events.now + _EVICTION_RETRY_SECONDS, self._drain, node)

    def _pods(self, node: int) -> list[Pod]:
        return [pod for pod in self._pool.pods if pod.node == node]
