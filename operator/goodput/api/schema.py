"""From pydantic models to the structural schemas that a CRD needs.

The API server takes a dialect of OpenAPI v3: no references, no null type, no unions, `exclusiveMinimum` a boolean, no
constants. What it adds (`x-kubernetes-*`) comes from the metadata of the fields and passes through.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from goodput.api.base import ApiModel, ApiObject
from goodput.api.rules import VALIDATIONS

HASH_ANNOTATION = "goodput.dev/schema-hash"
MAX_CRD_BYTES = 262_144
PRESERVE = "x-kubernetes-preserve-unknown-fields"

_YAML_HEADER = "# Generated from operator/goodput/api by scripts/generate; do not edit.\n"

# Keys of JSON Schema that the API server refuses or drops.
_DROPPED = ("title", "$defs", "discriminator", "examples", "deprecated", "writeOnly", "readOnly")

# Keys that a structural schema of ours may hold.
_KEYS = frozenset(
    (
        *("type", "description", "default", "enum", "format", "pattern", "required", "properties", "items"),
        *("additionalProperties", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength"),
        *("maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "anyOf", "not", PRESERVE, VALIDATIONS),
        *("x-kubernetes-int-or-string", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
    )
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; `wide` ones show with -o wide only."""

    name: str
    json_path: str
    type: str = "string"
    description: str = ""
    wide: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """All that a CustomResourceDefinition says beside its schema."""

    model: type[ApiObject]
    kind: str
    plural: str
    short_names: tuple[str, ...]
    group: str
    version: str
    namespaced: bool = True
    categories: tuple[str, ...] = ()
    columns: tuple[Column, ...] = field(default=())


def structural(schema: Mapping[str, Any], definitions: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`schema` (as pydantic makes it) as a structural schema. ValueError names a construct that has no such form."""
    definitions = schema.get("$defs", {}) if definitions is None else definitions
    node = {key: value for key, value in schema.items() if key not in _DROPPED}
    if "$ref" in node:
        target = definitions[node.pop("$ref").removeprefix("#/$defs/")]
        node = {**{key: value for key, value in target.items() if key not in _DROPPED}, **node}
    if "anyOf" in node and node.get(PRESERVE) is None:
        node = _without_null(node)
        if "$ref" in node:
            return structural(node, definitions)
    if "const" in node:
        node["enum"] = [node.pop("const")]
    for bound in ("Minimum", "Maximum"):
        if f"exclusive{bound}" in node:
            node[bound.lower()] = node.pop(f"exclusive{bound}")
            node[f"exclusive{bound}"] = True
    node.pop("propertyNames", None)  # rules on keys are CEL
    if isinstance(node.get("additionalProperties"), bool):
        del node["additionalProperties"]  # unknown fields are pruned, and refused by kubectl
    if "properties" in node:
        node["properties"] = {name: structural(part, definitions) for name, part in node["properties"].items()}
    for inner in ("items", "additionalProperties"):
        if inner in node:
            node[inner] = structural(node[inner], definitions)
    # Items of lists get no defaults: tools that compare lists as a whole would see drift.
    if "items" in node:
        node["items"] = _without_defaults(node["items"])
    if "default" in node and (
        node["default"] in (None, "", []) or (node["default"] == {} and "properties" not in node)
    ):
        del node["default"]
    if "type" not in node and PRESERVE not in node and "x-kubernetes-int-or-string" not in node:
        raise ValueError(f"no structural form: {json.dumps(schema, default=str)[:200]}")
    if unknown := node.keys() - _KEYS:
        raise ValueError(f"no structural form for {sorted(unknown)}: {json.dumps(schema, default=str)[:200]}")
    if "description" in node:
        node["description"] = " ".join(str(node["description"]).split())
    return node


def _without_null(node: dict[str, Any]) -> dict[str, Any]:
    """`T | None` is T that may be left out."""
    options = [option for option in node.pop("anyOf") if option.get("type") != "null"]
    if len(options) != 1:
        raise ValueError(f"a union has no structural form: {options}")
    return {**options[0], **node}


def _without_defaults(node: Any, *, names: bool = False) -> Any:
    if isinstance(node, Mapping):
        return {
            key: _without_defaults(value, names=key == "properties")
            for key, value in node.items()
            if names or key != "default"
        }
    return node


def object_schema(kind: Kind) -> dict[str, Any]:
    """The structural schema of a whole object; of metadata it says only `type: object`, as the API server demands."""
    schema = structural(kind.model.model_json_schema(by_alias=True))
    properties = schema["properties"]
    properties["metadata"] = {"type": "object"}
    properties["status"] = _without_defaults(properties["status"])
    for name in ("apiVersion", "kind"):
        properties[name] = {"type": "string"}
    schema["properties"] = {name: properties[name] for name in ("apiVersion", "kind", "metadata", "spec", "status")}
    schema["required"] = ["spec"] if "spec" in schema.get("required", ()) else []
    if not schema["required"]:
        del schema["required"]
    return schema


def schema_hash(schema: Mapping[str, Any]) -> str:
    """16 hexadecimal digits that change with what a schema admits, not with what it says about it."""
    text = json.dumps(_without_descriptions(schema), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _without_descriptions(node: Any, *, names: bool = False) -> Any:
    if isinstance(node, Mapping):
        return {
            key: _without_descriptions(value, names=key == "properties")
            for key, value in node.items()
            if names or key != "description"
        }
    if isinstance(node, list):
        return [_without_descriptions(value) for value in node]
    return node


def custom_resource_definition(kind: Kind) -> dict[str, Any]:
    """The whole CustomResourceDefinition."""
    schema = object_schema(kind)
    columns = [
        {
            "name": column.name,
            "type": column.type,
            "jsonPath": column.json_path,
            **({"description": column.description} if column.description else {}),
            **({"priority": 1} if column.wide else {}),
        }
        for column in kind.columns
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{kind.group}",
            "annotations": {HASH_ANNOTATION: schema_hash(schema)},
            "labels": {"app.kubernetes.io/name": "goodput", "app.kubernetes.io/component": "crd"},
        },
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                "shortNames": list(kind.short_names),
                "categories": list(kind.categories),
            },
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                }
            ],
        },
    }


def crd_yaml(kind: Kind) -> str:
    """The CustomResourceDefinition as a YAML file. ValueError if it is larger than an API server takes."""
    definition = custom_resource_definition(kind)
    text = _YAML_HEADER + yaml.safe_dump(definition, sort_keys=False, width=118, allow_unicode=True)
    if len(text.encode()) >= MAX_CRD_BYTES:
        raise ValueError(f"the CRD of {kind.kind} has {len(text.encode())} bytes, the limit is {MAX_CRD_BYTES}")
    return text


def unknown_fields(value: Any, schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Paths of fields in `value` that `schema` does not have: what strict validation of the API server refuses."""
    if isinstance(value, Mapping):
        known = schema.get("properties")
        extra = schema.get("additionalProperties")
        for name, inner in value.items():
            here = f"{path}.{name}".lstrip(".")
            if isinstance(extra, Mapping):
                yield from unknown_fields(inner, extra, here)
            elif known is None or path == "metadata" or here == "metadata":
                continue
            elif name not in known:
                yield here
            else:
                yield from unknown_fields(inner, known[name], here)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from unknown_fields(inner, schema.get("items", {}), f"{path}[{index}]")


__all__ = [
    "VALIDATIONS",
    "ApiModel",
    "Column",
    "Kind",
    "crd_yaml",
    "custom_resource_definition",
    "object_schema",
    "schema_hash",
    "structural",
    "unknown_fields",
]
