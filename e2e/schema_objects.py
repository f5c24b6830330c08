"""Objects made up by hypothesis from our CRD schemas: right field by field, but no user's work.

Rules over several fields still refuse some of them, which is as it should be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from goodput.api.schema import PRESERVE, Kind, object_schema

Strategy = st.SearchStrategy[Any]

# The expression that a rule of a field must match, out of its CEL.
_MATCHES = re.compile(r"(?:self|string\(self\))\.matches\('\^((?:[^'\\]|\\.)*)\$'\)")
_NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
_TEXTS = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=20)


def _expression(node: Mapping[str, Any]) -> str | None:
    for rule in node.get("x-kubernetes-validations", ()):
        found = _MATCHES.match(rule["rule"])
        if found is not None:
            return found[1].replace("\\\\", "\\").replace("\\'", "'")
    return None


def _texts(node: Mapping[str, Any]) -> Strategy:
    expression = _expression(node)
    made = _TEXTS if expression is None else st.from_regex(re.compile(expression, re.ASCII), fullmatch=True)
    low, high = node.get("minLength", 0), node.get("maxLength", 1000)
    return made.filter(lambda text: low <= len(text) <= high)


def values(node: Mapping[str, Any]) -> Strategy:
    """What `node` admits."""
    if "enum" in node:
        return st.sampled_from(node["enum"])
    if "x-kubernetes-int-or-string" in node:
        return st.one_of(st.integers(1, 10**6), _texts(node))
    if node.get(PRESERVE):  # `slo`
        return st.one_of(_NAMES, _objects({**node, "type": "object"}))
    kind = node["type"]
    if kind == "boolean":
        return st.booleans()
    if kind == "integer":
        return st.integers(node.get("minimum", -(2**31)), node.get("maximum", 2**31))
    if kind == "number":
        low, high = node.get("minimum", 0), node.get("maximum", 2**20)
        return st.integers(int(low * 8) + 1, int(high * 8)).map(lambda eighths: eighths / 8)
    if kind == "string":
        return _NAMES if "pattern" in node else _texts(node)
    if kind == "array":
        return st.lists(values(node["items"]), min_size=node.get("minItems", 0), max_size=3)
    if "additionalProperties" in node:
        low = node.get("minProperties", 0)
        return st.dictionaries(_NAMES, values(node["additionalProperties"]), min_size=low, max_size=2)
    return _objects(node)


def _objects(node: Mapping[str, Any]) -> Strategy:
    properties, required = node["properties"], node.get("required", ())
    return st.fixed_dictionaries(
        {name: values(properties[name]) for name in required},
        optional={name: values(part) for name, part in properties.items() if name not in required},
    )


def objects(kind: Kind, name: str) -> Strategy:
    """Whole objects of `kind` called `name`."""
    head = {"apiVersion": f"{kind.group}/{kind.version}", "kind": kind.kind, "metadata": {"name": name}}
    return values(object_schema(kind)["properties"]["spec"]).map(lambda made: {**head, "spec": made})
