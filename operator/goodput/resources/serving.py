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
from goodput.resources.engine.args import KV_CACHE_DTYPES, MODELS_PATH
from goodput.resources.names import ENGINE_CONTAINER
from goodput.resources.pinning import annotations_of

ANNOTATION_SERVING = "goodput.dev/serving"
# Of a canary and of a Job: the change that they are for.
ANNOTATION_CHANGE = "goodput.dev/change"
_KV_CACHES = {dtype: name for name, dtype in KV_CACHE_DTYPES.items()}


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
    model = args[0]
    if model == MODELS_PATH or model.startswith(f"{MODELS_PATH}/"):
        claims = [volume["persistentVolumeClaim"]["claimName"] for volume in volumes if volume.get("name") == "models"]
        model = PVC_SCHEME + "".join(claims) + model.removeprefix(MODELS_PATH)
    # The last one counts, as for the engine.
    following = dict(pairwise(args))
    kv_cache = _KV_CACHES.get(following.get("--kv-cache-dtype", ""))
    values = {
        "spec.model": model,
        "spec.revision": following.get("--revision"),
        "spec.precision.weights": following.get("--quantization"),
        "spec.precision.kvCache": kv_cache,
        "spec.speculative": _drafting(following.get("--speculative-config")),
        **quality_args(args),
    }
    return Serving(
        model=model,
        served_name=following.get("--served-model-name", model),
        quality=tuple(sorted((field, value) for field, value in values.items() if value)),
        kv_cache=kv_cache,
    )


def _drafting(config: str | None) -> str | None:
    """Who drafts by the value of `--speculative-config`."""
    try:
        values = msgspec.json.decode(config or "", type=dict[str, Any])
        method = str(values["method"])
    except (msgspec.DecodeError, KeyError):
        return None
    return drafting({"draft_model": "draft"}.get(method, method), values.get("model"))
