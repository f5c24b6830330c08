"""What the agent is started with: the nodes, their hardware, the images they can pull, and how fast time runs."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson


class ConfigError(ValueError):
    """The configuration of the agent is wrong; the message names the field."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """One simulated node. `memory` and `cpu` are Kubernetes quantities; `virtual` nodes run no processes."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    gpu_resource: str = "nvidia.com/gpu"
    gpus: int = 0
    gpu_type: str = ""
    memory: str = "512Gi"
    cpu: str = "128"
    ephemeral_storage: str = "2Ti"
    pods: int = 250
    virtual: bool = False


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Everything the agent is told. Times are seconds of simulated time: `speed` of them pass per wall-clock second.

    `plant` describes every engine's true performance; `plants` overrides it by `MODEL@GPU_TYPE` or `MODEL`.
    `startup_seconds` is how long an engine takes to start; None leaves it to the engine's plant.
    `crash_backoff_seconds` is the first CrashLoopBackOff delay, doubled up to `crash_backoff_max_seconds`.
    `not_ready_on_deletion` marks a pod not Ready the moment it is deleted; a kubelet does not do that (it goes on with
    the readiness probe until the containers have ended), hence the default.
    """

    pod_cidr: str
    service_cidr: str
    nodes: tuple[NodeConfig, ...]
    plant: Mapping[str, Any] = field(default_factory=dict)
    plants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    images: Mapping[str, Any] = field(default_factory=dict)
    startup_seconds: float | None = None
    virtual_startup_seconds: float = 0.0
    speed: float = 1.0
    crash_backoff_seconds: float = 10.0
    crash_backoff_max_seconds: float = 300.0
    pull_backoff_seconds: float = 10.0
    lease_seconds: float = 40.0
    volume_refresh_seconds: float = 60.0
    not_ready_on_deletion: bool = False


def _node(raw: Mapping[str, Any], index: int) -> NodeConfig:
    known = {name: raw[name] for name in NodeConfig.__dataclass_fields__ if name in raw}
    unknown = sorted(set(raw) - set(NodeConfig.__dataclass_fields__))
    if unknown:
        raise ConfigError(f"nodes[{index}]: unknown field {unknown[0]!r}")
    if not raw.get("name"):
        raise ConfigError(f"nodes[{index}].name: a node needs a name")
    if "taints" in known:
        known["taints"] = tuple(known["taints"])
    return NodeConfig(**known)


def parse_config(raw: Mapping[str, Any]) -> AgentConfig:
    """The configuration from its JSON form. Raises ConfigError for what cannot work."""
    unknown = sorted(set(raw) - set(AgentConfig.__dataclass_fields__))
    if unknown:
        raise ConfigError(f"unknown field {unknown[0]!r}")
    for name in ("pod_cidr", "service_cidr"):
        if name not in raw:
            raise ConfigError(f"{name}: required, a range inside 127.0.0.0/8")
        network = ipaddress.ip_network(raw[name], strict=False)
        if not network.is_loopback:
            raise ConfigError(f"{name}: {raw[name]} lies outside 127.0.0.0/8, the only addresses that need no set-up")
    known = dict(raw)
    known["nodes"] = tuple(_node(node, index) for index, node in enumerate(raw.get("nodes", ())))
    if not known.get("speed", 1.0) > 0:
        raise ConfigError("speed: must be above 0")
    return AgentConfig(**known)


def load_config(path: Path) -> AgentConfig:
    """Read a configuration file; `plant` may be a path (relative to the file) instead of an object."""
    raw = orjson.loads(path.read_bytes())
    if isinstance(raw.get("plant"), str):
        raw["plant"] = orjson.loads((path.parent / raw["plant"]).read_bytes())
    return parse_config(raw)
