"""What the demo runs, from the environment of `make demo`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from goodput_world.cluster import REPOSITORY
from goodput_world.replay.envelope import DEMO_ENVELOPE, Envelope

PLANT_FILE = REPOSITORY / "e2e" / "goodput_world" / "plants" / "llama-8b-l40s.json"
EXAMPLES = REPOSITORY / "examples"
RESULTS = REPOSITORY / "build" / "demo"
# On a cluster with other users the demo keeps to a namespace that it makes and deletes.
EXISTING_NAMESPACE = "goodput-demo"
ENGINE_START_SECONDS = 45.0


class SettingsError(ValueError):
    """A variable of the environment that the demo cannot use; the message names it."""


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """One demo. `existing` uses the cluster that KUBECONFIG names instead of the embedded world.

    `prometheus_url` and `url` are for an existing cluster: where this machine reaches its Prometheus, and the Service
    (None: a port-forward, which is fit for a look but not for load).
    """

    seconds: float = 600.0
    seed: int = 1
    existing: bool = False
    url: str | None = None
    prometheus_url: str | None = None
    directory: Path = RESULTS
    namespace: str = "default"
    envelope: Envelope = DEMO_ENVELOPE


def read_settings(environment: Mapping[str, str] = os.environ) -> DemoSettings:
    """DEMO_SECONDS, DEMO_SEED, DEMO_CLUSTER, DEMO_URL, DEMO_PROMETHEUS_URL, DEMO_DIRECTORY. Raises SettingsError."""
    cluster = environment.get("DEMO_CLUSTER", "") or "embedded"
    if cluster not in {"embedded", "existing"}:
        raise SettingsError(f"DEMO_CLUSTER={cluster}: it is `existing`, or unset for the embedded world")
    if cluster == "existing" and not environment.get("KUBECONFIG"):
        raise SettingsError("DEMO_CLUSTER=existing needs KUBECONFIG to name the cluster")
    seconds = _number(environment, "DEMO_SECONDS", 600.0)
    if not 60.0 <= seconds < float("inf"):
        raise SettingsError(f"DEMO_SECONDS={seconds:g}: the least is 60, the time that one engine needs to start")
    return DemoSettings(
        seconds=seconds,
        seed=int(_number(environment, "DEMO_SEED", 1)),
        existing=cluster == "existing",
        namespace=EXISTING_NAMESPACE if cluster == "existing" else DemoSettings().namespace,
        url=environment.get("DEMO_URL") or None,
        prometheus_url=environment.get("DEMO_PROMETHEUS_URL") or None,
        directory=Path(environment.get("DEMO_DIRECTORY") or RESULTS),
    )


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name) or ""
    if not text:
        return default
    try:
        return float(text)
    except ValueError:
        raise SettingsError(f"{name}={text}: it must be a number") from None
