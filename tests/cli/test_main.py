"""The command line: offline rendering, forms of output, and errors that say what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from goodput.cli import session, top
from goodput.cli.flags import model_name
from goodput.cli.main import PROGRAM, main

EXAMPLE = """
apiVersion: goodput.dev/v1alpha1
kind: SLO
metadata: {name: chat}
spec: {ttft: 500ms, tpot: 50ms, attainment: 95%}
---
apiVersion: goodput.dev/v1alpha1
kind: Model
metadata: {name: llama-8b}
spec: {model: meta-llama/Llama-3.1-8B-Instruct, slo: chat, gpuTypes: [l40s]}
"""
GPU_TYPE = """
---
apiVersion: goodput.dev/v1alpha1
kind: GPUType
metadata: {{name: {name}}}
spec: {spec}
"""


def invoke(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, list(arguments), input=stdin)


def test_renders_the_smallest_model_offline() -> None:
    """The twelve-line example becomes its objects without any cluster, replicas included."""
    result = invoke("render", "-f", "-", "-n", "team", "--replicas", "3", stdin=EXAMPLE)
    assert result.exit_code == 0, result.output
    objects = list(yaml.safe_load_all(result.output))
    assert {item["metadata"]["namespace"] for item in objects} == {"team"}
    engine = next(
        item for item in objects if item["metadata"]["name"] == "llama-8b-serve" and item["kind"] == "Deployment"
    )
    assert engine["spec"]["replicas"] == 3
    assert engine["spec"]["template"]["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-L40S"}


def test_renders_as_json_and_as_a_table() -> None:
    """JSON is one List; the table names the objects."""
    listed = json.loads(invoke("render", "-f", "-", "-o", "json", stdin=EXAMPLE).output)
    assert listed["kind"] == "List"
    assert "Deployment" in invoke("render", "-f", "-", "-o", "table", stdin=EXAMPLE).output


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a: [", "not YAML", id="not YAML"),
        pytest.param("kind: Model", "metadata.name", id="no name"),
        pytest.param(EXAMPLE.split("---", maxsplit=1)[0], "no Model", id="no Model"),
        pytest.param(EXAMPLE.split("---")[1], "spec.slo: there is no valid SLO chat", id="no SLO"),
        pytest.param(EXAMPLE.replace("l40s", "l41s"), "spec.gpuTypes: l41s", id="unknown GPU type"),
        pytest.param(EXAMPLE.replace("meta-llama/Llama-3.1-8B-Instruct", "a/b"), "config.json", id="unknown model"),
        pytest.param(EXAMPLE.replace("500ms", "0s"), "SLO chat: spec.ttft", id="wrong unit"),
        pytest.param(
            EXAMPLE + GPU_TYPE.format(name="l40s", spec='{memory: "48GB"}'),
            "GPUType l40s: spec.memory: ",
            id="a wrong quantity of a built-in type",
        ),
        pytest.param(
            EXAMPLE + GPU_TYPE.format(name="l40s", spec='{pricePerHour: "1,10"}'),
            "GPUType l40s: spec.pricePerHour: ",
            id="a wrong price",
        ),
        pytest.param(
            EXAMPLE.replace("l40s", "ours") + GPU_TYPE.format(name="ours", spec="{memory: 48Gi}"),
            "GPUType ours: spec.nodeSelector, spec.memoryBandwidth, spec.flops.bf16: needed",
            id="half a type of one's own",
        ),
        pytest.param("kind: Model\nmetadata: null", "metadata.name", id="metadata that is nothing"),
        pytest.param("kind: [Model]\nmetadata: {name: x}", "without kind", id="a kind that is a list"),
        pytest.param("kind: Model\nmetadata: {name: [x]}", "metadata.name", id="a name that is a list"),
        pytest.param("kind: List\nitems: 5", "List without items", id="a List of nothing"),
        pytest.param("kind: List\nitems: [5]", "without kind", id="a List of a number"),
        pytest.param("- 1", "without kind", id="no object"),
        pytest.param("2026-13-01: x", "not YAML", id="a date that is none"),
        pytest.param("kind: Model\napiVersion: a/v1\nmetadata: {name: x}", "goodput.dev/v1alpha1", id="other group"),
        pytest.param(EXAMPLE.replace("gpuTypes", "gpuType"), 'unknown field "spec.gpuType"', id="a typing error"),
        pytest.param(
            EXAMPLE.replace("[l40s]", "[l40s], template: {volumes: [{name: x, hostPath: {path: /}}]}"),
            'unknown field "spec.template.volumes[0].hostPath"',
            id="what the template has no room for",
        ),
        pytest.param(EXAMPLE + "---" + EXAMPLE.split("---")[1], "llama-8b is there twice", id="twice the same"),
    ],
)
def test_wrong_files_name_the_field(text: str, want: str) -> None:
    """Exit code 1, one line that names what to mend, no traceback."""
    result = invoke("render", "-f", "-", stdin=text)
    assert result.exit_code == 1
    assert want in result.output
    assert "Traceback" not in result.output


def test_renders_what_kubectl_get_printed() -> None:
    """A List with everything that the API server added to its objects is as good as the files it came from."""
    objects = list(yaml.safe_load_all(EXAMPLE))
    for index, item in enumerate(objects):
        item["metadata"] |= {"uid": f"u{index}", "resourceVersion": "opaque", "generation": 7, "namespace": "team"}
    listed = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": objects}
    result = invoke("render", "-f", "-", stdin=yaml.safe_dump(listed))
    assert result.exit_code == 0, result.output
    assert {item["metadata"]["namespace"] for item in yaml.safe_load_all(result.output)} == {"team"}


def test_a_file_of_other_bytes_is_not_yaml(tmp_path: Path) -> None:
    """Neither is what is no text at all."""
    file = tmp_path / "garbage.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    result = invoke("render", "-f", str(file))
    assert (result.exit_code, "garbage.yaml is not YAML" in result.output) == (1, True), result.output


@pytest.mark.parametrize("content", ["a: [", "hello", "", "[1]", "clusters: 5", "apiVersion: v1\nkind: Config"])
@pytest.mark.parametrize("command", [("top",), ("explain", "llama")])
def test_a_kubeconfig_that_is_none_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str, command: tuple[str, ...]
) -> None:
    """One line of advice, whatever the file holds."""
    file = tmp_path / "config"
    file.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    result = invoke(*command)
    assert result.exit_code == 1, repr(result.exception)
    assert "no cluster is configured" in result.output
    assert "set KUBECONFIG" in result.output


def test_version_and_completion() -> None:
    """The version is the distribution's; each shell gets a script."""
    assert invoke("version").output.startswith("kubectl-goodput ")
    assert json.loads(invoke("version", "-o", "json").output)["version"]
    for shell in ("bash", "zsh", "fish"):
        assert "_KUBECTL_GOODPUT_COMPLETE" in invoke("completion", shell).output


