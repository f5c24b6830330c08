"""Turn this process into a container and run its command. Standard library only: it runs as a script of its own.

Usage: python -I -S sandbox.py SPEC_JSON STATUS_FD. The process gets a mount namespace of its own whose root holds the
host's system directories read-only, fresh /tmp, /run and /dev, and the pod's volumes; then it becomes the command.
What goes wrong before that is written to STATUS_FD, which closes when the command starts.

`enter(pid)` moves a process into a container that runs, for exec probes and preStop hooks.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
from typing import Any

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUTS = 0x04000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_SYS_MOUNT_SETATTR = 442
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 1

FRESH = ("tmp", "run", "dev", "proc", "var", "etc")
"""Top-level directories that are not the host's own."""
HOST_VIEW = "/.host"
"""Where the host's root is visible, read-only, behind the links in /etc and /var."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2). Raises OSError."""
    _check(
        _libc.mount(
            source.encode(), target.encode(), kind.encode() if kind else None, flags, data.encode() if data else None
        ),
        f"mount {source} on {target}",
    )


def make_private() -> None:
    """Keep every later mount in this namespace to itself."""
    mount("none", "/", None, _MS_REC | _MS_PRIVATE)


def _read_only(target: str) -> None:
    """Make a mount and all below it read-only."""
    attributes = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_RDONLY, 0, 0, 0)
    arguments = (-100, target.encode(), _AT_RECURSIVE, ctypes.byref(attributes), ctypes.c_size_t(32))
    if _libc.syscall(_SYS_MOUNT_SETATTR, *arguments) != 0:
        state = os.statvfs(target)  # a user namespace may not drop the flags that the mount has
        kept = state.f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)
        with contextlib.suppress(OSError):
            mount("none", target, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | kept)


def bind(source: str, target: str, *, read_only: bool = False) -> None:
    """Bind a file or directory, making the mount point. Raises OSError."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "ab"):
            pass
    mount(source, target, None, _MS_BIND | _MS_REC)
    if read_only:
        _read_only(target)


def tmpfs(target: str, size_bytes: int | None = None) -> None:
    """Mount a tmpfs of at most so many bytes (None: the kernel's default, half of the memory)."""
    os.makedirs(target, exist_ok=True)
    options = "mode=0777" + (f",size={size_bytes}" if size_bytes else "")
    mount("tmpfs", target, "tmpfs", _MS_NOSUID | _MS_NODEV, options)


def unmount(target: str) -> None:
    """Detach a mount, even one in use. Raises OSError."""
    _check(_libc.umount2(target.encode(), _MNT_DETACH), f"unmount {target}")


def _below(path: str, inside: list[str]) -> list[str]:
    """The mount paths that lie strictly below a path."""
    prefix = path.rstrip("/") + "/"
    return [item for item in inside if item.startswith(prefix)]


def _mirror(path: str, root: str, mounts: list[str]) -> None:
    """A directory of our own in place of the host's `path`: links to its entries, directories where mounts go."""
    os.makedirs(root + path, exist_ok=True)
    try:
        entries = os.listdir(path)
    except OSError:
        return
    for entry in entries:
        inner = f"{path}/{entry}"
        target = root + inner
        if inner in mounts or os.path.lexists(target):
            continue
        if _below(inner, mounts) and os.path.isdir(inner) and not os.path.islink(inner):
            _mirror(inner, root, mounts)
        elif os.path.islink(inner) and not os.path.realpath(inner).startswith("/run/"):
            os.symlink(os.readlink(inner), target)
        else:
            os.symlink(HOST_VIEW + os.path.realpath(inner), target)


def _system(root: str, mounts: list[str]) -> None:
    """The host's directories, read-only, in a new root."""
    bind("/", root + HOST_VIEW, read_only=True)
    for entry in sorted(os.listdir("/")):
        path = f"/{entry}"
        if entry in FRESH or path == HOST_VIEW:
            continue
        if os.path.islink(path):
            os.symlink(os.readlink(path), root + path)
        elif path in mounts:
            continue
        elif _below(path, mounts):
            _mirror(path, root, mounts)
        elif os.path.isdir(path):
            bind(path, root + path, read_only=True)
    for path in ("/etc", "/var"):
        _mirror(path, root, mounts)
    for path in ("/tmp", "/var/tmp", "/run"):
        if os.path.islink(root + path):
            os.unlink(root + path)
        os.makedirs(root + path, exist_ok=True)
        os.chmod(root + path, 0o1777)
    bind("/proc", root + "/proc")


def _devices(root: str, mounts: list[str]) -> None:
    os.makedirs(root + "/dev", exist_ok=True)
    for name in DEVICES:
        if os.path.exists(f"/dev/{name}"):
            bind(f"/dev/{name}", f"{root}/dev/{name}")
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"{root}/dev/{name}")
    if "/dev/shm" not in mounts:
        tmpfs(root + "/dev/shm", 64 * 2**20)  # the default of container runtimes


