"""Values of the chart: every one is described by the schema, has an effect and reaches a setting that exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from goodput.runtime.settings import DEFAULT_CREDENTIALS_KEY, DEFAULT_ENGINE_IMAGE, DEFAULT_ROUTER_IMAGE, Settings
from goodput_controllers.main import main

CHART = Path(__file__).resolve().parents[2] / "charts" / "goodput"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA: dict[str, Any] = yaml.safe_load((CHART / "values.schema.json").read_text(encoding="utf-8"))
TEMPLATES = "".join(path.read_text(encoding="utf-8") for path in sorted((CHART / "templates").iterdir()))


def _leaves(values: dict[str, Any], path: str = "") -> list[str]:
    found: list[str] = []
    for key, value in values.items():
        where = f"{path}.{key}" if path else key
        found += _leaves(value, where) if isinstance(value, dict) and value else [where]
    return found


def test_the_defaults_are_valid_and_the_schema_is_a_schema() -> None:
    """The chart's own values pass its schema."""
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.Draft7Validator(SCHEMA).validate(VALUES)


def test_every_object_of_the_schema_is_closed() -> None:
    """A misspelt value is an error everywhere but where Kubernetes' own maps begin."""
    kubernetes = {"affinity", "requests", "limits", "tolerations[]", "namespaceSelector", "podSelector", "ipBlock"}
    free = {"global", *kubernetes}

    def walk(schema: dict[str, Any], name: str) -> list[str]:
        is_open = schema.get("type") == "object" and schema.get("additionalProperties") is None
        found = [name] if is_open and name.rsplit(".", 1)[-1] not in free else []
        for key, item in schema.get("properties", {}).items():
            found += walk(item, f"{name}.{key}")
        return found + (walk(schema["items"], f"{name}[]") if "items" in schema else [])

    assert walk(SCHEMA, "") == []
    for name, definition in SCHEMA["definitions"].items():
        assert walk(definition, name) == []


def test_every_value_is_known_to_the_schema() -> None:
    """No value stands in values.yaml that the schema does not describe."""
    for leaf in _leaves(VALUES):
        schema = SCHEMA
        for step in leaf.split("."):
            schema = schema.get("properties", {}).get(step) or {}
            if "$ref" in schema or (schema.get("type") == "object" and "properties" not in schema):
                break
        assert schema, leaf


@pytest.mark.parametrize("leaf", _leaves(VALUES))
def test_every_value_has_an_effect(leaf: str) -> None:
    """A template reads each value, itself or with the map that it is part of."""
    steps = leaf.split(".")
    paths = [".Values." + ".".join(steps[: count + 1]) for count in range(len(steps))]
    whole = any(re.search(re.escape(path) + r"(?![A-Za-z.])", TEMPLATES) for path in paths)
    # A map that is empty by default is read entry by entry.
    assert whole or f".Values.{leaf}." in TEMPLATES, leaf


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"mode": "auto"}, "mode"),
    ({"tickSecond": 10}, "tickSecond"),
    ({"tickSeconds": "10s"}, "tickSeconds"),
    ({"prometheus": {"url": "prometheus:9090"}}, "prometheus.url"),
    ({"prometheus": {"url": "https://user:pass@prometheus.example.com"}}, "prometheus.url"),
    ({"prometheus": {"url": "https://token@prometheus.example.com/x"}}, "prometheus.url"),
    ({"prometheus": {"url": "http://user:@prometheus:9090?x=@"}}, "prometheus.url"),
    ({"prometheus": {"url": "http://prometheus:9090 "}}, "prometheus.url"),
    ({"prometheus": {"tokenSecret": {"name": "x"}}}, "key"),
    ({"image": {"digest": "latest"}}, "image.digest"),
    ({"replicas": -1}, "replicas"),
    ({"fullnameOverride": "Foo_Bar"}, "fullnameOverride"),
    ({"nameOverride": "a b"}, "nameOverride"),
    ({"podLabels": {"app.kubernetes.io/name": "other"}}, "podLabels"),
    ({"scrapeSeconds": 7.5}, "scrapeSeconds"),
    ({"metricsFrom": [{"ipBlock": {"cidr": "bogus"}}]}, "metricsFrom.0.ipBlock.cidr"),
    ({"metricsFrom": [{"ipBlock": {"cidr": "10.0.0.0/33"}}]}, "metricsFrom.0.ipBlock.cidr"),
    ({"metricsFrom": [{"ipBlock": {}}]}, "cidr"),
    ({"startupTimeoutSeconds": 5}, "startupTimeoutSeconds"),
    ({"limits": {"gpusPerNamespace": 0}}, "limits.gpusPerNamespace"),
    ({"limits": {"priority": {"*": 1001}}}, "limits.priority"),
    ({"limits": {"priority": {"A_b": 1}}}, "limits.priority"),
    ({"limits": {"costPerHourPerNamespace": "12 EUR"}}, "limits.costPerHourPerNamespace"),
    ({"allowedImages": ["a,b"]}, "allowedImages"),
    ({"metricsFrom": [{}]}, "metricsFrom.0"),
    ({"metricsFrom": [{"podselector": {}}]}, "podselector"),
    ({"podMonitorLabels": {"release": "a,b"}}, "podMonitorLabels.release"),
    ({"podMonitorLabels": {"a=b": "c"}}, "podMonitorLabels"),
    ({"podMonitorLabels": {"release": 1}}, "podMonitorLabels.release"),
    ({"watchNamespaces": ["Team_A"]}, "watchNamespaces"),
    ({"logFormat": "text"}, "logFormat"),
    ({"ledger": {"claimName": "Claim"}}, "ledger.claimName"),
    ({"ledger": {"megabytes": 0}}, "ledger.megabytes"),
    ({"priorityClass": {"create": True, "name": ""}}, "priorityClass.name"),
    ({"networkPolicy": True}, "networkPolicy"),
    ({"modelDefaults": {"credentials": {"name": "hub"}}}, "modelDefaults.credentials"),
    ({"modelDefaults": {"credentials": {"secretName": "Hub"}}}, "modelDefaults.credentials.secretName"),
    ({"modelDefaults": {"credentials": {"secretName": "hub", "key": ""}}}, "modelDefaults.credentials.key"),
    ({"modelDefaults": {"imagePullSecrets": ["registry"]}}, "modelDefaults.imagePullSecrets"),
    ({"modelDefaults": {"imagePullSecrets": [{"name": "a,b"}]}}, "modelDefaults.imagePullSecrets.0.name"),
    ({"modelDefaults": {"imagePullSecrets": [{"name": "a"}] * 9}}, "modelDefaults.imagePullSecrets"),
]


