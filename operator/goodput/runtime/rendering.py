"""From a Model and its plan to `RenderInput`, and whether rendering anew could give anything else."""

from __future__ import annotations

from goodput.api import Model
from goodput.api.template import as_kubernetes
from goodput.domain.intent import ModelIntent
from goodput.domain.plan import ChangePlan, Placement
from goodput.domain.values import Value
from goodput.resources.inputs import FREELY, EngineInput, RenderInput, RenderSettings, SecretKey, Terms
from goodput.runtime.settings import Settings


def render_settings(settings: Settings, *, pod_monitor: bool) -> RenderSettings:
    """The part of the operator's settings that shapes objects."""
    return RenderSettings(
        engine_image=settings.engine_image,
        router_image=settings.router_image,
        scrape_seconds=max(1, round(settings.scrape_seconds)),
        pod_monitor=pod_monitor,
        pod_monitor_labels=settings.pod_monitor_labels,
        router_replicas=settings.router_replicas,
        metrics_from=settings.metrics_from,
        startup_timeout_seconds=settings.startup_timeout_seconds,
        default_credentials=(
            SecretKey(name=settings.default_credentials_secret, key=settings.default_credentials_key)
            if settings.default_credentials_secret
            else None
        ),
        default_image_pull_secrets=settings.default_image_pull_secrets,
    )


def render_input(
    model: Model,
    intent: ModelIntent,
    placement: Placement,
    *,
    replicas: int,
    settings: RenderSettings,
    terms: Terms = FREELY,
    change: ChangePlan | None = None,
) -> RenderInput:
    """One Model ready to be rendered."""
    spec = model.spec
    credentials = spec.credentials.secret_ref if spec.credentials else None
    return RenderInput(
        intent=intent,
        placement=placement,
        replicas=replicas,
        settings=settings,
        revision=spec.revision,
        credentials=SecretKey(name=credentials.name, key=credentials.key) if credentials else None,
        image_pull_secrets=tuple(reference.name for reference in spec.image_pull_secrets),
        engine=EngineInput(
            image=spec.engine.image,
            args=tuple(spec.engine.args),
            env=tuple(variable.to_dict() for variable in spec.engine.env),
        ),
        template=as_kubernetes(spec.template),
        terms=terms,
        change=change,
        check=spec.quality_check.as_kubernetes() if spec.quality_check else {},
    )


class RenderKey(Value, frozen=True, kw_only=True):
    """Equal keys render equal objects, given equal Deployments. Believed capacities and prices are no part of it."""

    uid: str
    generation: int
    intent: tuple[object, ...]
    placement: tuple[object, ...]
    replicas: int
    settings: RenderSettings
    terms: Terms
    change: tuple[object, ...]


def render_key(
    intent: ModelIntent,
    placement: Placement,
    *,
    replicas: int,
    settings: RenderSettings,
    terms: Terms,
    change: ChangePlan | None,
) -> RenderKey:
    """What the rendered objects depend on."""
    return RenderKey(
        uid=intent.uid,
        generation=intent.generation,
        intent=(
            intent.objective,
            intent.architecture,
            intent.admission,
            intent.routing,
            intent.served_name,
            intent.precision,
            intent.speculation,
        ),
        placement=_shape(placement),
        replicas=replicas,
        settings=settings,
        terms=terms,
        change=(change.id, change.held, change.check, _shape(change.canary)) if change is not None else (),
    )


def _shape(placement: Placement | None) -> tuple[object, ...]:
    if placement is None:
        return ()
    return (
        placement.gpu_type,
        placement.resource_name,
        placement.node_selector,
        placement.tolerations,
        placement.tensor_parallel,
        placement.pipeline_parallel,
        placement.max_model_len,
        placement.max_num_seqs,
        placement.max_num_batched_tokens,
        placement.speculative_tokens,
        placement.sized_for,
    )
