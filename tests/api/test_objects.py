"""SLO, Model and GPUType as Python reads them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from goodput.api import SLO, GPUType, Model
from goodput.domain.conditions import ConditionReason
from goodput.domain.errors import InvalidObject


def _model(name: str = "llama-8b", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"model": "meta-llama/Llama-3.1-8B-Instruct", "slo": "chat", **spec},
    }


def _slo(**spec: Any) -> SLO:
    return SLO.parse({"metadata": {"name": "chat", "namespace": "platform"}, "spec": {"ttft": "500ms", **spec}})


def test_the_smallest_model_has_every_default() -> None:
    """What the API server fills in, Python fills in as well."""
    spec = Model.parse(_model()).spec
    assert (spec.scaling.min_replicas, spec.scaling.max_replicas, spec.scaling.mode) == (1, None, None)
    assert (spec.routing.mode, spec.routing.admission) == ("Router", "Auto")
    assert (spec.engine.update, spec.engine.args, spec.paused) == ("OnChange", (), False)


@pytest.mark.parametrize(
    ("written", "want"),
    [
        ("chat", ("team-a", "chat")),
        ({"name": "chat"}, ("team-a", "chat")),
        ({"name": "chat", "namespace": "platform"}, ("platform", "chat")),
    ],
)
def test_an_slo_is_named_by_text_or_with_its_namespace(written: Any, want: tuple[str, str]) -> None:
    """Both forms give a namespace and a name."""
    model = Model.parse(_model(slo=written))
    assert (model.slo_namespace, model.spec.slo.name) == want


def test_the_served_name_is_the_hub_id_unless_set() -> None:
    """Users call a model by the id that they know; a claim has none, so there it is the Model's own name."""
    assert Model.parse(_model()).served_name == "meta-llama/Llama-3.1-8B-Instruct"
    assert Model.parse(_model(servedName="llama")).served_name == "llama"
    assert Model.parse(_model(model="pvc://weights/llama")).served_name == "llama-8b"


@pytest.mark.parametrize(
    ("written", "want"),
    [
        ("pvc://weights/a/b", ("weights", "a/b")),
        ("pvc://weights", ("weights", "")),
        ("meta-llama/Llama-3.1-8B-Instruct", None),
    ],
)
def test_a_claim_splits_into_name_and_path(written: str, want: tuple[str, str] | None) -> None:
    """The path is relative to the claim's root."""
    assert Model.parse(_model(model=written)).claim_and_path == want


@pytest.mark.parametrize("name", ["l40s", "h100.3g-40gb", "a.b.c", "x" * 63])
def test_a_model_can_name_every_gpu_type(name: str) -> None:
    """Whatever a GPUType may be called, dots included."""
    assert GPUType.parse({"metadata": {"name": name}}).metadata.name == name
    assert Model.parse(_model(gpuTypes=[name])).spec.gpu_types == (name,)


@pytest.mark.parametrize("model", ["pvc://a.b/x", "pvc://" + "a" * 253, "pvc://weights/" + "a" * 300])
def test_every_claim_can_be_named(model: str) -> None:
    """With dots, as long as Kubernetes lets it be, and with a path of any length."""
    assert Model.parse(_model(model=model)).spec.model == model