@pytest.mark.parametrize(("values", "field"), WRONG)
def test_wrong_values_are_refused(values: dict[str, Any], field: str) -> None:
    """The schema refuses it, at that field."""
    errors = list(jsonschema.Draft7Validator(SCHEMA).iter_errors(values))
    assert errors
    said = " ".join(f"{'.'.join(str(step) for step in error.absolute_path)} {error.message}" for error in errors)
    assert field in said


@pytest.mark.parametrize(
    "url",
    [
        "http://p:9090",
        "https://p.example.com/select/0/prometheus",
        "http://[::1]:9090/",
        "https://p/users/a@example.com",
    ],
)
def test_addresses_of_prometheus_are_accepted(url: str) -> None:
    """With a port, a path, an address of IPv6; an @ behind the host names nobody."""
    jsonschema.Draft7Validator(SCHEMA).validate({"prometheus": {"url": url}})


def test_every_variable_is_one_that_the_operator_reads() -> None:
    """Each GOODPUT_ variable of the Deployment is a setting, and an option of goodput-operator reads it."""
    text = (CHART / "templates" / "deployment.yaml").read_text(encoding="utf-8")
    variables = set(re.findall(r"GOODPUT_[A-Z_]+", text))
    assert len(variables) > 15
    read = set()
    for option in main.params:
        explicit = option.envvar
        if explicit is None:
            read.add(f"GOODPUT_{str(option.name).upper()}")
        else:
            read |= {explicit} if isinstance(explicit, str) else set(explicit)
    assert variables <= read
    assert {variable.removeprefix("GOODPUT_").lower() for variable in variables} <= set(Settings.__dataclass_fields__)


def test_default_images_are_the_operators_own() -> None:
    """The chart and the operator, started without it, agree on images and their version."""
    assert VALUES["images"] == {"engine": DEFAULT_ENGINE_IMAGE, "router": DEFAULT_ROUTER_IMAGE}
    assert VALUES["modelDefaults"]["credentials"] == {"secretName": "", "key": DEFAULT_CREDENTIALS_KEY}
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = (CHART.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{chart["appVersion"]}"' in project


def test_crds_are_not_in_the_chart() -> None:
    """Helm never upgrades CRDs of a chart, and an uninstall of templated ones deletes every Model."""
    assert not (CHART / "crds").exists()
    assert "CustomResourceDefinition" not in TEMPLATES
