"""The converter from pydantic to structural schemas, and what it makes of our kinds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

import pytest
import yaml
from pydantic import Field

from goodput.api.base import ApiModel, Int
from goodput.api.kinds import KINDS, MODEL
from goodput.api.rules import Rule
from goodput.api.schema import (
    HASH_ANNOTATION,
    MAX_CRD_BYTES,
    Kind,
    crd_yaml,
    custom_resource_definition,
    object_schema,
    schema_hash,
    structural,
    unknown_fields,
)


class _Colour(StrEnum):
    RED = "Red"
    BLUE = "Blue"


class _Inner(ApiModel):
    """An inner object."""

    size: Int = Field(default=3, ge=1)
    """How large."""


class _Outer(ApiModel):
    """An outer object."""

    maybe: _Inner | None = None
    """Perhaps."""
    always: _Inner = Field(default_factory=_Inner)
    """Always there."""
    one: Literal["A"] = "A"
    """Only one choice."""
    colour: _Colour = _Colour.RED
    """A choice."""
    above: Annotated[Int, Field(gt=0)]
    """Above zero."""
    labels: dict[str, str] | None = None
    """A map."""
    items: tuple[_Inner, ...] = ()
    """A list."""

    RULES: ClassVar[tuple[Rule, ...]] = (Rule("self.above < 10", "above is below 10", lambda outer: outer.above < 10),)


def _nodes(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from _nodes(part, f"{path}.{name}")
    for inner, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if inner in schema:
            yield from _nodes(schema[inner], path + mark)


@pytest.fixture
def outer() -> dict[str, Any]:
    """The structural schema of `_Outer`."""
    return structural(_Outer.model_json_schema(by_alias=True))


def test_references_and_null_are_gone(outer: dict[str, Any]) -> None:
    """`T | None` of another model is that model inline, without a null type or default."""
    maybe = outer["properties"]["maybe"]
    assert maybe["type"] == "object"
    assert maybe["properties"]["size"]["default"] == 3
    assert "default" not in maybe
    assert not {"$ref", "$defs", "anyOf", "title"} & {key for _, node in _nodes(outer) for key in node}


def test_an_object_that_is_always_there_defaults_to_an_empty_one(outer: dict[str, Any]) -> None:
    """Else defaults inside it would never be filled in."""
    assert outer["properties"]["always"]["default"] == {}


def test_items_of_lists_have_no_defaults(outer: dict[str, Any]) -> None:
    """Tools that compare lists as a whole would see drift."""
    assert "default" not in outer["properties"]["items"]["items"]["properties"]["size"]


def test_bounds_constants_and_enums_take_the_form_of_openapi_v3(outer: dict[str, Any]) -> None:
    """exclusiveMinimum is a boolean there, and there is no const."""
    assert outer["properties"]["above"] | {"description": ""} == {
        "type": "integer",
        "minimum": 0,
        "exclusiveMinimum": True,
        "description": "",
    }
    assert outer["properties"]["one"]["enum"] == ["A"]
    assert outer["properties"]["colour"]["enum"] == ["Red", "Blue"]


def test_rules_become_validations(outer: dict[str, Any]) -> None:
    """Beside the object that they speak of."""
    assert outer["x-kubernetes-validations"] == [{"rule": "self.above < 10", "message": "above is below 10"}]


@pytest.mark.parametrize("annotation", [int | str, Any, tuple[int, str]])
def test_what_has_no_structural_form_is_an_error(annotation: Any) -> None:
    """A union, anything at all, or a tuple of unlike items is refused when CRDs are generated, not when applied."""
    model = type("_Odd", (ApiModel,), {"__annotations__": {"odd": annotation}, "__module__": __name__})
    with pytest.raises(ValueError, match=r"no structural form|union"):
        structural(model.model_json_schema(by_alias=True))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_field_is_described(kind: Kind) -> None:
    """kubectl explain has a sentence for each field, and optional ones of a spec say what happens when unset."""
    for section in ("spec", "status"):
        for path, node in _nodes(object_schema(kind)["properties"][section], section):
            if not path.endswith(("[]", "{}")):
                assert len(node.get("description", "")) > 5, path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_optional_field_of_a_spec_says_what_unset_means(kind: Kind) -> None:
    """Its text has a sentence for the case that nothing is written."""
    silent = [
        f"{path}.{name}"
        for path, node in _nodes(object_schema(kind)["properties"]["spec"], "spec")
        for name, part in node.get("properties", {}).items()
        if name not in node.get("required", ()) and not any(w in part["description"] for w in ("Unset:", "Default"))
    ]
    assert silent == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_every_text_list_and_map_is_bounded(kind: Kind) -> None:
    """Without bounds the API server cannot bound the cost of CEL, and one object could fill etcd."""
    for section in ("spec", "status"):
        for path, node in _nodes(object_schema(kind)["properties"][section], section):
            if node.get("type") == "string" and "enum" not in node:
                assert "maxLength" in node, path
            if node.get("type") == "array":
                assert "maxItems" in node, path
            if "additionalProperties" in node:
                assert "maxProperties" in node, path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_crds_are_small_enough_to_apply(kind: Kind) -> None:
    """kubectl keeps a copy in an annotation, which may have 262,144 bytes at most."""
    assert len(crd_yaml(kind).encode()) < MAX_CRD_BYTES
    assert len(json.dumps(custom_resource_definition(kind))) < MAX_CRD_BYTES


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_status_has_no_defaults(kind: Kind) -> None:
    """What is in status is what the operator wrote."""
    assert not [path for path, node in _nodes(object_schema(kind)["properties"]["status"]) if "default" in node]


def test_the_hash_changes_with_the_schema_and_not_with_its_words() -> None:
    """A better description is no reason to refuse to write."""
    schema = object_schema(MODEL)
    other_words = json.loads(json.dumps(schema))
    other_words["properties"]["spec"]["description"] = "Other words."
    other_bound = json.loads(json.dumps(schema))
    other_bound["properties"]["spec"]["properties"]["model"]["maxLength"] = 7
    assert schema_hash(other_words) == schema_hash(schema)
    assert schema_hash(other_bound) != schema_hash(schema)
    # A field may itself be called "description".
    assert schema_hash({"properties": {"description": {"type": "string"}}}) != schema_hash({"properties": {}})


def test_the_annotation_is_the_hash_of_what_is_installed() -> None:
    """So the operator can tell an older CRD by one look."""
    definition = yaml.safe_load(crd_yaml(MODEL))
    installed = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert definition["metadata"]["annotations"][HASH_ANNOTATION] == schema_hash(installed)


def test_unknown_fields_are_found_at_any_depth() -> None:
    """In objects, in items of lists, and beside spec; metadata and free maps are left alone."""
    raw = {
        "apiVersion": "goodput.dev/v1alpha1",
        "kind": "Model",
        "metadata": {"name": "x", "anything": {"goes": 1}},
        "spec": {
            "model": "a/b",
            "slo": "chat",
            "sclaing": {},
            "engine": {"env": [{"name": "A", "valeu": "1"}]},
            "template": {"labels": {"free": "x"}},
        },
        "extra": 1,
    }
    assert list(unknown_fields(raw, object_schema(MODEL))) == ["spec.sclaing", "spec.engine.env[0].valeu", "extra"]
