"""From a connection to the process that made it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from goodput_world.agent import sockets


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """(client, server) ends of a loopback connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        server, _ = listening.accept()
    with client, server:
        yield client, server


def test_a_connection_leads_to_its_socket(pair: tuple[socket.socket, socket.socket]) -> None:
    """Each end has its own inode; the kernel's answer and /proc agree."""
    client, server = pair
    ends = client.getsockname(), server.getsockname()

    inode = sockets.inode_of(*ends)

    assert inode == os.fstat(client.fileno()).st_ino
    assert sockets.inode_of(ends[1], ends[0]) == os.fstat(server.fileno()).st_ino
    assert sockets._from_proc(*ends) == inode


def test_a_connection_that_is_not_there_has_none() -> None:
    """None, not an error."""
    assert sockets.inode_of(("127.0.0.1", 1), ("127.0.0.1", 2)) is None


def test_the_last_owner_is_looked_at_first(pair: tuple[socket.socket, socket.socket]) -> None:
    """The others are then not looked at; an owner that is gone is not remembered."""
    inode = os.fstat(pair[0].fileno()).st_ino
    looked: list[str] = []

    def owner(name: str, pid: int) -> sockets.Owners:
        def pids() -> list[int]:
            looked.append(name)
            return [pid]

        return {name: pids}

    owners = {**owner("other", 1), **owner("ours", os.getpid())}
    search = sockets.HolderSearch()

    assert [search.find(inode, owners), search.find(inode, owners)] == ["ours", "ours"]
    assert looked == ["other", "ours", "ours"]
    assert search.find(inode, owner("other", 1)) is None
    assert search.find(inode + 1_000_000, owners) is None
