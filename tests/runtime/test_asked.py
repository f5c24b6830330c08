"""What a Model asks for is known again whoever filled in what it leaves out, and an edit of it is seen."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from goodput.api import Model
from goodput.api.kinds import MODEL
from goodput.api.schema import object_schema
from goodput.domain.identity import Key
from goodput.runtime.entries import Entry
from goodput.runtime.intents import Surroundings, intent_of
from goodput.runtime.settings import Settings

KEY = Key("team", "chat")
LLAMA: dict[str, Any] = {"model": "meta-llama/Llama-3.1-8B-Instruct", "slo": "chat"}
CHECK = {"jobTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "eval", "image": "evals:7"}]}}}}}
# Every object of the schema that may be left out, as empty as it may be.
BARE: dict[str, Any] = {
    "precision": {},
    "parallelism": {},
    "routing": {},
    "engine": {},
    "template": {},
    "speculative": {"method": "ngram"},
    "credentials": {"secretRef": {"name": "hub"}},
    "qualityCheck": CHECK,
}


def asked(**spec: Any) -> tuple[str, str]:
    metadata = {"namespace": KEY.namespace, "name": KEY.name, "uid": "u", "generation": 1}
    model = Model.parse({"metadata": metadata, "spec": {**LLAMA, **spec}})
    around = Surroundings(
        settings=Settings(prometheus_url=""),
        slo=None,
        gpu_types=frozenset(),
        gpu_type_faults={},
        served_names={},
        config_map_text=lambda *_: None,
    )
    intent = intent_of(Entry(KEY, "u", 1, 1, model), around)
    assert intent is not None
    return intent.asked, intent.judge


def filled(value: Any, schema: dict[str, Any]) -> Any:
    """As the API server fills in defaults: within objects that are there, from the top down."""
    if isinstance(value, list):
        return [filled(item, schema.get("items", {})) for item in value]
    if not isinstance(value, dict):
        return value
    found = copy.deepcopy(value)
    for name, field in schema.get("properties", {}).items():
        if name not in found and "default" in field:
            found[name] = copy.deepcopy(field["default"])
        if name in found:
            found[name] = filled(found[name], field)
    return found


@pytest.mark.parametrize("spec", [{}, BARE], ids=["least", "bare"])
def test_defaults_that_the_api_server_fills_in_are_no_edit(spec: dict[str, Any]) -> None:
    """A newer schema has more of them, and they stand in every object as soon as it is installed."""
    whole = filled({**LLAMA, **spec}, object_schema(MODEL)["properties"]["spec"])
    assert whole != {**LLAMA, **spec}
    assert asked(**whole) == asked(**spec)


@pytest.mark.parametrize(
    "spec",
    [{name: BARE[name]} for name in ("precision", "parallelism", "routing", "engine", "template")]
    + [{"engine": {"update": "Automatic"}}, {"precision": {"weights": "Auto"}}, {"scaling": {"minReplicas": 3}}],
    ids=str,
)
def test_what_says_nothing_is_no_edit(spec: dict[str, Any]) -> None:
    """An empty object, a default, and what pods are not made from."""
    assert asked(**spec) == asked()


@pytest.mark.parametrize(
    "spec",
    [
        {"revision": "v2"},
        {"precision": {"weights": "fp8"}},
        {"speculative": {"method": "ngram"}},
        {"engine": {"args": ["--dtype", "half"]}},
        {"qualityCheck": CHECK},
    ],
    ids=str,
)
def test_an_edit_is_one(spec: dict[str, Any]) -> None:
    assert asked(**spec) != asked()
