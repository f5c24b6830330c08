"""The engine pod: its command line is vLLM's, its pod is allowed and drains, and nothing of it can be overridden."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import goodput_world.engine
from goodput.domain.identity import LABEL_REVISION
from goodput.domain.intent import Objective, Precision
from goodput.domain.speculation import DraftMethod, Speculation
from goodput.resources.engine.args import pvc_source
from goodput.resources.engine.histogram import bucket_edges
from goodput.resources.engine.owned import owned_flag, split_user_args
from goodput.resources.inputs import EngineInput, KubeObject, ObjectKey, RenderInput, SecretKey

ENGINE = ("Deployment", "llama-8b-serve")

Make = Callable[..., RenderInput]
Objects = Callable[[RenderInput], dict[ObjectKey, KubeObject]]


def _flags_of_vllm() -> dict[str, str]:
    """Every long flag of vLLM 0.33, with its aliases, and its kind."""
    table = Path(goodput_world.engine.__file__).with_name("flags.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in table[1:] if line]
    return {flag: row[2] for row in rows for flag in (row[0], *row[1].split(",")) if flag}


def _pod(objects: dict[ObjectKey, KubeObject]) -> KubeObject:
    spec: KubeObject = objects[ENGINE]["spec"]["template"]["spec"]
    return spec


def _args(objects: dict[ObjectKey, KubeObject]) -> list[str]:
    args: list[str] = _pod(objects)["containers"][0]["args"]
    return args


def _value(args: list[str], flag: str) -> str:
    assert args.count(flag) == 1, flag
    return args[args.index(flag) + 1]


def test_every_flag_is_one_of_vllm(make_render: Make, rendered_of: Objects) -> None:
    """vLLM exits on a flag that it does not know: each rendered one is in its list, with a value where it takes one."""
    known = _flags_of_vllm()
    args = _args(rendered_of(make_render(revision="main")))
    assert not args[0].startswith("-")
    for flag, value in zip(args[1::2], args[2::2], strict=True):
        assert known[flag] not in ("bool", "switch"), flag
        assert not value.startswith("--")


def test_flags_follow_the_placement(make_render: Make, rendered_of: Objects) -> None:
    """Parallelism, sizes and queue limits are those decided; GPUs are their product."""
    objects = rendered_of(make_render(tensor_parallel=4, pipeline_parallel=2, max_num_seqs=31))
    args = _args(objects)
    assert _value(args, "--tensor-parallel-size") == "4"
    assert _value(args, "--pipeline-parallel-size") == "2"
    assert _value(args, "--max-num-seqs") == "31"
    assert _value(args, "--max-num-queued-reqs") == "40"
    assert _value(args, "--max-num-queued-tokens") == "8192"
    resources = _pod(objects)["containers"][0]["resources"]
    assert resources["requests"]["nvidia.com/gpu"] == resources["limits"]["nvidia.com/gpu"] == "8"


def test_precision_is_what_was_asked_for_and_else_left_to_the_checkpoint(
    make_render: Make, rendered_of: Objects
) -> None:
    """Unset fields render no flag: nothing is lowered that nobody asked for."""
    plain = _args(rendered_of(make_render()))
    assert not {"--quantization", "--kv-cache-dtype", "--speculative-config"} & set(plain)
    args = _args(rendered_of(make_render(precision=Precision(weights="fp8", kv_cache="bf16"))))
    assert _value(args, "--quantization") == "fp8"
    assert _value(args, "--kv-cache-dtype") == "bfloat16"


@pytest.mark.parametrize(
    ("speculation", "want"),
    [
        (
            Speculation(method=DraftMethod.NGRAM),
            {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 5, "prompt_lookup_min": 2},
        ),
        (
            Speculation(method=DraftMethod.DRAFT, model="Qwen/Qwen3-0.6B"),
            {"method": "draft_model", "model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 3},
        ),
        (
            Speculation(method=DraftMethod.EAGLE3, model="org/head"),
            {"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3},
        ),
        (Speculation(method=DraftMethod.MTP), {"method": "mtp", "num_speculative_tokens": 3}),
    ],
)
def test_drafts_are_configured_with_the_keys_of_vllm(
    speculation: Speculation, want: dict[str, Any], make_render: Make, rendered_of: Objects
) -> None:
    """As one JSON object; without tokens (speculation is not worth it) there is none."""
    args = _args(rendered_of(make_render(speculation=speculation, speculative_tokens=3)))
    assert json.loads(_value(args, "--speculative-config")) == want
    assert "--speculative-config" not in _args(rendered_of(make_render(speculation=speculation)))


def test_no_admission_means_no_queue_limits(make_render: Make, rendered_of: Objects) -> None:
    """`routing.admission: Off` lets requests wait, whatever the placement had sized."""
    args = _args(rendered_of(make_render(admission=False)))
    assert "--max-num-queued-reqs" not in args
    assert "--max-num-queued-tokens" not in args
    args = _args(rendered_of(make_render(max_num_queued_requests=None, max_num_queued_tokens=None)))
    assert "--max-num-queued-reqs" not in args


@pytest.mark.parametrize(
    "objective",
    [
        None,
        Objective(ttft_seconds=0.5, tpot_seconds=0.05, e2e_seconds=None),
        Objective(ttft_seconds=0.4321, tpot_seconds=0.0333, e2e_seconds=17.3),
        Objective(ttft_seconds=900.0, tpot_seconds=0.001, e2e_seconds=86_400.0),
    ],
)
def test_thresholds_are_edges_of_their_histograms(objective: Objective | None) -> None:
    """An objective known at start is an edge, so that the share within it is counted; edges rise, as vLLM demands."""
    edges = bucket_edges(objective)
    for values in edges.values():
        assert all(0 < left < right for left, right in pairwise(values))
        assert all(math.isfinite(value) for value in values)
    if objective is not None:
        assert objective.ttft_seconds in edges["time_to_first_token"]
        assert objective.tpot_seconds in edges["inter_token_latency"]
        assert objective.e2e_seconds is None or objective.e2e_seconds in edges["request_latency"]


@pytest.mark.parametrize(
    ("family", "low", "high"),
    [("time_to_first_token", 0.1, 3.0), ("inter_token_latency", 0.01, 0.2), ("request_latency", 1.0, 60.0)],
)
def test_edges_are_dense_where_objectives_lie(family: str, low: float, high: float) -> None:
    """Neighbours differ by at most 15 %, so that an edited SLO is interpolated over little; about 50 edges in all."""
    edges = bucket_edges(None)[family]
    dense = [edge for edge in edges if low <= edge <= high]
    assert (dense[0], dense[-1]) == (low, high)
    assert max(right / left for left, right in pairwise(dense)) <= 1.15
    assert 40 <= len(edges) <= 60


def test_the_drain_fits_into_the_grace_period(make_render: Make, rendered_of: Objects) -> None:
    """preStop, shut-down timeout and 20 s of teardown end before the kubelet kills: streams are not cut."""
    objects = rendered_of(make_render())
    pod = _pod(objects)
    sleep = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    timeout = int(_value(_args(objects), "--shutdown-timeout"))
    assert (sleep, timeout) == (10, 300)
    assert pod["terminationGracePeriodSeconds"] > sleep + timeout + 20


def test_the_kubelet_waits_longer_than_vllm(make_render: Make, rendered_of: Objects) -> None:
    """The start-up probe gives up after vLLM's own timeout, and no probe is as hasty as the default of one second."""
    container = _pod(rendered_of(make_render(startup_timeout_seconds=900)))["containers"][0]
    env = {item["name"]: item.get("value") for item in container["env"]}
    startup = container["startupProbe"]
    assert startup["failureThreshold"] * startup["periodSeconds"] > int(env["VLLM_ENGINE_READY_TIMEOUT_S"]) == 900
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["timeoutSeconds"] >= 5


