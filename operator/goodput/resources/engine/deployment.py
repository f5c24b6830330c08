"""Deployment of the engine pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from msgspec.structs import fields

from goodput.domain.identity import SERVE_POOL
from goodput.domain.plan import Placement
from goodput.domain.values import Value
from goodput.resources import meta, names, pinning
from goodput.resources.engine.pod import engine_template, other_startup_timeout
from goodput.resources.inputs import KubeObject, RenderInput
from goodput.resources.serving import ANNOTATION_SERVING, serving_json

# Routers check health every 5 s: a new pod counts as available once they had the time to find it.
MIN_READY_SECONDS = 10
REVISION_HISTORY = 2

_PLACEMENT_FIELDS = tuple(field.name for field in fields(Placement) if field.name != "rejected")


def placement_json(placement: Placement) -> str:
    """`placement` as compact JSON, without the options that were rejected."""
    return meta.canonical_json({field: getattr(placement, field) for field in _PLACEMENT_FIELDS})


def placement_of(deployment: Mapping[str, Any] | None) -> Placement | None:
    """The placement with which the pods of `deployment` were rendered, None where it cannot be read."""
    text = pinning.annotations_of(deployment).get(pinning.ANNOTATION_PLACEMENT)
    try:
        values = orjson.loads(text or "")
        values = {field: values[field] for field in _PLACEMENT_FIELDS if field in values}
        values["node_selector"] = tuple((str(key), str(value)) for key, value in values["node_selector"])
        values["tolerations"] = tuple(values.get("tolerations", ()))
        return Placement(**values)
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
        return None


def _shape(placement: Placement) -> str:
    """What a decision to move or reshape replicas changes; sized numbers and prices are no reason to restart."""
    resource, tp, pp = placement.resource_name, placement.tensor_parallel, placement.pipeline_parallel
    return f"{placement.gpu_type}|{resource}|{tp}|{pp}"


def _pinned_shape(pinned: Mapping[str, str]) -> str:
    placement = placement_of({"metadata": {"annotations": pinned}})
    return "" if placement is None else _shape(placement)


# What a GPUType decides of a pod, and how it is called. Queue limits follow the SLO alone, which is edited at any time.
_FROM_GPU_TYPE = {"node_selector": "nodeSelector", "tolerations": "tolerations", "max_model_len": "--max-model-len"}
# In these the SLO and the lengths of requests have a say too.
_SIZED = {"max_num_seqs": "--max-num-seqs", "max_num_batched_tokens": "--max-num-batched-tokens"}


def _shown(value: Any) -> str:
    if not isinstance(value, tuple):
        return str(value)
    return ",".join("=".join(item) if isinstance(item, tuple) else item for item in value) or "none"


def _differences(pinned: Mapping[str, str], template: Mapping[str, Any], render: RenderInput) -> list[str]:
    """What a GPUType, as it was mended, this operator and its settings would make of these pods."""
    before = placement_of({"metadata": {"annotations": pinned}})
    found = [] if before is None else _resized(before, render.placement)
    seconds = render.settings.startup_timeout_seconds
    have_seconds = other_startup_timeout(template, seconds)
    if have_seconds is not None:
        found.append(f"pods may take {have_seconds} s to start, the settings say {seconds} s")
    return found


def _resized(before: Placement, now: Placement) -> list[str]:
    """What an administrator changed between two placements of one shape.

    Settings that were sized for another SLO or other lengths of requests, and what may follow from them, enter with the
    next roll-out and are none of it: an SLO is edited at any time.
    """
    fields = _FROM_GPU_TYPE | _SIZED
    drafts = before.speculative_tokens, now.speculative_tokens
    resized = drafts[0] != drafts[1] or any(getattr(before, field) != getattr(now, field) for field in _SIZED)
    if resized and before.sized_for != now.sized_for:
        fields = {field: called for field, called in _FROM_GPU_TYPE.items() if field != "max_model_len"}
        drafts = now.speculative_tokens, now.speculative_tokens
    found = [
        f"pods have {called} {_shown(getattr(before, field))}, by GPUType {now.gpu_type} it is "
        f"{_shown(getattr(now, field))}"
        for field, called in fields.items()
        if getattr(before, field) != getattr(now, field)
    ]
    if drafts[0] != drafts[1]:
        found.append(f"pods draft {drafts[0]} tokens at a time, by what is believed now it is {drafts[1]}")
    return found


def _set(value: Value | None) -> dict[str, Any]:
    """What of `value` its author set, by field. A draft model's structure is the catalogue's, not the author's."""
    if value is None:
        return {}
    return {
        field.name: given
        for field in fields(type(value))
        if field.name != "draft" and (given := getattr(value, field.name)) not in (None, "")
    }


