"""The configuration of the agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from goodput_world.agent.config import ConfigError, load_config, parse_config

RANGES = {"pod_cidr": "127.5.0.0/16", "service_cidr": "127.4.0.0/16"}


def test_defaults() -> None:
    """Two ranges are enough."""
    config = parse_config({**RANGES, "nodes": [{"name": "n", "gpus": 8}]})

    assert config.nodes[0].gpu_resource == "nvidia.com/gpu"
    assert (config.speed, config.crash_backoff_seconds, config.startup_seconds) == (1.0, 10.0, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pod_cidr": "10.0.0.0/16"}, "pod_cidr"),
        ({"speed": 0}, "speed"),
        ({"typo": 1}, "typo"),
        ({"nodes": [{"gpus": 1}]}, r"nodes\[0\].name"),
        ({"nodes": [{"name": "n", "gpu": 1}]}, r"nodes\[0\]: unknown field 'gpu'"),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], message: str) -> None:
    """The error names the field."""
    with pytest.raises(ConfigError, match=message):
        parse_config({**RANGES, **change})


def test_the_plant_may_be_a_file(tmp_path: Path) -> None:
    """Its path is relative to the configuration."""
    (tmp_path / "plant.json").write_text('{"host_memory_bytes": 1}')
    (tmp_path / "nodes.json").write_text(json.dumps({**RANGES, "plant": "plant.json"}))

    assert load_config(tmp_path / "nodes.json").plant == {"host_memory_bytes": 1}
