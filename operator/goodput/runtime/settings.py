"""Settings of the operator process, as `goodput-operator` flags and GOODPUT_* variables give them."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from goodput.domain.intent import ScalingMode

DEFAULT_ENGINE_IMAGE = "vllm/vllm-openai:v0.33.0"
DEFAULT_ROUTER_IMAGE = "goodput-router:0.1.17"
DEFAULT_CREDENTIALS_KEY = "HF_TOKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that a cluster administrator may set. Times are seconds."""

    prometheus_url: str
    prometheus_token_file: str = ""
    prometheus_ca_file: str = ""
    tick_seconds: float = 10.0
    scrape_seconds: float = 15.0
    # Mode of Models that set none.
    default_mode: ScalingMode = ScalingMode.AUTO
    engine_image: str = DEFAULT_ENGINE_IMAGE
    router_image: str = DEFAULT_ROUTER_IMAGE
    router_replicas: int = 2
    # Secret of a Model's namespace with the Hugging Face token of Models that name none, and the key in it. '': none.
    default_credentials_secret: str = ""
    default_credentials_key: str = DEFAULT_CREDENTIALS_KEY
    # Secrets of a Model's namespace to pull images with, for Models that name none.
    default_image_pull_secrets: tuple[str, ...] = ()
    # How long an engine may take from start to its first answer.
    startup_timeout_seconds: int = 1800
    # Patterns (`registry.example.com/vllm/*`) of engine images that Models may name. Empty: any. A pattern with a tag
    # allows no digest unless it has one too.
    allowed_images: tuple[str, ...] = ()
    # NetworkPolicyPeers that may scrape engine pods. Empty: any pod of the cluster.
    metrics_from: tuple[Mapping[str, Any], ...] = ()
    # Labels of PodMonitors, by which a Prometheus may select them.
    pod_monitor_labels: tuple[tuple[str, str], ...] = ()
    # Namespaces that are served. Empty: all.
    namespaces: tuple[str, ...] = ()
    max_gpus_per_namespace: int | None = None
    max_cost_per_hour_per_namespace: float | None = None
    # Highest priority that SLOs of a namespace give ("*": of those not named). Empty: any.
    max_priority: tuple[tuple[str, int], ...] = ()
    listen_host: str = "0.0.0.0"
    listen_port: int = 8080
    lease_namespace: str = "default"
    lease_name: str = "goodput-operator"
    identity: str = "goodput-operator"
    leader_election: bool = True
    json_logs: bool = False
    log_level: str = "INFO"
    # How often everything is listed again, in case watch events were lost.
    relist_seconds: float = 900.0
    # Writes at the same time.
    concurrency: int = 16
    # Directory of the ledger, which `kubectl goodput report` reads. Empty: none is kept.
    ledger_dir: str = ""
    ledger_megabytes: int = 64
    ledger_days: float = 8.0

    def most_priority(self, namespace: str) -> int | None:
        """The highest priority that SLOs of this namespace give; None: any."""
        most = dict(self.max_priority)
        return most.get(namespace, most.get("*"))

    def image_allowed(self, image: str) -> bool:
        """Whether a Model may run this engine image."""
        return (
            not self.allowed_images
            or image == self.engine_image
            or any(_matches(image, pattern) for pattern in self.allowed_images)
        )


def _matches(image: str, pattern: str) -> bool:
    """Whether `pattern` allows `image`. Of name:tag@digest only the digest counts for what is pulled: a pattern that
    limits tags says nothing of it, so `name:v1.*` does not let name:v1.0@sha256:... (any content of that name) pass.
    """
    limits_tags = ":" in pattern.rsplit("/", 1)[-1] and "@" not in pattern
    return not (limits_tags and "@" in image) and fnmatch.fnmatchcase(image, pattern)
