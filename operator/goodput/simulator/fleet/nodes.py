"""Nodes and their GPUs, as the scheduler gives them out."""

from __future__ import annotations

from collections.abc import Sequence


class Nodes:
    """A pod goes to the node with most free GPUs, the first of equals, and holds them until it is gone.

    Nodes that are not ready or cordoned get no pods; what the operator counts leaves them out.
    """

    def __init__(self, gpus_per_node: Sequence[int]) -> None:
        self._gpus = tuple(gpus_per_node)
        self._free = list(gpus_per_node)
        self.dead: set[int] = set()  # nothing runs there, whether the API server knows or not
        self.not_ready: set[int] = set()  # the API server knows
        self.cordoned: set[int] = set()

    def lost(self, node: int | None) -> bool:
        """Whether the API server has a node as not ready or cordoned."""
        return node in self.not_ready or node in self.cordoned

    def _usable(self) -> list[int]:
        return [node for node in range(len(self._gpus)) if not self.lost(node)]

    def __len__(self) -> int:
        return len(self._usable())

    @property
    def count(self) -> int:
        """Nodes, whether they can be used or not."""
        return len(self._gpus)

    @property
    def installed(self) -> int:
        """GPUs of nodes that can be used."""
        return sum(self._gpus[node] for node in self._usable())

    @property
    def used(self) -> int:
        """GPUs of such nodes that pods hold."""
        return sum(self._gpus[node] - self._free[node] for node in self._usable())

    def place(self, gpus: int) -> int | None:
        """Take GPUs of one node and return its number; None: no node has so many."""
        best = max(self._usable(), key=lambda node: (self._free[node], -node), default=None)
        if best is None or self._free[best] < gpus:
            return None
        self._free[best] -= gpus
        return best

    def release(self, node: int, gpus: int) -> None:
        """Give GPUs back."""
        self._free[node] += gpus
