"""The programs of the world: found where the user has them, else built once from their Go modules and cached.

Where each is looked for, in this order: the folder that KUBEBUILDER_ASSETS names, PATH, the cache
(`${GOODPUT_CACHE:-${XDG_CACHE_HOME:-~/.cache}/goodput}`), and then it is built into the cache. Set
GOODPUT_BUILD=never to be told what is missing instead of building it.

`python -m goodput_world.binaries` builds all; `--print` shows where each one is.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from goodput_world.errors import BinaryError
from goodput_world.gobuild import Group, Progress, build, cache_folder, print_progress
from goodput_world.gotargets import GROUPS

_TOGETHER = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""Taken from outside only as a set of one minor version: a controller-manager must not be newer than its API server."""

_OLDEST = {
    "etcd": (3, 5),
    "kube-apiserver": (1, 31),
    "kube-controller-manager": (1, 31),
    "kube-scheduler": (1, 31),
    "kubectl": (1, 35),
    "prometheus": (3, 0),
    "helm": (3, 14),
}
"""Oldest (major, minor) used from outside the cache. Kubernetes: CEL library and admission policies that the CRDs use;
kubectl: one minor version from the API server that is built here;
Prometheus: 3.x text format negotiation and label rules."""

_VERSION_ARGUMENTS = {"kubectl": ("version", "--client"), "helm": ("version", "--short")}
_UNNAMED = (0, 0)
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.\d+")


@dataclass(frozen=True, slots=True)
class Binaries:
    """Where each program is."""

    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    kubectl: Path
    prometheus: Path
    helm: Path


def field_of(program: str) -> str:
    """The field of `Binaries` that holds a program."""
    return program.replace("-", "_")


def version_of(path: Path) -> tuple[int, int] | None:
    """(major, minor) that a program reports; (0, 0) when it runs but names none, None when it does not run."""
    try:
        ran = subprocess.run(
            [path, *_VERSION_ARGUMENTS.get(path.name, ("--version",))],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if ran.returncode != 0:
        return None
    found = _VERSION.search(ran.stdout.partition("\n")[0])  # further lines tell of Go's version
    return (int(found[1]), int(found[2])) if found else _UNNAMED


def _usable(program: str, path: Path, *, chosen: bool) -> tuple[int, int] | None:
    """Its version when it may be used; one without a version only where the user chose it by KUBEBUILDER_ASSETS."""
    version = version_of(path)
    if version is None or (version == _UNNAMED and not chosen):
        return None
    return version if version == _UNNAMED or version >= _OLDEST[program] else None


def find_outside(environment: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """The usable programs that KUBEBUILDER_ASSETS or PATH offer, by name. The control plane comes as a set or not."""
    assets = environment.get("KUBEBUILDER_ASSETS", "")
    places = [Path(place) for place in (assets, *environment.get("PATH", "").split(os.pathsep)) if place]
    found: dict[str, Path] = {}
    for place in places:
        chosen = bool(assets) and place == Path(assets)
        versions = {
            program: version
            for program in _OLDEST
            if program not in found
            and os.access(place / program, os.X_OK)
            and (version := _usable(program, place / program, chosen=chosen)) is not None
        }
        together = [versions.get(program) for program in _TOGETHER]
        for program in versions:
            if program not in _TOGETHER or (None not in together and len(set(together)) == 1):
                found[program] = place / program
    return found


def ensure(progress: Progress = print_progress, *, only: Iterable[str] | None = None) -> Binaries:
    """Find every program, building into the cache what is found nowhere; a second caller waits for the first.

    `only` names groups (`control-plane`, `prometheus`, `helm`) to build: the paths of the others are then where they
    would be, present or not. Raises BinaryError when Go is missing or too old, or a build fails.
    """
    wanted = set(only) if only is not None else {group.name for group in GROUPS}
    unknown = wanted - {group.name for group in GROUPS}
    if unknown:
        raise BinaryError(f"unknown group {sorted(unknown)}: known are {[group.name for group in GROUPS]}")
    paths = find_outside()
    _say_what_is_not_used(paths, progress)
    for group in GROUPS:
        missing = [target for target in group.targets if target.program not in paths]
        if not missing:
            continue
        folder = cache_folder(group)
        to_build = [target for target in missing if not os.access(folder / target.program, os.X_OK)]
        if to_build and group.name in wanted:
            _refuse_if_never(group, [target.program for target in to_build])
            build(group, to_build, folder, progress)
        paths |= {target.program: folder / target.program for target in missing}
    return Binaries(**{field_of(program): paths[program] for program in _OLDEST})


def _say_what_is_not_used(paths: Mapping[str, Path], progress: Progress) -> None:
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    unused = [program for program in _OLDEST if (Path(assets) / program).exists() and program not in paths]
    if assets and unused:
        progress(f"not used from KUBEBUILDER_ASSETS={assets}: {', '.join(unused)} (too old, broken or incomplete)")


def _refuse_if_never(group: Group, programs: list[str]) -> None:
    if os.environ.get("GOODPUT_BUILD") == "never":
        raise BinaryError(
            f"{', '.join(programs)} ({group.name}) found neither in KUBEBUILDER_ASSETS, on PATH nor in the cache, and"
            " GOODPUT_BUILD=never forbids building: unset it, or run `make binaries`"
        )


def main(argv: list[str] | None = None) -> int:
    """Command line: build what is missing, say where everything is."""
    parser = argparse.ArgumentParser(prog="python -m goodput_world.binaries", description=__doc__)
    parser.add_argument("--only", action="append", choices=[group.name for group in GROUPS], help="build this group")
    parser.add_argument("--print", action="store_true", dest="show", help="print where each program is")
    arguments = parser.parse_args(argv)
    try:
        binaries = ensure(only=arguments.only)
    except BinaryError as error:
        print(f"goodput: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("goodput: interrupted; what is compiled is kept, run it again to go on", file=sys.stderr)
        return 130
    if arguments.show:
        for program in _OLDEST:
            path: Path = getattr(binaries, field_of(program))
            print(f"{program}\t{path if path.exists() else 'missing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
