"""Everything that rendering may look at, as one value that the controllers fill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from goodput.api.model import PVC_SCHEME
from goodput.domain.intent import ModelIntent
from goodput.domain.plan import ChangePlan, Placement

# A Kubernetes object, or a part of one, as JSON writes it.
KubeObject = dict[str, Any]
# (kind, name) within the Model's namespace.
ObjectKey = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKey:
    """One entry of a Secret in the Model's namespace."""

    name: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInput:
    """`spec.engine` of a Model: `image` None means the operator's default; `env` holds Kubernetes EnvVar objects."""

    image: str | None = None
    args: tuple[str, ...] = ()
    env: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderSettings:
    """What the operator's own settings say about objects. Times are seconds."""

    engine_image: str
    router_image: str
    scrape_seconds: int = 15
    # The PodMonitor CRD is installed.
    pod_monitor: bool = False
    # Labels of PodMonitors, by which a Prometheus may select them.
    pod_monitor_labels: tuple[tuple[str, str], ...] = ()
    router_replicas: int = 2
    # Secrets of Models that name none of their own; the token is for models of the hub only.
    default_credentials: SecretKey | None = None
    default_image_pull_secrets: tuple[str, ...] = ()
    # NetworkPolicyPeers that may scrape engine pods beside the routers. Empty: any pod of the cluster, for metrics and
    # completions share one port and a scraper shut out by default would hold every fleet.
    metrics_from: tuple[Mapping[str, Any], ...] = ()
    # How long one engine may take from start to its first answer.
    startup_timeout_seconds: int = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On which terms what runs gives way to what is rendered.

    `take_update`: it is this Model's turn to take what an administrator changed (`engine.update: Automatic`). Pools in
    `unserved` take it at once: no pod of theirs was ever ready, and there is nothing to protect.
    `surge` False replaces pods one at a time where no GPU is free for a new one first. `room` False: nor can one be
    spared, and engine pods keep their template whatever is asked for.
    `routers_ready` False: engines serve and no router does yet, so that a Service that sends users to engines stays.
    `keeps_router_replicas`: something else scales the routers, their number stays as it is.
    `routers_roll`: routers of an older template may still be there, and keep what they need.
    """

    take_update: bool = False
    unserved: tuple[str, ...] = ()
    surge: bool = True
    room: bool = True
    routers_ready: bool = True
    keeps_router_replicas: bool = False
    routers_roll: bool = False

    def takes_update(self, pool: str) -> bool:
        """Whether pods of `pool` take an update that waits for them."""
        return self.take_update or pool in self.unserved


# Nothing runs that would have to be spared.
FREELY = Terms()


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderInput:
    """One Model ready to be rendered: what its author wrote, what was decided, what the operator's settings add.

    `template` is `spec.template` as the API validated it, with the Kubernetes names: labels, annotations, resources,
    affinity, tolerations, priorityClassName, volumes, volumeMounts (each optional).
    `replicas` of the engine Deployment are always written.
    `credentials` and `image_pull_secrets` are the author's own; `token` and `pull_secrets` are what pods get.
    """

    intent: ModelIntent
    placement: Placement
    replicas: int
    settings: RenderSettings
    revision: str | None = None  # of the model on the hub: branch, tag or commit
    credentials: SecretKey | None = None
    image_pull_secrets: tuple[str, ...] = ()
    engine: EngineInput = field(default=EngineInput())
    template: Mapping[str, Any] = field(default_factory=dict)
    terms: Terms = FREELY
    # A change that users do not get yet; `check` is the spec of the Job that judges it ({}: there is none).
    change: ChangePlan | None = None
    check: Mapping[str, Any] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        """Whether engine pods keep their template whatever it would be by now."""
        return self.change is not None and self.change.held

    @property
    def token(self) -> SecretKey | None:
        """What becomes HF_TOKEN: the author's, else the settings' for a model that comes from the hub."""
        if self.credentials is not None or self.intent.model.startswith(PVC_SCHEME):
            return self.credentials
        return self.settings.default_credentials

    @property
    def pull_secrets(self) -> tuple[str, ...]:
        """Names of the Secrets to pull images with: the author's, else the settings'."""
        return self.image_pull_secrets or self.settings.default_image_pull_secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """`objects` in the order to apply them; `update_available` says what a roll-out would change (None: nothing).

    `withheld`: engine pods were asked to be others, and there was no room for that.
    """

    objects: tuple[KubeObject, ...]
    update_available: str | None = None
    withheld: bool = False


# Objects that exist in the Model's namespace under names that we use, as the API server returned them.
Existing = Mapping[ObjectKey, Mapping[str, Any]]