def completed(*arguments: str) -> list[str]:
    """What the shell offers after these words, the last of which is unfinished."""
    from click.shell_completion import ShellComplete

    *words, last = arguments
    return [item.value for item in ShellComplete(main, {}, PROGRAM, "X").get_completions(list(words), last)]


def test_the_shell_completes_commands_models_and_types() -> None:
    """Hub ids in any case; slices of a card once the card is named."""
    assert {"size", "plan", "render", "explain", "top"} <= set(completed(""))
    assert "meta-llama/Llama-2-13b-hf" in completed("size", "meta-llama/llama-2")
    assert completed("plan", "--gpu-type", "l40") == ["l40", "l40s"]
    assert "a100-40g-sxm-2g.10gb" in completed("size", "--gpu-type", "a100-40g-sxm")


@pytest.mark.parametrize("words", [("llama",), ("model", "llama"), ("model/llama",), ("mdl", "llama")])
def test_a_model_can_be_named_as_in_kubectl(words: tuple[str, ...]) -> None:
    """NAME, KIND NAME and KIND/NAME all name one Model."""
    assert model_name(words, "explain") == "llama"


def test_an_unnamed_model_is_a_usage_error() -> None:
    """Two names, or another kind, are refused with how to do it."""
    assert invoke("explain", "pod", "llama").exit_code == 2


