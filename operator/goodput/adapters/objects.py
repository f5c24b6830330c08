"""Kubernetes objects as decoded JSON, and what orders and names them."""

from __future__ import annotations

from typing import Any

from goodput.domain.identity import Key

Object = dict[str, Any]


def key_of(manifest: Object) -> Key:
    """Namespace ('' if cluster-scoped) and name."""
    metadata = manifest["metadata"]
    return Key(metadata.get("namespace") or "", metadata["name"])


def version_of(manifest: Object) -> int:
    """Resource versions of one resource are ordered numbers (guaranteed since Kubernetes 1.35)."""
    return int(manifest["metadata"].get("resourceVersion") or 0)
