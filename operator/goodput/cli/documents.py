"""Manifests in files: YAML documents and Lists of them, read as strictly as `kubectl apply` reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import click
import yaml

from goodput.api.kinds import KINDS
from goodput.api.schema import object_schema

_KINDS = {kind.kind: kind for kind in KINDS}


def read_documents(files: Iterable[TextIO]) -> list[dict[str, Any]]:
    """All objects in the files; those of our kinds have no field that the API server would refuse as unknown.

    Raises:
        click.ClickException: one cannot be read, and why.
    """
    found: list[dict[str, Any]] = []
    for file in files:
        name = Path(getattr(file, "name", "standard input")).name
        try:
            loaded = list(yaml.safe_load_all(file))
        except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
            # ValueError: a date such as 2026-13-01.
            raise click.ClickException(f"{name} is not YAML: {error}") from error
        except RecursionError as error:
            raise click.ClickException(f"{name} is nested too deeply") from error
        for document in loaded:
            if document is not None:
                found += _objects(document, name)
    _no_twins(found)
    return found


def _objects(document: Any, name: str) -> Iterator[dict[str, Any]]:
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind == "List":
        items = document.get("items")
        if not isinstance(items, list):
            raise click.ClickException(f"{name} has a List without items")
        for item in items:
            yield from _objects(item, name)
        return
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if not isinstance(kind, str) or not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise click.ClickException(f"{name} has a document without kind or metadata.name")
    if not isinstance(metadata.get("namespace", ""), str):
        raise click.ClickException(f"{name}: {kind} {metadata['name']}: metadata.namespace is no text")
    ours = _KINDS.get(kind)
    if ours is not None:
        version = f"{ours.group}/{ours.version}"
        if document.get("apiVersion") != version:
            raise click.ClickException(f"{name}: {kind} {metadata['name']}: apiVersion must be {version}")
        unknown = next(unknown_fields(object_schema(ours), document, ""), None)
        if unknown is not None:
            raise click.ClickException(f'{name}: {kind} {metadata["name"]}: unknown field "{unknown}"')
    yield document


def unknown_fields(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    """Paths of fields in `value` that a structural schema does not declare."""
    properties = schema.get("properties")
    if isinstance(value, dict) and properties is not None:
        for key, item in value.items():
            where = f"{path}.{key}" if path else str(key)
            if key in properties:
                yield from unknown_fields(properties[key], item, where)
            elif path or key not in ("apiVersion", "kind", "metadata"):
                yield where
    elif isinstance(value, dict) and isinstance(schema.get("additionalProperties"), dict):
        for key, item in value.items():
            yield from unknown_fields(schema["additionalProperties"], item, f"{path}[{key}]")
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            yield from unknown_fields(schema["items"], item, f"{path}[{index}]")


def _no_twins(documents: Iterable[dict[str, Any]]) -> None:
    seen: set[tuple[str, str, str]] = set()
    for document in documents:
        metadata = document["metadata"]
        identity = document["kind"], metadata.get("namespace") or "", metadata["name"]
        if identity in seen:
            raise click.ClickException(f"{identity[0]} {identity[2]} is there twice")
        seen.add(identity)
