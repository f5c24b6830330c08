"""Build Go programs into a cache: one program at a time, each put in place whole, so that an interrupted build resumes.

A folder of the cache is named after everything that decides its content, so nothing in it is ever rebuilt or stale.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from goodput_world.errors import BinaryError
from goodput_world.processes import die_with_parent, tail_of

OLDEST_GO = (1, 26)
_REPORT_SECONDS = 10.0
_REFERENCE_CORES = 2

Progress: TypeAlias = Callable[[str], None]
"""Takes a line of text for people."""


@dataclass(frozen=True, slots=True)
class Target:
    """A program and the package it is built from; `reference_seconds` is its build time on two idle cores."""

    program: str
    package: str
    reference_seconds: float


@dataclass(frozen=True, slots=True)
class Group:
    """Programs of one Go module; without a module folder, the package is `package@version` to install as it is."""

    name: str
    module: Path | None
    ldflags: str
    targets: tuple[Target, ...]
    tags: str = ""


def print_progress(line: str) -> None:
    """Progress on standard error, so that standard output stays for results."""
    print(f"[world] {line}", file=sys.stderr, flush=True)


def cache_root() -> Path:
    """`${GOODPUT_CACHE:-${XDG_CACHE_HOME:-~/.cache}/goodput}`."""
    if chosen := os.environ.get("GOODPUT_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "goodput"


def go_version() -> str:
    """What `go version` prints. Raises BinaryError, saying what to do, when Go is missing or older than needed."""
    need = ".".join(map(str, OLDEST_GO))
    advice = f"install Go {need} or newer, or name a folder with the programs in KUBEBUILDER_ASSETS"
    try:
        text = subprocess.run(["go", "version"], capture_output=True, text=True, check=True).stdout.strip()
    except FileNotFoundError:
        raise BinaryError(f"`go` is not on PATH: {advice}") from None
    except subprocess.CalledProcessError as error:
        raise BinaryError(f"`go version` failed: {error.stderr.strip()}") from error
    found = re.search(r"go(\d+)\.(\d+)", text)
    if not found or (int(found[1]), int(found[2])) < OLDEST_GO:
        raise BinaryError(f"{text} is too old: {advice}")
    return text


def cache_folder(group: Group) -> Path:
    """The folder of a group's programs: named by the hash of its go.mod, go.sum, the Go version, targets and flags."""
    digest = hashlib.sha256()
    if group.module is not None:
        for name in ("go.mod", "go.sum"):
            digest.update((group.module / name).read_bytes())
    version = go_version()
    for part in (
        version,
        group.ldflags,
        group.tags,
        *(f"{target.program}={target.package}" for target in group.targets),
    ):
        digest.update(part.encode() + b"\0")
    return cache_root() / f"{group.name}-{digest.hexdigest()[:16]}"


def build(group: Group, targets: Sequence[Target], folder: Path, progress: Progress) -> None:
    """Build the targets that the folder lacks. Raises BinaryError with the compiler's words when one fails."""
    folder.mkdir(parents=True, exist_ok=True)
    with _only_one(folder, group, progress):
        for target in targets:
            if not os.access(folder / target.program, os.X_OK):  # another run may have built it while we waited
                _build_one(group, target, folder, progress)


@contextlib.contextmanager
def _only_one(folder: Path, group: Group, progress: Progress) -> Iterator[None]:
    """Hold the folder's lock; the kernel frees it when its holder dies, so a killed build blocks nobody."""
    with (folder / ".lock").open("w") as lock:
        waited_since = time.monotonic()
        reported = 0.0
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - reported >= _REPORT_SECONDS:
                    reported = time.monotonic()
                    progress(
                        f"{_minutes(reported - waited_since)} waiting for another run that builds {group.name}:"
                        f" {_read_status(folder)}"
                    )
                time.sleep(0.5)
        yield


def _build_one(group: Group, target: Target, folder: Path, progress: Progress) -> None:
    """`go build` into a temporary folder, then one rename."""
    partial = folder / f".partial-{target.program}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    log = folder / f"{target.program}.log"
    environment = {**os.environ, "CGO_ENABLED": "0"}
    flags = ["-v", "-trimpath", "-ldflags", group.ldflags, *(["-tags", group.tags] if group.tags else [])]
    if group.module is None:
        command = ["go", "install", *flags, target.package]
        environment["GOBIN"] = str(partial)
        environment.pop("GOFLAGS", None)  # a -mod flag of the user's is refused outside a module
    else:
        command = ["go", "build", *flags, "-o", str(partial / target.program), target.package]
    total_seconds = target.reference_seconds * _REFERENCE_CORES / max(1, os.cpu_count() or 1)

    def report(elapsed_seconds: float) -> None:
        line = _describe(target, elapsed_seconds, total_seconds, log)
        _write_status(folder, line)
        progress(line)

    status = _run(command, group.module, environment, log=log, report=report)
    if status != 0:
        raise BinaryError(f"building {target.program} failed (status {status}); the end of {log}:\n{tail_of(log)}")
    (partial / target.program).replace(folder / target.program)
    partial.rmdir()


def _run(
    command: Sequence[str],
    folder: Path | None,
    environment: dict[str, str],
    *,
    log: Path,
    report: Callable[[float], None],
) -> int:
    """Run the build, report its age about every ten seconds; it ends with us, Ctrl-C included. Its exit status."""
    started = time.monotonic()
    on_main_thread = threading.current_thread() is threading.main_thread()  # another one may end before the build
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent() if on_main_thread else None,  # noqa: PLW1509 - calls prctl and getppid only
        )
    try:
        while True:
            try:
                return process.wait(_REPORT_SECONDS)
            except subprocess.TimeoutExpired:
                report(time.monotonic() - started)
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def _describe(target: Target, elapsed_seconds: float, total_seconds: float, log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    packages = [line for line in lines if line and " " not in line]  # what `-v` prints; the rest are messages
    doing = f"{len(packages)} packages compiled, now {packages[-1]}" if packages else "fetching modules or linking"
    return (
        f"{_minutes(elapsed_seconds)} building {target.program} (about {_minutes(total_seconds)} on this many cores,"
        f" once): {doing}"
    )


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _write_status(folder: Path, line: str) -> None:
    (folder / ".status").write_text(line)


def _read_status(folder: Path) -> str:
    try:
        return (folder / ".status").read_text()
    except FileNotFoundError:
        return "starting"
