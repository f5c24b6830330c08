"""Which pod template a Deployment gets: the one that its pods run, until somebody asked for another.

Rendering anew on every change of a default, a threshold or a sized number would restart GPU pods that take minutes to
load. So the template as it was rendered is kept on our own Deployment, in annotations, beside a hash of what the user
wrote. It is rendered anew when the user's part changed, when another GPU type or parallelism was decided, or when it is
this Model's turn to take an update. What an administrator changed (the operator, its settings, a GPUType) is an update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from goodput.domain.identity import LABEL_REVISION
from goodput.resources import meta
from goodput.resources.inputs import KubeObject, SecretKey

# Raise it with every change of the code that renders pod templates; a test says when that is due.
RENDER_REVISION = 4

ANNOTATION_RENDER_REVISION = "goodput.dev/render-revision"
ANNOTATION_IMAGE = "goodput.dev/engine-image"
ANNOTATION_ROUTER_IMAGE = "goodput.dev/router-image"
ANNOTATION_DEFAULT_SECRETS = "goodput.dev/default-secrets"
ANNOTATION_PLACEMENT = "goodput.dev/placement"
ANNOTATION_INPUTS = "goodput.dev/template-inputs"
ANNOTATION_TEMPLATE = "goodput.dev/template"
# All annotations of an object together have 256 KiB. Of a larger template (values of 64 variables may be that long) the
# one that the API server has is the record: the same with its defaults filled in.
MAX_RECORD_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What rendering now would be based on.

    `inputs` is the user's part: only what is set, so that a newer operator that knows more fields hashes the same.
    `shape` is what was decided and cannot differ between pods of one Deployment ("" where nothing is).
    `pins` are further annotations to write with a new template.
    """

    inputs: Mapping[str, Any]
    shape: str
    image: str
    image_annotation: str
    pins: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A pod template with the annotations of its Deployment; `kept`: it is the one that runs already.

    `withheld`: it is kept though another one was asked for.
    """

    template: KubeObject
    annotations: dict[str, str]
    kept: bool
    update_available: str | None
    withheld: bool = False


def annotations_of(deployment: Mapping[str, Any] | None) -> Mapping[str, str]:
    """Annotations of an object, empty for None."""
    if deployment is None:
        return {}
    return deployment.get("metadata", {}).get("annotations") or {}


def stored_template(deployment: Mapping[str, Any]) -> KubeObject | None:
    """The template as we rendered it; without a readable record, the one that the API server has."""
    text = annotations_of(deployment).get(ANNOTATION_TEMPLATE)
    if text is not None:
        try:
            template = orjson.loads(text)
        except orjson.JSONDecodeError:
            template = None
        if isinstance(template, dict) and isinstance(template.get("spec"), dict):
            return template
    template = deployment.get("spec", {}).get("template")
    return dict(template) if template else None


def default_secrets(token: SecretKey | None, pull_secrets: tuple[str, ...]) -> dict[str, str]:
    """The pin of Secrets that the operator's settings name, not the author; empty without one."""
    parts = [f"token {token.name}/{token.key}"] if token else []
    parts += [f"pull {','.join(pull_secrets)}"] if pull_secrets else []
    return {ANNOTATION_DEFAULT_SECRETS: ", ".join(parts)} if parts else {}


def with_revision(template: KubeObject) -> KubeObject:
    """`template` labelled with the hash of everything else in it."""
    labels = {**template["metadata"]["labels"], LABEL_REVISION: meta.short_hash(template)}
    return {**template, "metadata": {**template["metadata"], "labels": labels}}


def _update(
    pinned: Mapping[str, str], wanted: Wanted, user_image: bool, others: Iterable[str], same: Callable[[], bool]
) -> str | None:
    """What an administrator's change would render differently, in words.

    `others` are those that only pods know; `same` tells whether another revision renders these pods as they are.
    """
    changes = []
    revision = pinned.get(ANNOTATION_RENDER_REVISION, "?")
    if revision != str(RENDER_REVISION) and not same():
        changes.append(f"pods are rendered by revision {revision}, this operator renders revision {RENDER_REVISION}")
    image = pinned.get(wanted.image_annotation, "?")
    if image != wanted.image and not user_image:
        changes.append(f"pods run image {image}, the default is {wanted.image}")
    have, want = (pins.get(ANNOTATION_DEFAULT_SECRETS, "none") for pins in (pinned, wanted.pins))
    if have != want:
        changes.append(f"pods use default Secrets: {have}, the settings name: {want}")
    return "; ".join((*changes, *others)) or None


def _record(template: KubeObject) -> dict[str, str]:
    text = meta.canonical_json(template)
    return {ANNOTATION_TEMPLATE: text} if len(text.encode()) <= MAX_RECORD_BYTES else {}


def choose(
    existing: Mapping[str, Any] | None,
    wanted: Wanted,
    render: Callable[[], KubeObject],
    *,
    user_image: bool = False,
    take_update: bool = False,
    hold: bool = False,
    withhold: bool = False,
    shape_of: Callable[[Mapping[str, str]], str] = lambda _: "",
    differences: Callable[[Mapping[str, str], KubeObject], Iterable[str]] = lambda _pinned, _template: (),
) -> Choice:
    """The template that runs where nothing asks for another, else `render()` with its revision label.

    With `hold` it is the one that runs whatever is asked for: that is judged elsewhere before. With `withhold` too, and
    then it is told that another one was asked for.
    `shape_of` reads the shape from the annotations of the existing Deployment; `differences` says in words, from them
    and the template that runs, what an administrator's change would render differently.
    """
    inputs_hash = meta.short_hash(wanted.inputs)
    pinned = annotations_of(existing)
    same = pinned.get(ANNOTATION_INPUTS) == inputs_hash and shape_of(pinned) == wanted.shape
    template = stored_template(existing) if existing is not None else None
    if template is not None:
        runs = template
        update = None
        if same and not hold:
            others = differences(pinned, template)
            update = _update(pinned, wanted, user_image, others, lambda: with_revision(render()) == runs)
        asked = not hold and (not same or (take_update and update is not None))
        if withhold or not asked:
            ours = {ANNOTATION_RENDER_REVISION, ANNOTATION_INPUTS, ANNOTATION_DEFAULT_SECRETS, *wanted.pins}
            ours.add(wanted.image_annotation)
            kept = {key: pinned[key] for key in sorted(ours) if key in pinned}
            record = pinned.get(ANNOTATION_TEMPLATE)
            kept |= {ANNOTATION_TEMPLATE: record} if record else _record(template)
            return Choice(template=template, annotations=kept, kept=True, update_available=update, withheld=asked)
    template = with_revision(render())
    annotations = {
        ANNOTATION_RENDER_REVISION: str(RENDER_REVISION),
        ANNOTATION_INPUTS: inputs_hash,
        wanted.image_annotation: wanted.image,
        **wanted.pins,
        **_record(template),
    }
    return Choice(template=template, annotations=annotations, kept=False, update_available=None)
