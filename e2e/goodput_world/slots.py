"""Side by side: each world on a machine takes a slot, which fixes its loopback ranges and where it looks for ports."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass

from goodput_world.errors import WorldError

SLOTS = 40
_FIRST_OCTET = 10
_FIRST_PORT = 20_000
_PORTS_PER_SLOT = 100


@dataclass(slots=True)
class Slot:
    """A world's share of 127.0.0.0/8 and of the ports below the ephemeral range; released when closed or at exit.

    The claim is an abstract Unix socket: it is scoped to the network namespace exactly as loopback addresses are,
    holds across users, and vanishes with its process.
    """

    number: int
    _claim: socket.socket
    _next_port: int = 0

    @property
    def service_cidr(self) -> str:
        """The range of ClusterIPs."""
        return f"127.{_FIRST_OCTET + 2 * self.number}.0.0/16"

    @property
    def pod_cidr(self) -> str:
        """The range of pod IPs."""
        return f"127.{_FIRST_OCTET + 2 * self.number + 1}.0.0/16"

    @property
    def api_service_ip(self) -> str:
        """The ClusterIP of `kubernetes.default`: the first address of the range."""
        return f"127.{_FIRST_OCTET + 2 * self.number}.0.1"

    def free_port(self) -> int:
        """A port of this slot that nobody listens on, never handed out twice. Raises WorldError when all are taken."""
        for port in self._candidates():
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            return port
        raise WorldError(f"no free port left in slot {self.number} ({_FIRST_PORT + self.number * _PORTS_PER_SLOT} up)")

    def _candidates(self) -> Iterator[int]:
        while self._next_port < _PORTS_PER_SLOT:
            self._next_port += 1
            yield _FIRST_PORT + self.number * _PORTS_PER_SLOT + self._next_port - 1

    def close(self) -> None:
        """Give the slot back."""
        self._claim.close()


def claim_slot() -> Slot:
    """The first free slot. Raises WorldError when as many worlds as there are slots run already."""
    for number in range(SLOTS):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(f"\0goodput-world-slot-{number}")
        except OSError:
            claim.close()
            continue
        return Slot(number, claim)
    raise WorldError(f"{SLOTS} worlds run on this machine already: stop one first")
