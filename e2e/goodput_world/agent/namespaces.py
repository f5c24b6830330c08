"""The agent's own mount namespace, as root or in a user namespace. Standard library only."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from goodput_world.agent import sandbox

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000


def enter_namespaces() -> None:
    """Give this process mounts of its own, so that they vanish with it. Raises OSError with advice when forbidden."""
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(_CLONE_NEWNS) != 0:
        if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS) != 0:
            number = ctypes.get_errno()
            raise OSError(
                number,
                f"cannot make a mount namespace ({os.strerror(number)}): allow unprivileged user namespaces "
                "(sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0) "
                "or run as root",
            )
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    sandbox.make_private()
