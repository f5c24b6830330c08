"""The allow-list of `spec.template`, merged into an engine pod so that nothing of ours can be overridden.

The API refuses what is not allowed with a message; here it is dropped, whatever path it came in by.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goodput.api.template import OWNED_DOMAINS, OWNED_KEYS, OWNED_VOLUME_PREFIX, OWNED_VOLUMES, RESOURCES
from goodput.resources.engine.storage import path_is_reserved
from goodput.resources.inputs import KubeObject

ALLOWED_VOLUME_SOURCES = ("persistentVolumeClaim", "emptyDir", "secret")


def key_is_reserved(key: str) -> bool:
    """Whether a label or annotation key belongs to Kubernetes or to Goodput."""
    domain = key.split("/", 1)[0] if "/" in key else ""
    in_domain = any(domain == owned or domain.endswith("." + owned) for owned in OWNED_DOMAINS)
    return in_domain or key in OWNED_KEYS


def user_metadata(template: Mapping[str, Any], field: str) -> dict[str, str]:
    """Labels or annotations of the user, without reserved keys."""
    return {str(key): str(value) for key, value in (template.get(field) or {}).items() if not key_is_reserved(str(key))}


def merged_resources(template: Mapping[str, Any], ours: Mapping[str, str], gpus: Mapping[str, str]) -> KubeObject:
    """Requests and limits: `ours` are defaults that the user may replace, `gpus` are fixed.

    A limit without a request is the request too, as everywhere in Kubernetes.
    """
    given = template.get("resources") or {}
    requests = {key: str(value) for key, value in (given.get("requests") or {}).items() if key in RESOURCES}
    limits = {key: str(value) for key, value in (given.get("limits") or {}).items() if key in RESOURCES}
    defaults = {key: limits.get(key, value) for key, value in ours.items()}
    return {"requests": {**defaults, **requests, **gpus}, "limits": {**limits, **gpus}}


def user_volumes(template: Mapping[str, Any]) -> list[KubeObject]:
    """Volumes of the user with an allowed source and a name that is not ours; the first of equal names."""
    result: dict[str, KubeObject] = {}
    for volume in template.get("volumes") or ():
        name = str(volume.get("name", ""))
        sources = [key for key in volume if key != "name"]
        allowed = len(sources) == 1 and sources[0] in ALLOWED_VOLUME_SOURCES
        owned = name in OWNED_VOLUMES or name.startswith(OWNED_VOLUME_PREFIX)
        if name and allowed and not owned and name not in result:
            result[name] = dict(volume)
    return list(result.values())


def user_mounts(template: Mapping[str, Any]) -> list[KubeObject]:
    """Mounts of `user_volumes` at paths that are not ours; the first of equal paths."""
    known = {volume["name"] for volume in user_volumes(template)}
    result: dict[str, KubeObject] = {}
    for mount in template.get("volumeMounts") or ():
        path = str(mount.get("mountPath", ""))
        if mount.get("name") in known and not path_is_reserved(path) and path not in result:
            result[path] = {key: mount[key] for key in ("name", "mountPath", "subPath", "readOnly") if key in mount}
    return list(result.values())
