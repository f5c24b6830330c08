"""Metadata that all objects of a Model share: labels, selectors, owner, and the hash that names a revision."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from goodput.domain.identity import LABEL_MANAGED_BY, LABEL_MODEL, LABEL_POOL, MANAGED_BY
from goodput.domain.intent import ModelIntent
from goodput.resources import names
from goodput.resources.inputs import KubeObject

REVISION_LENGTH = 10


def canonical_json(value: Any) -> str:
    """Equal values give equal text, whatever the order of their keys."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def short_hash(value: Any) -> str:
    """Ten hexadecimal digits of SHA-256 over the canonical JSON of `value`; valid as a label value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:REVISION_LENGTH]


def selector(model: str, pool: str) -> dict[str, str]:
    """Labels that select the pods of one pool; Deployments never change them, so they hold nothing else."""
    return {LABEL_MODEL: model, LABEL_POOL: pool}


def labels(model: str, pool: str | None = None) -> dict[str, str]:
    """Labels of an object, or of a pod of `pool`."""
    result = {LABEL_MANAGED_BY: MANAGED_BY, LABEL_MODEL: model}
    if pool is not None:
        result[LABEL_POOL] = pool
    return result


def owner(intent: ModelIntent) -> KubeObject:
    """The Model owns the object. No blockOwnerDeletion: OpenShift refuses it to those who cannot set finalizers."""
    return {
        "apiVersion": names.GROUP_VERSION,
        "kind": "Model",
        "name": intent.key.name,
        "uid": intent.uid,
        "controller": True,
    }


def new_object(api_version: str, kind: str, name: str, intent: ModelIntent, pool: str | None = None) -> KubeObject:
    """An object of `intent` with its metadata; the caller adds the rest."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": intent.key.namespace,
            "labels": labels(intent.key.name, pool),
            "ownerReferences": [owner(intent)],
        },
    }