def test_without_a_cluster_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No kubeconfig is one line of advice."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    result = invoke("top")
    assert result.exit_code == 1
    assert "set KUBECONFIG" in result.output


def status(**conditions: tuple[str, str]) -> dict[str, Any]:
    return {"conditions": [{"type": k, "status": s, "reason": r} for k, (s, r) in conditions.items()]}


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param({}, "Unknown", id="nothing known"),
        pytest.param(status(Ready=("True", "Serving")), "Serving", id="well"),
        pytest.param(status(Ready=("True", "Serving"), Reconciling=("True", "Scaling")), "Scaling", id="on its way"),
        pytest.param(status(Ready=("True", "Serving"), SLOMet=("False", "Capped")), "Capped", id="misses its SLO"),
        pytest.param(
            status(Ready=("False", "Starting"), Stalled=("True", "CrashLoop")),
            "CrashLoop",
            id="the cause beats the effect",
        ),
    ],
)
def test_state_is_the_word_that_matters_most(given: dict[str, Any], want: str) -> None:
    """Of all conditions the one that somebody must act on is shown."""
    assert top.state_of(given) == want


def test_top_prefers_live_figures_and_keeps_the_unknown_unknown() -> None:
    """Live figures replace those of status; what neither knows is null."""
    model = {
        "metadata": {"name": "m", "namespace": "a"},
        "spec": {"slo": "chat"},
        "status": {"demand": {"requestsPerSecond": "9"}, "attainment": "97%", "replicas": "2/2"},
    }
    (plain,) = top.rows([model], {})
    assert (plain["demand/s"], plain["goodput/s"], plain["attainment"]) == ("9", None, "97%")
    live = {("a", "m"): {"demand/s": 8.04, "attainment lower": 0.95, "attainment upper": 0.99}}
    (fresh,) = top.rows([model], live)
    assert (fresh["demand/s"], fresh["attainment"]) == ("8.04", "95-99%")
    (missed,) = top.rows([model], {("a", "m"): {"attainment lower": 0.9996, "attainment upper": 0.9996}})
    assert missed["attainment"] == "99.96%"


class Answer:
    """What Prometheus answers to the query of live figures."""

    def __init__(self, query: str, series: list[dict[str, str]]) -> None:
        asked = query.partition("by (")[2].partition(")")[0].split(", ")
        self.result = [
            {"metric": {name: labels[name] for name in asked if name in labels}, "value": [0, labels["value"]]}
            for labels in series
        ]

    def raise_for_status(self) -> None:
        """It is well."""

    def json(self) -> dict[str, Any]:
        return {"status": "success", "data": {"resultType": "vector", "result": self.result}}


@pytest.mark.parametrize("renames", [True, False], ids=["a scrape that renames our labels", "one that keeps them"])
def test_live_figures_are_those_of_the_namespace_of_the_model(monkeypatch: pytest.MonkeyPatch, renames: bool) -> None:
    """Whether the scrape has a namespace of its own or keeps ours: each Model has its own figures, none another's."""
    demand = "goodput_demand_requests_per_second"
    ours = "exported_namespace" if renames else "namespace"
    target = {"__name__": demand, "namespace": "goodput-system", "model": "m"}
    series = [{**target, ours: "team-a", "value": "7.5"}, {**target, ours: "team-b", "value": "99"}]
    monkeypatch.setattr("requests.get", lambda _, params, timeout: Answer(params["query"], series))
    live = top.live_figures("http://prometheus:9090/")
    assert live == {("team-a", "m"): {"demand/s": 7.5}, ("team-b", "m"): {"demand/s": 99.0}}


def test_fields_of_half_written_objects() -> None:
    """Reading deep into an object that lacks a part gives the default."""
    assert session.field({"a": {"b": None}}, "a", "b", default="x") == "x"
    assert session.field({"a": "text"}, "a", "b") is None
