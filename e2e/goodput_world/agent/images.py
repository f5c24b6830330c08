"""The image registry of the world: which image names exist, and which local program stands behind each."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ENGINE_MODULE = "goodput_world.engine"


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """One repository.

    `programs` maps a name that the image has on its PATH to the local argv behind it. `binds_pod_ip` tells that the
    program binds POD_IP_BIND by itself; for every other one the agent writes the pod IP in place of 0.0.0.0.
    `listen_flag` is added with the pod IP when the command has none: the program would listen on every address else.
    `tags` limits the tags that exist; empty: all do.
    """

    entrypoint: tuple[str, ...]
    programs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    engine: bool = False
    binds_pod_ip: bool = False
    listen_flag: tuple[str, str] | None = None
    tags: frozenset[str] = frozenset()
    pull_seconds: float = 0.0

    def resolve(self, argv: Sequence[str]) -> list[str]:
        """The argv to run on this machine for an argv written for the image. Raises ValueError when it is empty."""
        if not argv:
            raise ValueError("no command specified")
        return [*self.programs.get(argv[0], (argv[0],)), *argv[1:]]


def split_image(image: str) -> tuple[str, str]:
    """(repository, tag) of an image name; registry host, digest and the `docker.io/library/` prefix are dropped."""
    name = image.split("@", 1)[0]
    head, _, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    repository = f"{head}/{last}" if head else last
    host, slash, rest = repository.partition("/")
    if slash and ("." in host or ":" in host or host == "localhost"):
        repository = rest
    return repository.removeprefix("library/"), tag or "latest"


def default_images(bin_directory: Path) -> dict[str, ImageSpec]:
    """The images of the world; `bin_directory` is where the console scripts of our environment are."""

    def script(name: str) -> dict[str, tuple[str, ...]]:
        return {name: (str(bin_directory / name),), **python}

    python = {"python": (sys.executable,), "python3": (sys.executable,)}
    return {
        "vllm/vllm-openai": ImageSpec(
            ("vllm", "serve"),
            {"vllm": (sys.executable, "-m", ENGINE_MODULE), **python},
            engine=True,
            binds_pod_ip=True,
        ),
        "goodput-router": ImageSpec(("vllm-router",), script("vllm-router")),
        "goodput-operator": ImageSpec(("goodput-operator",), script("goodput-operator")),
        "busybox": ImageSpec(("/bin/sh",), python),
    }


class ImageRegistry:
    """Image name -> ImageSpec; pulls of a name can be made to fail and to work again."""

    def __init__(self, images: Mapping[str, ImageSpec]) -> None:
        """Start with these repositories, all of them pullable."""
        self._images = dict(images)
        self._failing: set[str] = set()

    def add(self, repository: str, spec: ImageSpec) -> None:
        """Add or replace a repository."""
        self._images[repository] = spec

    def fail(self, image: str) -> None:
        """Let pulls fail from now on: an image name with a tag, or a repository for all its tags."""
        self._failing.add(image)

    def heal(self, image: str) -> None:
        """Undo `fail`."""
        self._failing.discard(image)

    def pull(self, image: str) -> ImageSpec | None:
        """The image behind a name, or None when it cannot be pulled."""
        repository, tag = split_image(image)
        if self._failing & {image, repository, f"{repository}:{tag}"}:
            return None
        spec = self._images.get(repository)
        if spec is None or (spec.tags and tag not in spec.tags and "@" not in image):
            return None
        return spec

    def specs(self) -> Iterable[tuple[str, ImageSpec]]:
        """Every repository with its image."""
        return self._images.items()


def build_registry(configured: Mapping[str, Any], bin_directory: Path) -> ImageRegistry:
    """The default images plus those of the configuration.

    A configured image is a path of a program, a list (an argv), or an object with `entrypoint` (path or argv),
    `tags`, `pull_seconds`, `listen_flag` [flag, port] and `like`, the repository whose settings it starts from.
    """
    images = default_images(bin_directory)
    for repository, value in configured.items():
        raw: Mapping[str, Any] = value if isinstance(value, Mapping) else {"entrypoint": value}
        base = images.get(raw.get("like", repository))
        entrypoint = raw.get("entrypoint")
        if isinstance(entrypoint, str):
            entrypoint = [entrypoint]
        if entrypoint is None and base is None:
            raise ValueError(f"images[{repository}].entrypoint: required for an image that is not built in")
        spec = base or ImageSpec(())
        if entrypoint is not None:
            program = Path(entrypoint[0]).name
            spec = replace(
                spec, entrypoint=(program, *entrypoint[1:]), programs={**spec.programs, program: (entrypoint[0],)}
            )
        if repository == "prom/prometheus":
            programs = dict(spec.programs)
            first = programs.get(spec.entrypoint[0], (spec.entrypoint[0],))
            spec = replace(
                spec,
                programs={**programs, "prometheus": first, "/bin/prometheus": first},
                listen_flag=("--web.listen-address", "9090"),
            )
        changes: dict[str, Any] = {}
        if "tags" in raw:
            changes["tags"] = frozenset(raw["tags"])
        if "pull_seconds" in raw:
            changes["pull_seconds"] = float(raw["pull_seconds"])
        if "listen_flag" in raw:
            flag, port = raw["listen_flag"]
            changes["listen_flag"] = (str(flag), str(port))
        images[repository] = replace(spec, **changes)
    return ImageRegistry(images)
