"""GPUs of nodes, as the scheduler gives them out."""

from __future__ import annotations

from collections.abc import Sequence


class Nodes:
    """A pod goes to the node with most free GPUs, the first of equals, and holds them until it is gone."""

    def __init__(self, gpus_per_node: Sequence[int]) -> None:
        self._free = list(gpus_per_node)
        self.installed = sum(gpus_per_node)

    def __len__(self) -> int:
        return len(self._free)

    @property
    def used(self) -> int:
        """GPUs that pods hold."""
        return self.installed - sum(self._free)

    def place(self, gpus: int) -> int | None:
        """Take GPUs of one node and return its number; None: no node has so many."""
        best = max(range(len(self._free)), key=lambda node: (self._free[node], -node), default=None)
        if best is None or self._free[best] < gpus:
            return None
        self._free[best] -= gpus
        return best

    def release(self, node: int, gpus: int) -> None:
        """Give GPUs back."""
        self._free[node] += gpus