def test_caches_are_on_writable_volumes(make_render: Make, rendered_of: Objects) -> None:
    """Under a read-only root every path that vLLM writes to lies on a volume that is mounted writable."""
    pod = _pod(rendered_of(make_render(model="pvc://weights/llama", served_name="llama")))
    container = pod["containers"][0]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    writable = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
    env = {item["name"]: item.get("value", "") for item in container["env"]}
    for name in ("HOME", "HF_HOME", "VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        assert any(env[name] == path or env[name].startswith(path + "/") for path in writable), name
    assert {"/tmp", "/dev/shm"} <= set(writable)
    assert env["USER"]
    shared = next(mount["name"] for mount in container["volumeMounts"] if mount["mountPath"] == "/dev/shm")
    assert volumes[shared]["emptyDir"]["medium"] == "Memory"


def test_a_claim_is_mounted_read_only_and_served_from_there(make_render: Make, rendered_of: Objects) -> None:
    """`pvc://claim/path` becomes a directory under /models; a revision of the hub does not apply to it."""
    render = make_render(model="pvc://weights/llama/8b", served_name="llama-8b", revision="main")
    objects = rendered_of(render)
    args = _args(objects)
    assert args[0] == "/models/llama/8b"
    assert _value(args, "--served-model-name") == "llama-8b"
    assert "--revision" not in args
    pod = _pod(objects)
    mount = next(item for item in pod["containers"][0]["volumeMounts"] if item["mountPath"] == "/models")
    volume = next(item for item in pod["volumes"] if item["name"] == mount["name"])
    assert mount["readOnly"] is True
    assert volume["persistentVolumeClaim"] == {"claimName": "weights", "readOnly": True}
    assert pvc_source("pvc://weights") == ("weights", "")
    assert _args(rendered_of(make_render(model="pvc://weights", served_name="x")))[0] == "/models"


def test_the_token_is_a_reference(make_render: Make, rendered_of: Objects) -> None:
    """The pod names the Secret and its key; no value is ever rendered."""
    container = _pod(rendered_of(make_render(credentials=SecretKey(name="hub", key="HF_TOKEN"))))["containers"][0]
    token = next(item for item in container["env"] if item["name"] == "HF_TOKEN")
    assert token == {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "HF_TOKEN"}}}