def template_inputs(render: RenderInput) -> dict[str, Any]:
    """What the user wrote that shapes engine pods, without what is unset. An SLO's thresholds are not part of it."""
    intent = render.intent
    credentials = render.credentials
    values: dict[str, Any] = {
        "model": intent.model,
        "servedName": intent.served_name,
        "revision": render.revision,
        "credentials": f"{credentials.name}/{credentials.key}" if credentials else None,
        "imagePullSecrets": list(render.image_pull_secrets),
        "image": render.engine.image,
        "args": list(render.engine.args),
        "env": [dict(item) for item in render.engine.env],
        "template": {key: value for key, value in render.template.items() if value},
        "admissionOff": not intent.admission,
        "precision": _set(intent.precision),
        "speculative": _set(intent.speculation),
    }
    return {key: value for key, value in values.items() if value}


def choose_template(existing: Mapping[str, Any] | None, render: RenderInput, pool: str = SERVE_POOL) -> pinning.Choice:
    """Template of engine pods: that of `existing` until the user, the shape or an update asks for another.

    Pods that serve keep it as long as a change of what they serve is held, or there is no room to replace them.
    """
    hold = render.held and pool == SERVE_POOL
    image = render.engine.image or render.settings.engine_image
    secrets = pinning.default_secrets(
        None if render.credentials else render.token, () if render.image_pull_secrets else render.pull_secrets
    )
    wanted = pinning.Wanted(
        inputs=template_inputs(render),
        shape=_shape(render.placement),
        image=image,
        image_annotation=pinning.ANNOTATION_IMAGE,
        pins={pinning.ANNOTATION_PLACEMENT: placement_json(render.placement), **secrets},
    )
    choice = pinning.choose(
        existing,
        wanted,
        lambda: engine_template(render, image, pool),
        user_image=render.engine.image is not None,
        take_update=render.terms.takes_update(pool),
        hold=hold,
        withhold=not render.terms.room and pool == SERVE_POOL,
        shape_of=_pinned_shape,
        differences=lambda pinned, template: _differences(pinned, template, render),
    )
    if not hold and not choice.withheld:
        choice.annotations[ANNOTATION_SERVING] = serving_json(render.intent)
    elif (record := pinning.annotations_of(existing).get(ANNOTATION_SERVING)) is not None:
        choice.annotations[ANNOTATION_SERVING] = record
    return choice


def engine_deployment(render: RenderInput, choice: pinning.Choice) -> KubeObject:
    """`replicas` are always there: left out by their only owner, the API server would set them to 1."""
    intent = render.intent
    deployment = meta.new_object("apps/v1", "Deployment", names.engine(intent.key.name), intent, SERVE_POOL)
    deployment["metadata"]["annotations"] = choice.annotations
    surge = {"maxSurge": 1, "maxUnavailable": 0} if render.terms.surge else {"maxSurge": 0, "maxUnavailable": 1}
    deployment["spec"] = {
        "replicas": render.replicas,
        "selector": {"matchLabels": meta.selector(intent.key.name, SERVE_POOL)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": surge},
        "minReadySeconds": MIN_READY_SECONDS,
        # A replica that is still loading makes progress.
        "progressDeadlineSeconds": render.settings.startup_timeout_seconds + 600,
        "revisionHistoryLimit": REVISION_HISTORY,
        "template": choice.template,
    }
    return deployment
