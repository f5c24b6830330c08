"""Addresses out of the pod range: pods from its start, nodes from its end."""

from __future__ import annotations

import ipaddress


class AddressPool:
    """Hands out one address per owner; an address that was released is used again last."""

    def __init__(self, cidr: str) -> None:
        """`cidr` is the pod range, inside 127.0.0.0/8."""
        network = ipaddress.ip_network(cidr, strict=False)
        self._first = int(network.network_address) + 1
        self._last = int(network.broadcast_address) - 1
        self._next_pod = self._first + 255  # leave the first 256: people read 127.x.0.y as special
        self._next_node = self._last
        self._owners: dict[str, str] = {}
        self._taken: dict[str, str] = {}
        self._free: list[str] = []

    def node(self) -> str:
        """An address for a node, for ever."""
        address = str(ipaddress.ip_address(self._next_node))
        self._next_node -= 1
        return address

    def take(self, owner: str, wanted: str | None = None) -> str:
        """The address of an owner: the one it has, the wanted one if free, else a new one. RuntimeError if none."""
        if owner in self._owners:
            return self._owners[owner]
        usable = wanted is not None and wanted not in self._taken and self._holds(wanted)
        address = wanted if wanted is not None and usable else self._fresh()
        self._owners[owner] = address
        self._taken[address] = owner
        return address

    def _holds(self, address: str) -> bool:
        return self._first <= int(ipaddress.ip_address(address)) <= self._next_node

    def _fresh(self) -> str:
        while self._next_pod < self._next_node:
            address = str(ipaddress.ip_address(self._next_pod))
            self._next_pod += 1
            if address not in self._taken:
                return address
        while self._free:
            address = self._free.pop(0)
            if address not in self._taken:
                return address
        raise RuntimeError("the pod range is used up")

    def release(self, owner: str) -> None:
        """Give an owner's address back; no-op when it has none."""
        address = self._owners.pop(owner, None)
        if address is not None:
            del self._taken[address]
            self._free.append(address)

    def owner_of(self, address: str) -> str | None:
        """Who has an address now."""
        return self._taken.get(address)
