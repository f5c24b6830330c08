"""`plan`: the options, the winner by three questions, and errors that name what to mend."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.cli.builders import manifests

from goodput.adapters.fakes import FakeKube
from goodput.adapters.kinds import GPU_TYPES, MODELS, NODES, PODS, SLOS, Resource
from goodput.adapters.kube_errors import Refused
from goodput.cli import plan as planning
from goodput.cli.main import main
from goodput.perfmodel.binding import Bottleneck


def plan(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, ["plan", *arguments], input=stdin)


def planned(*arguments: str, stdin: str = "") -> dict[str, Any]:
    result = plan("-f", "-", *arguments, "-o", "json", stdin=stdin or manifests())
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.output)[0])


def test_a_plan_answers_three_questions() -> None:
    """Can it run, how long does it take, what does it cost; then runners-up and notches."""
    output = plan("-f", "-", "--rate", "10", stdin=manifests(gpuTypes=["h100-sxm", "h200-sxm", "l4"])).output
    assert (
        "m: meta-llama/Llama-3.1-8B-Instruct under SLO wanted (TTFT 500 ms, TPOT 50 ms for 95% of requests)" in output
    )
    parts = ["Chosen: 1 replica of h100-sxm TP1 (1 GPU).", "Can it run?", "How long does it take?"]
    parts += [
        "What does it cost?      6.88 $/h",
        "Runners-up:",
        "What each notch of the SLO costs:",
        "TPOT 50 ms -> 100 ms",
    ]
    assert [part for part in parts if part not in output] == []
    assert [output.index(part) for part in parts] == sorted(output.index(part) for part in parts)


def test_json_holds_every_option() -> None:
    """Those that do not fit too, each with why."""
    found = planned("--rate", "10")
    verdicts = {option["verdict"] for option in found["options"]}
    assert {"Meets", "Dearer", "Misses", "TooLarge"} <= verdicts
    assert all(option["why"] for option in found["options"][1:])
    assert found["chosen"] == found["options"][0]["option"]


def test_costs_are_those_of_the_fleet() -> None:
    """$/h over requests and tokens of an hour."""
    fleet = planned("--rate", "10", "--output-tokens", "200")["options"][0]["fleet"]
    assert fleet["costPerThousandRequests"] == pytest.approx(fleet["costPerHour"] / 36.0, rel=1e-3)
    assert fleet["costPerMillionOutputTokens"] == pytest.approx(fleet["costPerHour"] / 7.2, rel=1e-3)


def test_power_follows_use() -> None:
    """A loaded GPU draws more than an idle one and at most its TDP; energy is power over tokens."""
    fleets = [option["fleet"] for option in planned("--rate", "20")["options"] if option["gpuType"] == "h100-sxm"]
    fleet = fleets[0]
    assert 0.0 < fleet["mfu"] < 1.0
    assert 0.0 < fleet["mbu"] <= 1.0
    assert fleet["bottleneck"] in [each.value for each in Bottleneck]
    assert 100 < fleet["watts"] / fleet["gpus"] <= 700
    assert fleet["kWhPerMillionOutputTokens"] == pytest.approx(fleet["watts"] / 3.6e6 * 1e6 / (20 * 211), rel=0.01)


def test_bounds_of_the_model_beat_the_slo_and_are_named() -> None:
    """What they stand in the way of is told, with its price."""
    stdin = manifests(gpuTypes=["l40s"], scaling={"maxReplicas": 2})
    text = plan("-f", "-", "--rate", "100", stdin=stdin).output
    assert "replicas are needed, spec.scaling.maxReplicas allows 2" in text
    assert "Without the bounds of spec.scaling the cheapest fleet is " in text
    assert re.search(r"A replica carries [\d.]+ requests/s: time to first token binds \(communication\)\.", text)
    assert planned("--rate", "100", stdin=stdin)["chosen"] is None
    assert planned("--rate", "1", stdin=stdin)["chosen"] is not None


def test_slices_are_looked_at_on_request() -> None:
    """They need cards that are cut so."""
    assert "MIG profiles" in " ".join(planned("--rate", "1")["leftOut"])
    assert any("2g.10gb" in option["option"] for option in planned("--rate", "1", "--mig")["options"])
    assert planned(stdin=manifests(gpuTypes=["a100-80g-sxm-7g.80gb"]))["chosen"] == "a100-80g-sxm-7g.80gb TP1"


def test_reasoning_is_waited_for() -> None:
    """TTFT and so many tokens at the TPOT."""
    output = plan("-f", "-", "--rate", "1", "--reasoning-tokens", "2000", stdin=manifests()).output
    assert "Time to the first visible token is " in output
    assert "2000 tokens of reasoning at " in output
    # They are generated like an answer, and beside it.
    assert "1155 tokens in and 2211 out" in output
    thinking = manifests(workload={"outputTokens": 100, "reasoningTokens": 300})
    assert "in and 400 out" in plan("-f", "-", stdin=thinking).output
    assert "in and 150 out" in plan("-f", "-", "--reasoning-tokens", "50", stdin=thinking).output
    assert "in and 500 out" in plan("-f", "-", "--output-tokens", "500", stdin=thinking).output


def test_who_is_much_faster_than_readers_is_told() -> None:
    """With what a looser objective saves, where it does."""
    output = plan("-f", "-", "--rate", "10", stdin=manifests()).output
    assert "People read a token in about 120 ms: 50 ms is 2.4 times as fast" in output
    slow = plan("-f", "-", "--rate", "10", stdin=manifests(slo={"tpot": "100ms"})).output
    assert "People read" not in slow


@pytest.mark.parametrize("rate", ["1", "10", "20", "60"])
def test_a_looser_objective_is_cheaper_only_where_its_notch_is(rate: str) -> None:
    """The note and the table of notches never contradict each other."""
    output = plan("-f", "-", "--rate", rate, stdin=manifests()).output
    cheaper = "TPOT 50 ms -> 100 ms saves " in output
    assert ("a looser tpot is cheaper, unless programs read" in output) == cheaper
    assert ("at this load a looser tpot costs the same." in output) == (not cheaper)


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "want"),
    [
        pytest.param([], "", 2, "say what to plan", id="nothing"),
        pytest.param(["-f", "-", "x"], manifests(), 2, "say what to plan", id="both"),
        pytest.param(["-f", "-", "--rate", "nan"], manifests(), 2, "'--rate': nan is not above 0", id="NaN rate"),
        pytest.param(["-f", "-", "--rate", "-1"], manifests(), 2, "--rate", id="negative rate"),
        pytest.param(["-f", "-", "--gpu-type", "x"], manifests(), 1, "no type is named x", id="no such type"),
        pytest.param(
            ["-f", "-", "--gpu-type", "l4"], manifests(gpuTypes=["l40s"]), 1, "allows l40s only", id="not allowed"
        ),
        pytest.param(["-f", "-", "--plot", "pie=x.svg"], manifests(), 2, "--plot", id="no such plot"),
        pytest.param(["-f", "-", "--plot", "frontier=x.doc"], manifests(), 2, ".svg", id="no such format"),
        pytest.param(["-f", "-"], manifests(model="a/b"), 1, "spec.architecture", id="unknown model"),
    ],
)
def test_wrong_arguments_say_what_to_do(arguments: list[str], stdin: str, code: int, want: str) -> None:
    """Exit code and the name of what is wrong."""
    result = plan(*arguments, stdin=stdin)
    assert (result.exit_code, want in result.output) == (code, True), result.output


GPU_TYPE = """---
apiVersion: goodput.dev/v1alpha1
kind: GPUType
metadata: {{name: tiny}}
spec: {spec}
"""
TINY = "{nodeSelector: {gpu: tiny}, memory: 3Gi, memoryBandwidth: 100G, flops: {bf16: 10T}}"


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param(TINY.replace("}}", "}, pricePerHour: NaN}"), "GPUType tiny: spec.pricePerHour", id="NaN price"),
        pytest.param(TINY.replace("}}", "}, gpusPerNode: 0}"), "GPUType tiny: spec.gpusPerNode", id="no GPU on a node"),
        pytest.param(TINY.replace("3Gi", "0"), "GPUType tiny: spec.memory", id="no memory"),
        pytest.param(TINY.replace("3Gi", "1Gi"), "GPUType tiny: spec.memory", id="a gigabyte"),
        pytest.param(TINY.replace("100G", "3350"), "GPUType tiny: spec.memoryBandwidth", id="no unit"),
        pytest.param(TINY.replace("10T", "989"), "GPUType tiny: spec.flops.bf16", id="no unit of FLOP/s"),
    ],
)
def test_a_nonsense_type_names_its_field(spec: str, want: str) -> None:
    """Prices and sizes that are no numbers of their kind."""
    result = plan("-f", "-", stdin=manifests() + GPU_TYPE.format(spec=spec))
    assert (result.exit_code, want in result.output) == (1, True), result.output


def test_a_gpu_of_few_gigabytes_holds_nothing_and_says_what_is_too_large() -> None:
    """It can be described; nothing fits."""
    stdin = manifests(gpuTypes=["tiny"]) + GPU_TYPE.format(spec=TINY)
    result = plan("-f", "-", stdin=stdin)
    assert result.exit_code == 0, result.output
    assert "No option meets the SLO. The nearest is tiny TP" in result.output
    assert "GiB left" in result.output


@pytest.mark.parametrize(
    ("arguments", "code", "want"),
    [
        pytest.param(["--output-tokens", "0.01"], 2, "less than one token", id="no output"),
        pytest.param(["--reasoning-tokens", "5", "--output-tokens", "4"], 1, "leave none to see", id="only reasoning"),
        pytest.param(["--input", "200000"], 0, "the longest request of the model has 131072 tokens", id="too long"),
        pytest.param(["--gpu-type", "*1g.10gb"], 1, "names slices only", id="slices"),
    ],
)
def test_lengths_and_types_that_do_not_exist_are_named(arguments: list[str], code: int, want: str) -> None:
    """By the flag, or by what limits them."""
    result = plan("-f", "-", *arguments, stdin=manifests())
    assert (result.exit_code, want in result.output) == (code, True), result.output


def test_the_nearest_holds_the_longest_requests() -> None:
    """Where none holds one of the mean length, GPUs with more memory come nearer."""
    found = planned("--input", "120000", "--output-tokens", "11000", stdin=manifests())["options"]
    short = [each["memory"]["maxModelLen"] for each in found if each["verdict"] == "TooShort"]
    assert len(set(short)) > 2
    assert short == sorted(short, reverse=True)


def test_a_far_miss_is_told_in_digits() -> None:
    """1,800 times, not 1.8e+03."""
    text = plan("-f", "-", stdin=manifests(slo={"e2e": "1ms"}, gpuTypes=["l4"])).output
    assert re.search(r"end-to-end time is [\d.]+ s even when idle, \d,\d{3} x the 1 ms allowed", text)


def test_a_replica_that_no_node_has_is_told_by_the_largest_node() -> None:
    """Nodes of a10 have two GPUs, those of others eight."""
    why = planned(stdin=manifests(parallelism={"tensor": 16}))["options"][0]["why"]
    assert why == "16 GPUs are needed in one pod, a node of a100-40g-sxm has 8"


def test_a_type_named_in_part_is_told_in_full() -> None:
    """There is no h100, but several that begin so; slices are not meant."""
    output = plan("-f", "-", stdin=manifests(gpuTypes=["h100"])).output
    assert "spec.gpuTypes: h100 is neither built in nor a GPUType of this cluster" in output
    assert "name another, such as h100-nvl or h100-pcie or h100-sxm" in output


def test_heads_that_parallelism_does_not_divide() -> None:
    """As many options as types, none of which exists."""
    found = planned(stdin=manifests(parallelism={"tensor": 3}, gpuTypes=["l40s"]))
    assert found["chosen"] is None
    assert found["options"][0]["why"] == "TP 3 does not divide the 32 attention heads"


def test_a_picture_of_cost_against_the_slo(tmp_path: Path) -> None:
    """SVG and PNG; the same plan gives the same SVG."""
    first, second, bitmap = (tmp_path / name for name in ("a.svg", "b.svg", "c.png"))
    types = ["l40s", "h100-sxm"]
    arguments = [f"--plot=frontier={file}" for file in (first, second, bitmap)]
    result = plan("-f", "-", "--rate", "5", *arguments, stdin=manifests(gpuTypes=types))
    assert result.exit_code == 0, result.output
    assert first.read_bytes() == second.read_bytes()
    assert b"<svg" in first.read_bytes()
    assert bitmap.read_bytes().startswith(b"\x89PNG")


def test_a_picture_of_the_roofs(tmp_path: Path) -> None:
    """Of types that hold the model; where none does there is nothing to draw."""
    file = tmp_path / "roof.svg"
    assert plan("-f", "-", f"--plot=roofline={file}", stdin=manifests(gpuTypes=["l40s", "l4"])).exit_code == 0
    assert b"<svg" in file.read_bytes()
    nothing = plan("-f", "-", f"--plot=roofline={file}", stdin=manifests("deepseek-ai/DeepSeek-V3", gpuTypes=["t4"]))
    assert (nothing.exit_code, "no type holds the model" in nothing.output) == (1, True)


def test_without_matplotlib_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are an extra."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = plan("-f", "-", "--plot", "frontier=x.svg", stdin=manifests())
    assert result.exit_code == 1
    assert "pip install 'goodput-operator[plot]'" in result.output


def node(name: str, product: str, gpus: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product}},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, where: str, gpus: int, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "labels": labels, "uid": name},
        "spec": {
            "nodeName": where,
            "containers": [{"name": "x", "resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}],
        },
        "status": {"phase": "Running"},
    }


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeKube:
    """A cluster with two l40s nodes and one of h100-sxm, on which others hold six GPUs."""
    api = FakeKube()
    slo, model = yaml.safe_load_all(manifests())
    model["status"] = {"demand": {"requestsPerSecond": "6", "inputTokens": "900", "outputTokens": "150"}}
    for item in (slo, model):
        item["metadata"]["namespace"] = "team"
    things: list[tuple[Resource, dict[str, Any]]] = [
        (SLOS, slo),
        (MODELS, model),
        (NODES, node("a", "NVIDIA-L40S", 8)),
        (NODES, node("b", "NVIDIA-H100-80GB-HBM3", 8)),
        (PODS, pod("other", "b", 8)),
        (PODS, pod("own", "a", 8, **{"goodput.dev/model": "m", "goodput.dev/pool": "serve"})),
    ]
    for resource, item in things:
        api.put(resource, item)
    monkeypatch.setattr(planning, "run", lambda target, work: asyncio.run(work(api)))
    return api


def test_a_model_of_the_cluster_is_planned_for_what_users_offer(cluster: FakeKube) -> None:
    """Measured demand and lengths; types that nodes carry; GPUs that others hold are not free, its own are."""
    result = plan("model", "m", "-n", "team", "-o", "json")
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.output)
    assert found["workload"]["requestsPerSecond"] == 6.0
    assert found["workload"]["inputTokens"] == 900.0
    assert {option["gpuType"] for option in found["options"]} == {"l40s", "h100-sxm"}
    assert found["chosen"].startswith("l40s")
    taken = next(option for option in found["options"] if option["gpuType"] == "h100-sxm" and option["fleet"])
    assert (taken["available"], "fewer are free" in taken["why"]) == (False, True)
    assert "Demand is what users offered" in plan("m", "-n", "team").output


def test_gpus_behind_a_taint_are_not_there_for_a_model_that_does_not_tolerate_it(cluster: FakeKube) -> None:
    """All L40S are for others: what is planned is something else, and the taint is named."""
    tainted = node("a", "NVIDIA-L40S", 8) | {"spec": {"taints": [{"key": "team", "effect": "NoSchedule"}]}}
    cluster.put(NODES, tainted)
    result = plan("m", "-n", "team", "-o", "json")
    assert result.exit_code == 0, result.output
    assert '"gpuType": "l40s"' not in result.output
    assert "8 GPUs l40s are on nodes with taint team:NoSchedule" in plan("m", "-n", "team").output


def test_a_question_goes_before_what_was_measured(cluster: FakeKube) -> None:
    """What if there were ten times as many?"""
    (found,) = json.loads(plan("m", "-n", "team", "--rate", "60", "-o", "json").output)
    assert found["workload"]["requestsPerSecond"] == 60.0


def test_who_may_not_see_nodes_gets_all_types(cluster: FakeKube) -> None:
    """And is told so."""

    def fault(verb: str, resource: Resource, name: str) -> None:
        if resource is NODES:
            raise Refused("nodes is forbidden")

    cluster.fault = fault
    result = plan("m", "-n", "team")
    assert result.exit_code == 0, result.output
    assert "Nodes may not be listed (nodes is forbidden): every GPU type counts as there in plenty." in result.output


def test_a_model_that_is_not_there(cluster: FakeKube) -> None:
    """Those that are, are named."""
    result = plan("x", "-n", "team")
    assert (result.exit_code, "no Model x in namespace team; there are: m" in result.output) == (1, True)


def test_a_gputype_of_the_cluster_counts(cluster: FakeKube) -> None:
    """Its price, and with it another winner."""
    cluster.put(
        GPU_TYPES,
        {
            "apiVersion": "goodput.dev/v1alpha1",
            "kind": "GPUType",
            "metadata": {"name": "l40s"},
            "spec": {"pricePerHour": "0.5"},
        },
    )
    (found,) = json.loads(plan("m", "-n", "team", "-o", "json").output)
    fleet = found["options"][0]["fleet"]
    assert (fleet["costPerHour"], fleet["priceAssumed"]) == (0.5 * fleet["gpus"], False)


def test_render_chooses_as_plan_does() -> None:
    """One function, one answer."""
    stdin = manifests(model="meta-llama/Llama-3.1-70B-Instruct")
    chosen = planned(stdin=stdin)["options"][0]
    result = CliRunner().invoke(main, ["render", "-f", "-"], input=stdin)
    assert result.exit_code == 0, result.output
    (engine,) = (
        item
        for item in yaml.safe_load_all(result.output)
        if (item["kind"], item["metadata"]["name"]) == ("Deployment", "m-serve")
    )
    (container,) = engine["spec"]["template"]["spec"]["containers"]
    arguments = container["args"]
    assert arguments[arguments.index("--tensor-parallel-size") + 1] == str(chosen["tensorParallel"])
    assert container["resources"]["limits"]["nvidia.com/gpu"] == str(
        chosen["tensorParallel"] * chosen["pipelineParallel"]
    )