def build_root(spec: dict[str, Any]) -> None:
    """Build the container's root and enter it."""
    root = spec["root"]
    _check(_libc.unshare(_CLONE_NEWNS), "unshare the mount namespace")
    make_private()
    if _libc.unshare(_CLONE_NEWUTS) == 0:
        with contextlib.suppress(OSError):
            socket.sethostname(spec["hostname"][:63])
    os.makedirs(root, exist_ok=True)
    mount("tmpfs", root, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755,size=1g")
    # Real paths: a link such as /var/run -> /run would lead out of the new root before it is entered.
    volumes = sorted(
        ({**item, "path": os.path.realpath(item["path"])} for item in spec["mounts"]),
        key=lambda item: str(item["path"]).count("/"),
    )
    paths = [str(item["path"]) for item in volumes]
    _system(root, paths)
    _devices(root, paths)
    _offer(root, spec["host_paths"], spec["hidden"])
    # The volumes' sources were hidden just now in the new root only: the old one still shows them.
    for item in volumes:
        bind(item["source"], root + item["path"], read_only=item["read_only"])
    # A volume over /tmp or /home must not take away the programs of an installation that lies there. What it holds at
    # their places is what the mounts of an earlier start of the container left: empty folders.
    under = [path for path in spec["host_paths"] if any(_below(item, [path]) for item in paths)]
    _offer(root, under, spec["hidden"], over=True)
    working = os.path.realpath(spec["workdir"] or "/")
    if not os.path.isdir(root + working):
        os.makedirs(root + working, exist_ok=True)
    if spec["read_only_root"]:
        mount("none", root, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    _enter_root(root)
    os.chdir(working)


def _offer(root: str, host_paths: list[str], hidden: list[str], *, over: bool = False) -> None:
    """The host's paths that programs need, read-only, where the new root does not show them; the hidden stay so.

    `over` lays them over what is there.
    """
    for path in host_paths:
        if os.path.exists(path) and (over or not os.path.exists(root + path)) and not _hidden(path, hidden):
            bind(path, root + path, read_only=True)
    for path in hidden:
        for place in (root + path, root + HOST_VIEW + path):
            if os.path.isdir(place) and os.listdir(place):
                with contextlib.suppress(OSError):
                    mount("tmpfs", place, "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_RDONLY, "size=4k")


def _hidden(path: str, hidden: list[str]) -> bool:
    return any(path == item or path.startswith(item + "/") for item in hidden)


def _enter_root(root: str) -> None:
    os.chdir(root)
    number = _SYS_PIVOT_ROOT.get(os.uname().machine)
    if number is not None and _libc.syscall(number, b".", b".") == 0:
        _check(_libc.umount2(b".", _MNT_DETACH), "detach the host's root")
        os.chdir("/")
    else:  # the root is a ramdisk, which cannot be pivoted
        os.chroot(".")


def enter(pid: int) -> None:
    """Move this process into the mount namespace and root of a container's process. Raises OSError."""
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    root = os.open(f"/proc/{pid}/root", os.O_RDONLY)
    working = os.open(f"/proc/{pid}/cwd", os.O_RDONLY)
    with contextlib.suppress(OSError):  # without a hostname of its own it shares ours
        hostname = os.open(f"/proc/{pid}/ns/uts", os.O_RDONLY)
        _libc.setns(hostname, _CLONE_NEWUTS)
        os.close(hostname)
    _check(_libc.setns(namespace, _CLONE_NEWNS), f"enter the container of process {pid}")
    os.fchdir(root)
    os.chroot(".")
    os.fchdir(working)
    for descriptor in (namespace, root, working):
        os.close(descriptor)


def _die_with(parent: int) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(127)


def main() -> None:
    """Build the container of the spec, or enter the one whose `pid` it names, and become its command."""
    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.load(file)
    status = int(sys.argv[2])
    os.set_inheritable(status, False)
    _die_with(spec["parent"])
    try:
        if "pid" in spec:
            enter(spec["pid"])
        else:
            build_root(spec)
        os.umask(0o022)
        os.execvpe(spec["argv"][0], spec["argv"], spec["env"])
    except OSError as error:
        import shutil  # costs more than all else here, and is needed only now

        message = str(error)
        if shutil.which(spec["argv"][0], path=spec["env"].get("PATH")) is None:
            message = f'exec: "{spec["argv"][0]}": executable file not found in $PATH'
        os.write(status, message.encode())
        sys.exit(128)


if __name__ == "__main__":
    main()
