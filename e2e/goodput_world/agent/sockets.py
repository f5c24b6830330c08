"""Whose socket is that? From the two ends of a loopback connection to the process that holds its far end."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_ANY_COOKIE = b"\xff" * 8
_HEADER_BYTES = 16
_INODE_OFFSET = 68
"""Offset of `idiag_inode` in struct inet_diag_msg."""

_REMEMBERED = 16

Address = tuple[str, int]


def inode_of(local: Address, remote: Address) -> int | None:
    """The inode of the TCP socket on this machine with these two ends, None when there is none."""
    try:
        found = _ask_kernel(local, remote)
    except OSError:
        found = None
    return found if found is not None else _from_proc(local, remote)


def _ask_kernel(local: Address, remote: Address) -> int | None:
    """One sock_diag request: cheap however many connections the machine has."""
    ends = struct.pack(
        "!HH16s16sI8s",
        local[1],
        remote[1],
        socket.inet_aton(local[0]).ljust(16, b"\0"),
        socket.inet_aton(remote[0]).ljust(16, b"\0"),
        0,
        _ANY_COOKIE,
    )
    request = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + ends
    header = struct.pack("=IHHII", _HEADER_BYTES + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as asking:
        asking.settimeout(1)
        asking.send(header + request)
        answer = asking.recv(4096)
    kind = struct.unpack_from("=H", answer, 4)[0]
    if kind != _SOCK_DIAG_BY_FAMILY:
        return None
    inode: int = struct.unpack_from("=I", answer, _HEADER_BYTES + _INODE_OFFSET)[0]
    return inode or None


def _from_proc(local: Address, remote: Address) -> int | None:
    wanted = (_hex(local), _hex(remote))
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if (fields[1], fields[2]) == wanted:
                return int(fields[9]) or None
    return None


def _hex(address: Address) -> str:
    number = struct.unpack("=I", socket.inet_aton(address[0]))[0]
    return f"{number:08X}:{address[1]:04X}"


def holds_inode(pid: int, inode: int) -> bool:
    """Whether a process has this socket open."""
    wanted = f"socket:[{inode}]"
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                if os.readlink(f"{folder}/{name}") == wanted:
                    return True
    return False


Owners = Mapping[str, Callable[[], Iterable[int]]]
"""Owner -> the ids of its processes, asked for only when they are looked at."""


class HolderSearch:
    """Finds whose process holds a socket; owners found lately are tried first, for looking is what costs."""

    def __init__(self) -> None:
        """Nobody was found yet."""
        self._recent: dict[str, None] = {}

    def find(self, inode: int, owners: Owners) -> str | None:
        """The owner that has this socket open, None when none of them has."""
        recent = [owner for owner in reversed(self._recent) if owner in owners]
        for owner in (*recent, *(owner for owner in owners if owner not in self._recent)):
            if any(holds_inode(pid, inode) for pid in owners[owner]()):
                self._recent.pop(owner, None)
                self._recent[owner] = None
                while len(self._recent) > _REMEMBERED:
                    del self._recent[next(iter(self._recent))]
                return owner
        return None