@pytest.mark.parametrize(
    ("operator", "values"), [("Gt", ["8"]), ("Lt", ["0"]), ("In", ["a", "b"]), ("NotIn", ["8"]), ("Exists", [])]
)
def test_node_affinity_takes_what_kubernetes_takes(operator: str, values: list[str]) -> None:
    """Numbers are compared for nodes; the values come through."""
    term = {"matchExpressions": [{"key": "example.com/cores", "operator": operator, "values": values}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    template = Model.parse(_model(template={"affinity": {"nodeAffinity": required}})).spec.template
    assert template is not None
    assert template.to_dict()["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] == {
        "nodeSelectorTerms": [term]
    }


def test_a_bare_off_in_yaml_is_off() -> None:
    """YAML reads it as false, and users write it bare."""
    assert Model.parse(_model(routing={"admission": False})).spec.routing.admission == "Off"


def test_null_is_unset_and_two_point_zero_is_two() -> None:
    """As the API server reads them."""
    spec = Model.parse(_model(paused=None, scaling={"minReplicas": 2.0, "maxReplicas": None})).spec
    assert (spec.paused, spec.scaling.min_replicas, spec.scaling.max_replicas) == (False, 2, None)


@pytest.mark.parametrize("wrong", [True, "2", 2.5])
def test_a_count_is_a_whole_number(wrong: Any) -> None:
    """No text, no boolean, no fraction is taken for one."""
    with pytest.raises(InvalidObject) as refused:
        Model.parse(_model(scaling={"minReplicas": wrong}))
    assert refused.value.field == "spec.scaling.minReplicas"


@pytest.mark.parametrize(
    ("changed", "field", "message"),
    [
        ({"gpuTypes": "l4"}, "gpuTypes", "Input should be a list, not 'l4'"),
        ({"architecture": {"moe_layer_freq": 1}}, "architecture.moe_layer_freq", "Input should be a list, not 1"),
        ({"scaling": 3}, "scaling", "Input should be an object, not 3"),
    ],
)
def test_messages_speak_of_lists_and_objects(changed: dict[str, Any], field: str, message: str) -> None:
    """Users write YAML, and know no tuples or instances of classes."""
    with pytest.raises(InvalidObject) as refused:
        Model.parse(_model(**changed))
    assert (refused.value.field, refused.value.message) == (f"spec.{field}", message)


@pytest.mark.parametrize(
    ("changed", "field", "message"),
    [
        ({"ttft": 500}, "ttft", "a duration is a number with a unit, such as 500ms, 2s or 1m30s"),
        ({"attainment": 0.95}, "attainment", "a share of requests is a percentage with its sign, such as 95% or 99.9%"),
    ],
)
def test_a_bare_number_is_told_how_it_is_written(changed: dict[str, Any], field: str, message: str) -> None:
    """500 of what?"""
    raw = {"metadata": {"name": "chat"}, "spec": {"ttft": "500ms", **changed}}
    with pytest.raises(InvalidObject) as refused:
        SLO.parse(raw)
    assert refused.value.field == f"spec.{field}"
    assert refused.value.message.startswith(message)
    assert refused.value.message.endswith(f", not {changed[field]!r}")


def test_fields_of_a_newer_version_are_ignored() -> None:
    """An older operator must live with objects that a newer CRD admits."""
    assert Model.parse(_model(fromTheFuture={"x": 1})).spec == Model.parse(_model()).spec


def test_an_invalid_object_names_field_reason_and_remedy() -> None:
    """What becomes a condition needs all three."""
    with pytest.raises(InvalidObject) as refused:
        Model.parse(_model(scaling={"minReplicas": 5, "maxReplicas": 2}))
    assert refused.value.field == "spec.scaling.minReplicas"
    assert refused.value.reason is ConditionReason.INVALID_SPEC
    assert refused.value.message == "minReplicas is at most maxReplicas"


def test_a_missing_field_is_called_missing() -> None:
    """And quotes no object around it."""
    with pytest.raises(InvalidObject, match=r"^spec\.slo: required, but not set$"):
        Model.parse({"metadata": {"name": "x"}, "spec": {"model": "a/b"}})


@pytest.mark.parametrize("raw", [{}, {"metadata": {}}, {"metadata": {"name": "x"}, "spec": []}, {"spec": "x"}])
def test_objects_of_any_shape_are_refused_not_crashed_on(raw: dict[str, Any]) -> None:
    """A store older than the CRD may hold anything."""
    for kind in (SLO, Model):
        with pytest.raises(InvalidObject):
            kind.parse(raw)


def test_objects_cannot_be_changed() -> None:
    """They are shared between ticks."""
    model = Model.parse(_model())
    with pytest.raises(ValidationError):
        model.spec.paused = True  # type: ignore[misc]


def test_objectives_are_seconds_and_shares() -> None:
    """What is unset stays unknown, not zero."""
    spec = _slo(tpot="50ms", attainment="99.9%").spec
    assert (spec.ttft_seconds, spec.tpot_seconds, spec.e2e_seconds) == (0.5, 0.05, None)
    assert spec.attainment_share == 0.999


@pytest.mark.parametrize(
    ("allowed", "namespace", "want"),
    [
        ([], "platform", True),
        ([], "team-a", False),
        (["team-a"], "team-a", True),
        (["team-a"], "team-b", False),
        (["*"], "team-b", True),
    ],
)
def test_an_slo_is_for_its_own_namespace_and_those_it_names(allowed: list[str], namespace: str, want: bool) -> None:
    """Its own is always allowed."""
    assert _slo(allowedNamespaces=allowed).allows(namespace) is want


def test_a_gpu_type_keeps_unset_apart_from_zero() -> None:
    """The catalogue fills what is None; a set price is a number."""
    spec = GPUType.parse(
        {"metadata": {"name": "l40s"}, "spec": {"pricePerHour": "1.10", "memory": "44.5Gi", "flops": {"bf16": "362T"}}}
    ).spec
    assert spec.price == 1.1
    assert spec.memory_bytes == 44.5 * 2**30
    assert spec.memory_bandwidth_bytes_per_second is None
    assert spec.flops is not None
    assert spec.flops.by_precision() == {"bf16": 362e12}


def test_an_empty_gpu_type_overrides_nothing() -> None:
    """`spec` itself may be left out."""
    assert GPUType.parse({"metadata": {"name": "l40s"}}).spec.to_dict() == {"tolerations": []}


def test_writing_and_reading_gives_the_same_object() -> None:
    """to_dict is Kubernetes' own notation."""
    raw = _model(
        architecture={
            "num_hidden_layers": 2,
            "hidden_size": 64,
            "num_attention_heads": 4,
            "intermediate_size": 128,
            "vocab_size": 100,
            "max_position_embeddings": 512,
        },
        engine={"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
        template={"volumes": [{"name": "a", "emptyDir": {"sizeLimit": "1Gi"}}], "labels": {"team": "x"}},
    )
    model = Model.parse(raw)
    assert Model.parse(model.to_dict()) == model
    assert model.to_dict()["spec"]["architecture"]["num_hidden_layers"] == 2