TAKEOVERS = [
    ("--max-num-seqs", "4"),
    ("--max-num-seqs=4",),
    ("--max_num_seqs=4",),
    ("--max-num-s", "4"),
    ("-tp", "8"),
    ("-tp8",),
    ("--tensor-parallel-size=8",),
    ("--served-model-name", "gpt-4"),
    ("--custom-histogram-buckets.time_to_first_token", "[1]"),
    ("--shutdown-timeout=0",),
    ("--host", "127.0.0.1"),
    ("--port=1",),
    ("--headless",),
    ("--disable-log-stats",),
    ("--model", "other/model"),
    ("other/model",),
    ("--", "x"),
    ("--data-parallel-size", "2"),
]


@pytest.mark.parametrize("attempt", TAKEOVERS)
def test_our_flags_cannot_be_taken_over(attempt: tuple[str, ...], make_render: Make, rendered_of: Objects) -> None:
    """In every spelling that argparse takes for a flag of ours, the user's word is dropped with its value."""
    plain = _args(rendered_of(make_render()))
    args = _args(rendered_of(make_render(engine=EngineInput(args=(*attempt, "--enforce-eager")))))
    assert args == [plain[0], "--enforce-eager", *plain[1:]]


def test_allowed_flags_pass_with_their_values() -> None:
    """What is not ours stays, in order, with all its values, negative numbers included."""
    args = ("--dtype", "float16", "--lora-modules", "a=/x", "b=/y", "--seed", "-1", "-ac", "x")
    assert split_user_args(args) == (args, ())


def test_no_flag_of_vllm_is_mistaken_for_ours() -> None:
    """A flag that only resembles an owned one is the user's to set."""
    exact = {flag for flag in _flags_of_vllm() if owned_flag(flag) == flag}
    assert exact
    mistaken = {flag for flag in _flags_of_vllm() if owned_flag(flag) is not None} - exact
    assert not {flag for flag in mistaken if not any(flag in owned for owned in exact)}


@pytest.mark.parametrize(
    "name", ["HOME", "USER", "HF_TOKEN", "VLLM_SERVER_DEV_MODE", "PROMETHEUS_MULTIPROC_DIR", "VLLM_CACHE_ROOT"]
)
def test_our_environment_cannot_be_taken_over(name: str, make_render: Make, rendered_of: Objects) -> None:
    """Variables of ours keep our value, and no name occurs twice, which server-side apply would refuse."""
    engine = EngineInput(env=({"name": name, "value": "evil"}, {"name": "MINE", "value": "1"}))
    env = _pod(rendered_of(make_render(engine=engine)))["containers"][0]["env"]
    names = [item["name"] for item in env]
    assert len(names) == len(set(names))
    assert "evil" not in [item.get("value") for item in env]
    assert {"name": "MINE", "value": "1"} in env


