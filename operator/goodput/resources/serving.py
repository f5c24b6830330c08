"""What a Deployment serves, written on it when its pods were rendered: what its author wrote may be edited since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import msgspec

from goodput.api.model import PVC_SCHEME
from goodput.api.quality import drafting, quality_args
from goodput.domain.change import Serving
from goodput.domain.intent import ModelIntent
from goodput.domain.speculation import DraftMethod, Speculation, SpeculationMode
from goodput.perfmodel.catalogue import architecture
from goodput.resources.engine.args import DRAFT_METHODS, KV_CACHE_DTYPES, MODELS_PATH
from goodput.resources.names import ENGINE_CONTAINER
from goodput.resources.pinning import annotations_of

ANNOTATION_SERVING = "goodput.dev/serving"
# Of a canary and of a Job: the change that they are for.
ANNOTATION_CHANGE = "goodput.dev/change"
_KV_CACHES = {dtype: name for name, dtype in KV_CACHE_DTYPES.items()}
_METHODS = {name: method for method, name in DRAFT_METHODS.items()}


def serving_json(intent: ModelIntent) -> str:
    """What pods rendered for `intent` serve, as JSON with sorted keys."""
    serving = Serving(
        model=intent.model,
        served_name=intent.served_name,
        quality=intent.quality,
        architecture=intent.architecture,
        kv_cache=intent.precision.kv_cache,
        speculation=intent.speculation,
        asked=intent.asked,
    )
    return msgspec.json.encode(serving, order="sorted").decode()


def serving_of(deployment: Mapping[str, Any]) -> Serving | None:
    """What `deployment` serves; where the record is lost, what its arguments say; None where they say nothing."""
    text = annotations_of(deployment).get(ANNOTATION_SERVING)
    if text:
        try:
            return msgspec.json.decode(text, type=Serving)
        except (msgspec.DecodeError, UnicodeEncodeError):
            pass
    pod = ((deployment.get("spec") or {}).get("template") or {}).get("spec") or {}
    for container in pod.get("containers") or ():
        if container.get("name") == ENGINE_CONTAINER and container.get("args"):
            return _from_args([str(word) for word in container["args"]], pod.get("volumes") or ())
    return None


def _from_args(args: list[str], volumes: Iterable[Mapping[str, Any]]) -> Serving:
    """What an engine with these arguments serves.

    Structure and precision of weights follow from model and quality. What leaves no trace in them cannot be told: an
    `Auto` that found drafts not worth it reads as none asked for, and goes through the gate once more.
    """
    model = args[0]
    if model == MODELS_PATH or model.startswith(f"{MODELS_PATH}/"):
        claims = [volume["persistentVolumeClaim"]["claimName"] for volume in volumes if volume.get("name") == "models"]
        model = PVC_SCHEME + "".join(claims) + model.removeprefix(MODELS_PATH)
    # The last one counts, as for the engine.
    following = dict(pairwise(args))
    kv_cache = _KV_CACHES.get(following.get("--kv-cache-dtype", ""))
    drafts = _speculation(following.get("--speculative-config"))
    values = {
        "spec.model": model,
        "spec.revision": following.get("--revision"),
        "spec.precision.weights": following.get("--quantization"),
        "spec.precision.kvCache": kv_cache,
        "spec.speculative": drafting(drafts.method.value, drafts.model) if drafts is not None else None,
        **quality_args(args),
    }
    return Serving(
        model=model,
        served_name=following.get("--served-model-name", model),
        quality=tuple(sorted((field, value) for field, value in values.items() if value)),
        kv_cache=kv_cache,
        speculation=drafts,
    )


def _speculation(config: str | None) -> Speculation | None:
    """Who drafts how many tokens, by the value of `--speculative-config`: always, whatever is believed of it now."""
    try:
        values = msgspec.json.decode(config or "", type=dict[str, Any])
        method = DraftMethod(_METHODS.get(values["method"], values["method"]))
        model, tokens = str(values.get("model") or ""), int(values["num_speculative_tokens"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return None
    draft = architecture(model) if method is DraftMethod.DRAFT else None
    return Speculation(method=method, mode=SpeculationMode.ALWAYS, model=model, tokens=tokens, draft=draft)
