"""docs/api.md, generated from the same schemas as the CRDs: field, type, default, meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from goodput.api.rules import VALIDATIONS
from goodput.api.schema import PRESERVE, Kind, object_schema

_HEADER = """# API reference

Generated from the API models by `scripts/generate`; do not edit. Group `{group}`, version `{version}`.

A field that is not listed does not exist: `kubectl apply` refuses it. Unset and `null` mean the same. Quantities are
Kubernetes quantities (`79.2Gi`, `989T`), durations have a unit (`500ms`, `1m30s`), shares are percentages (`95%`).
"""


def reference(kinds: Sequence[Kind]) -> str:
    """The whole page in Markdown."""
    parts = [_HEADER.format(group=kinds[0].group, version=kinds[0].version)]
    for kind in kinds:
        schema = object_schema(kind)
        scope = "namespaced" if kind.namespaced else "cluster-scoped"
        parts.append(f"## {kind.kind}\n\n{schema['description']}\n")
        parts.append(f"Short name `{', '.join(kind.short_names)}`, {scope}, category `{', '.join(kind.categories)}`.\n")
        parts += [f"- {_sentence(rule['message'])}\n" for rule in schema.get(VALIDATIONS, ())]
        for section in ("spec", "status"):
            parts.append(f"### {kind.kind}.{section}\n")
            parts.append(_table(schema["properties"][section]))
    return "\n".join(parts)


def _table(schema: Mapping[str, Any]) -> str:
    rows = ["| field | type | default | meaning |", "|---|---|---|---|"]
    rows += [
        f"| `{path}` | {kind} | {default} | {meaning} |" for path, kind, default, meaning in _rows(schema, "", False)
    ]
    return "\n".join(rows) + "\n"


def _rows(schema: Mapping[str, Any], path: str, required: bool) -> Iterator[tuple[str, str, str, str]]:
    if path:
        default = "required" if required else _default(schema)
        yield path, _type(schema), default, _meaning(schema)
    for name, part in schema.get("properties", {}).items():
        yield from _rows(part, f"{path}.{name}".lstrip("."), name in schema.get("required", ()))
    items = schema.get("items", {})
    for name, part in items.get("properties", {}).items():
        yield from _rows(part, f"{path}[].{name}", name in items.get("required", ()))


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"] if isinstance(value, str) and value)
    if "x-kubernetes-int-or-string" in schema:
        return "quantity"
    if schema.get(PRESERVE):
        return "string or object"
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}"
    if "additionalProperties" in schema:
        return f"map of {_type(schema['additionalProperties'])}"
    bounds = ""
    if schema["type"] == "integer" and ("minimum" in schema or "maximum" in schema):
        bounds = f" {schema.get('minimum', '')}..{schema.get('maximum', '')}"
    return str(schema["type"]) + bounds


def _default(schema: Mapping[str, Any]) -> str:
    default = schema.get("default")
    if default is None or default == {}:
        return ""
    return f"`{str(default).lower()}`" if isinstance(default, bool) else f"`{default}`"


def _meaning(schema: Mapping[str, Any]) -> str:
    sentences = [str(schema.get("description", ""))]
    sentences += [_sentence(rule["message"]) for rule in schema.get(VALIDATIONS, ())]
    return " ".join(sentence for sentence in sentences if sentence).replace("|", "\\|")


def _sentence(message: str) -> str:
    return message[0].upper() + message[1:] + "."