def test_a_default_of_the_environment_can_be_replaced(make_render: Make, rendered_of: Objects) -> None:
    """How long an engine may take to start is the user's to say, once."""
    engine = EngineInput(env=({"name": "VLLM_ENGINE_READY_TIMEOUT_S", "value": "60"},))
    env = _pod(rendered_of(make_render(engine=engine)))["containers"][0]["env"]
    assert [item["value"] for item in env if item["name"] == "VLLM_ENGINE_READY_TIMEOUT_S"] == ["60"]


HOSTILE: list[dict[str, Any]] = [
    {"labels": {"goodput.dev/model": "other", "goodput.dev/pool": "router", "pod-template-hash": "x"}},
    {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "1", "goodput.dev/template": "{}"}},
    {"resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "0", "hugepages-2Mi": "1Gi"}}},
    {"volumes": [{"name": "root", "hostPath": {"path": "/"}}], "volumeMounts": [{"name": "root", "mountPath": "/h"}]},
    {"volumes": [{"name": "cache", "emptyDir": {}}], "volumeMounts": [{"name": "cache", "mountPath": "/x"}]},
    {"volumes": [{"name": "own", "emptyDir": {}}], "volumeMounts": [{"name": "own", "mountPath": "/dev/shm"}]},
    {"volumes": [{"name": "own", "emptyDir": {}}], "volumeMounts": [{"name": "own", "mountPath": "/a/../cache"}]},
    {"volumes": [{"name": "own", "emptyDir": {}}], "volumeMounts": [{"name": "own", "mountPath": "//models//x"}]},
    {"volumeMounts": [{"name": "shm", "mountPath": "/x"}]},
    {"hostNetwork": True, "hostPID": True, "serviceAccountName": "admin", "nodeName": "n", "nodeSelector": {"a": "b"}},
    {"containers": [{"name": "vllm", "image": "evil"}], "securityContext": {"runAsUser": 0}, "initContainers": [{}]},
]


@pytest.mark.parametrize("template", HOSTILE)
def test_a_hostile_template_changes_nothing(template: dict[str, Any], make_render: Make, rendered_of: Objects) -> None:
    """Even if it came past the API, nothing outside the allow-list reaches the pod; a bare volume of one's own may."""
    plain = rendered_of(make_render())[ENGINE]["spec"]["template"]
    changed = rendered_of(make_render(template=template))[ENGINE]["spec"]["template"]
    changed["spec"]["volumes"] = [item for item in changed["spec"]["volumes"] if item["name"] != "own"]
    for rendered in (plain, changed):
        del rendered["metadata"]["labels"][LABEL_REVISION]
    assert changed == plain


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-3g.40gb"])
def test_nodes_that_are_kept_for_who_asks_for_gpus_are_tolerated(
    make_render: Make, rendered_of: Objects, resource: str
) -> None:
    """They are tainted with the name of the resource, on GKE by itself; not every API server adds the toleration."""
    pod = _pod(rendered_of(make_render(resource_name=resource)))
    assert pod["tolerations"] == [{"key": resource, "operator": "Exists", "effect": "NoSchedule"}]


def test_gpu_and_user_tolerations_are_joined(make_render: Make, rendered_of: Objects) -> None:
    """Both are there, one that both name once."""
    gpu = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    own = {"key": "dedicated", "operator": "Exists"}
    render = make_render(tolerations=(json.dumps(gpu),), template={"tolerations": [own, gpu]})
    assert _pod(rendered_of(render))["tolerations"] == [gpu, own]


def test_a_limit_without_request_is_the_request(make_render: Make, rendered_of: Objects) -> None:
    """Our default request never exceeds a limit of the user, which the API server would refuse."""
    render = make_render(template={"resources": {"limits": {"memory": "4Gi", "cpu": "1"}}})
    resources = _pod(rendered_of(render))["containers"][0]["resources"]
    assert resources["requests"]["memory"] == resources["limits"]["memory"] == "4Gi"
    assert resources["requests"]["cpu"] == "1"
