"""The image registry of the world."""

from __future__ import annotations

from pathlib import Path

import pytest

from goodput_world.agent.images import build_registry, split_image


@pytest.mark.parametrize(
    ("image", "want"),
    [
        ("busybox", ("busybox", "latest")),
        ("docker.io/library/busybox:1", ("busybox", "1")),
        ("vllm/vllm-openai:v0.33.0", ("vllm/vllm-openai", "v0.33.0")),
        ("localhost:5000/vllm/vllm-openai", ("vllm/vllm-openai", "latest")),
        ("ghcr.io/a/b:1@sha256:00", ("a/b", "1")),
    ],
)
def test_image_names(image: str, want: tuple[str, str]) -> None:
    """Registry host, `library/` and digest are dropped; a port is no tag."""
    assert split_image(image) == want


def test_unknown_repositories_and_tags_cannot_be_pulled() -> None:
    """A repository with listed tags has no others."""
    registry = build_registry({"vllm/vllm-openai": {"tags": ["v1"]}}, Path("/venv/bin"))

    assert registry.pull("vllm/vllm-openai:v1") is not None
    assert registry.pull("vllm/vllm-openai:v2") is None
    assert registry.pull("vllm/vllm-openaI:v1") is None


def test_pulls_fail_and_heal() -> None:
    """A failing repository fails with all its tags, a failing tag alone."""
    registry = build_registry({}, Path("/venv/bin"))
    registry.fail("busybox:1")

    assert registry.pull("busybox:1") is None
    assert registry.pull("busybox:2") is not None
    registry.fail("busybox")
    assert registry.pull("docker.io/library/busybox:2") is None
    registry.heal("busybox")
    assert registry.pull("busybox:2") is not None


def test_configured_images() -> None:
    """A path is the program; prometheus listens on its pod IP by itself; a new name may be like a known one."""
    registry = build_registry(
        {"prom/prometheus": "/opt/prom", "mine/vllm": {"like": "vllm/vllm-openai"}}, Path("/venv/bin")
    )

    prometheus = registry.pull("prom/prometheus:v3")
    assert prometheus is not None
    assert prometheus.resolve(["prometheus", "--x"]) == prometheus.resolve([*prometheus.entrypoint, "--x"])
    assert prometheus.resolve(["/bin/prometheus"]) == ["/opt/prom"]
    assert prometheus.listen_flag == ("--web.listen-address", "9090")
    mine = registry.pull("mine/vllm:1")
    assert mine is not None
    assert mine.engine


def test_an_unknown_image_needs_an_entrypoint() -> None:
    """The error names the field."""
    with pytest.raises(ValueError, match=r"images\[x/y\].entrypoint"):
        build_registry({"x/y": {"tags": ["1"]}}, Path("/venv/bin"))
