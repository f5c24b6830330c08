"""What exists beside what serves while a change is judged, and what of it an author can bend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs
from tests.placements import placement

from goodput.domain.change import Serving, fingerprint
from goodput.domain.identity import LABEL_POOL
from goodput.domain.intent import Precision
from goodput.domain.plan import ChangePlan, CheckRun
from goodput.domain.speculation import DraftMethod, Speculation, SpeculationMode
from goodput.perfmodel import architecture
from goodput.resources.inputs import EngineInput, KubeObject, ObjectKey, Rendered, RenderInput
from goodput.resources.render import object_key, render_model
from goodput.resources.serving import ANNOTATION_SERVING, serving_of

LLAMA, QWEN = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-7B-Instruct"
ENGINE, CANARY = ("Deployment", "llama-8b-serve"), ("Deployment", "llama-8b-canary")
JOB = ("Job", "llama-8b-check-c1")
CHECK = {
    "backoffLimit": 0,
    "activeDeadlineSeconds": 60,
    "template": {"spec": {"containers": [{"name": "eval", "image": "evals:7"}]}},
}
Make = Callable[..., RenderInput]
Stored = Callable[[Rendered], dict[ObjectKey, KubeObject]]


def _change(**changes: Any) -> ChangePlan:
    return ChangePlan(**{"id": "c1", "held": True, "canary": placement(), "check": CheckRun.RUN, **changes})


def _by_key(rendered: Rendered) -> dict[ObjectKey, KubeObject]:
    return {object_key(item): item for item in rendered.objects}


@pytest.fixture
def serves(make_render: Make, stored: Stored) -> dict[ObjectKey, KubeObject]:
    """Objects of a Model that serves Llama."""
    quality = (("spec.model", LLAMA),)
    return stored(render_model(make_render(quality=quality, architecture=architecture(LLAMA)), {}))


def _asked(make_render: Make, **changes: Any) -> RenderInput:
    values = {"model": QWEN, "quality": (("spec.model", QWEN),), "change": _change(), "check": CHECK}
    return make_render(**{**values, **changes})


def test_a_held_template_stays_and_the_canary_has_the_new_one(
    make_render: Make, serves: dict[ObjectKey, KubeObject]
) -> None:
    """Whatever else was edited; replicas follow the decision all the same."""
    render = _asked(make_render, replicas=5, engine=EngineInput(args=("--seed", "7")), tensor_parallel=2)
    found = _by_key(render_model(render, serves))
    before = dict(serves[ENGINE]["metadata"]["annotations"])
    assert found[ENGINE]["spec"]["template"]["spec"]["containers"][0]["args"][0] == LLAMA
    assert found[ENGINE]["metadata"]["annotations"] == before
    assert found[ENGINE]["spec"]["replicas"] == 5
    container = found[CANARY]["spec"]["template"]["spec"]["containers"][0]
    assert container["args"][0] == QWEN
    assert "--seed" in container["args"]
    assert found[CANARY]["spec"]["replicas"] == 1


def test_a_change_that_is_let_through_rolls_out(make_render: Make, serves: dict[ObjectKey, KubeObject]) -> None:
    """And what it serves is on record."""
    found = _by_key(render_model(_asked(make_render, change=_change(held=False, canary=None)), serves))
    assert found[ENGINE]["spec"]["template"]["spec"]["containers"][0]["args"][0] == QWEN
    serving = serving_of(found[ENGINE])
    assert serving is not None
    assert (serving.model, serving.quality) == (QWEN, (("spec.model", QWEN),))
    assert CANARY not in found


def test_a_change_that_passed_and_finds_no_room_is_not_on_record(
    make_render: Make, serves: dict[ObjectKey, KubeObject]
) -> None:
    """What the Deployment says is what its pods serve; the canary, if it is still there, has room of its own."""
    found = render_model(_asked(make_render, change=_change(held=False), room=False), serves)
    assert found.withheld
    assert serving_of(_by_key(found)[ENGINE]) == serving_of(serves[ENGINE])
    assert _by_key(found)[CANARY]["spec"]["template"]["spec"]["containers"][0]["args"][0] == QWEN


def test_a_held_pool_takes_no_update(make_render: Make, serves: dict[ObjectKey, KubeObject]) -> None:
    """An administrator's new image waits until the change is over, in turn or not."""
    render = _asked(make_render, engine_image="vllm/vllm-openai:v9", take_update=True)
    rendered = render_model(render, serves)
    image = _by_key(rendered)[ENGINE]["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == serves[ENGINE]["spec"]["template"]["spec"]["containers"][0]["image"]
    assert rendered.update_available is None


@pytest.mark.parametrize(
    ("run", "there", "rendered"),
    [
        (CheckRun.RUN, False, True),
        (CheckRun.RUN, True, True),
        (CheckRun.KEEP, False, False),
        (CheckRun.KEEP, True, True),
    ],
)
def test_a_job_is_made_once_and_kept_as_it_is(
    make_render: Make, serves: dict[ObjectKey, KubeObject], run: CheckRun, there: bool, rendered: bool
) -> None:
    """A Job cannot be edited: what is there is what is wanted, whatever this operator would make of it."""
    existing = dict(serves)
    if there:
        existing[JOB] = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": JOB[1]}, "spec": {"mine": 1}}
    found = _by_key(render_model(_asked(make_render, change=_change(check=run)), existing))
    assert (JOB in found) is rendered
    if there and rendered:
        assert found[JOB] == existing[JOB]


def test_a_check_knows_where_both_are(make_render: Make, serves: dict[ObjectKey, KubeObject]) -> None:
    """URLs and the names under which they serve: that of the incumbent is the one that runs."""
    render = _asked(make_render, served_name="new-name")
    (container,) = _by_key(render_model(render, serves))[JOB]["spec"]["template"]["spec"]["containers"]
    env = {item["name"]: item.get("value") for item in container["env"]}
    assert env == {
        "GOODPUT_CANARY_URL": "http://llama-8b-canary-e72766aa09ca06fe8ed6560aa2e0d7b.team-a.svc",
        "GOODPUT_CANARY_MODEL": "new-name",
        "GOODPUT_INCUMBENT_URL": "http://llama-8b.team-a.svc",
        "GOODPUT_INCUMBENT_MODEL": LLAMA,
        "HOME": "/tmp",
    }


def test_nothing_that_is_not_allowed_gets_into_the_pod_of_a_check(
    make_render: Make, serves: dict[ObjectKey, KubeObject]
) -> None:
    """By whatever path it came: the API refuses it, rendering does not know it."""
    hostile = {
        "name": "eval",
        "image": "evals:7",
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "host", "mountPath": "/host"}],
        "env": [{"name": "GOODPUT_CANARY_URL", "value": "http://elsewhere"}, {"name": "HOME", "value": "/home"}],
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "9"]}}},
    }
    pod = {"containers": [hostile], "hostNetwork": True, "serviceAccountName": "admin", "nodeName": "n"}
    render = _asked(make_render, check={**CHECK, "template": {"spec": pod}, "parallelism": 9})
    job = _by_key(render_model(render, serves))[JOB]
    spec = job["spec"]["template"]["spec"]
    assert spec.keys() == {
        *("serviceAccountName", "automountServiceAccountToken", "enableServiceLinks", "restartPolicy"),
        *("securityContext", "containers", "volumes"),
    }
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("llama-8b-serve", False)
    assert job["spec"].keys() == {"backoffLimit", "activeDeadlineSeconds", "podFailurePolicy", "template"}
    (container,) = spec["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["volumeMounts"] == [{"name": "tmp", "mountPath": "/tmp"}]
    assert "lifecycle" not in container
    env = [(item["name"], item["value"]) for item in container["env"]]
    assert ("HOME", "/home") in env
    assert [name for name, _ in env].count("HOME") == 1
    assert ("GOODPUT_CANARY_URL", "http://elsewhere") not in env


def test_what_serves_and_what_judges_are_never_one_pool(make_render: Make, serves: dict[ObjectKey, KubeObject]) -> None:
    """Each of the three has a label of its own, which selectors of the others do not meet."""
    found = _by_key(render_model(_asked(make_render), serves))
    pools = [found[key]["spec"]["template"]["metadata"]["labels"][LABEL_POOL] for key in (ENGINE, CANARY, JOB)]
    assert pools == ["serve", "canary", "check"]


@pytest.mark.parametrize("lost", [False, True], ids=["recorded", "record lost"])
@pytest.mark.parametrize("model", [LLAMA, "pvc://weights/llama/8b", "pvc://weights"])
def test_what_a_deployment_serves_can_be_told(make_render: Make, model: str, lost: bool) -> None:
    """By its record, else by its arguments."""
    quality = [("--dtype", "--dtype half"), ("spec.model", model)]
    revision = None
    if not model.startswith("pvc"):
        revision = "v2"
        quality.append(("spec.revision", "v2"))
    render = make_render(
        model=model,
        served_name="m",
        revision=revision,
        engine=EngineInput(args=("--dtype", "half")),
        quality=tuple(quality),
        architecture=architecture(LLAMA),
    )
    deployment = _by_key(render_model(render, {}))[ENGINE]
    if lost:
        del deployment["metadata"]["annotations"][ANNOTATION_SERVING]
    want = Serving(
        model=model, served_name="m", quality=tuple(quality), architecture=None if lost else architecture(LLAMA)
    )
    assert serving_of(deployment) == want


SMALL = "Qwen/Qwen3-0.6B"


@pytest.mark.parametrize(
    ("speculation", "who"),
    [
        (Speculation(method=DraftMethod.NGRAM), "ngram"),
        (Speculation(method=DraftMethod.DRAFT, model=SMALL, draft=architecture(SMALL)), f"draft {SMALL}"),
        (Speculation(method=DraftMethod.EAGLE3, model="org/head", acceptance=0.7), "eagle3 org/head"),
        (Speculation(method=DraftMethod.MTP, tokens=1), "mtp"),
    ],
    ids=["lookup", "draft model", "head", "layers of the checkpoint"],
)
def test_precision_and_drafts_are_read_back_from_arguments(
    make_render: Make, speculation: Speculation, who: str
) -> None:
    """Pods quantise weights and draft, whatever is believed of it by now; what is only believed is lost."""
    quality = [("spec.model", LLAMA), ("spec.precision.kvCache", "fp8"), ("spec.precision.weights", "fp8")]
    quality.append(("spec.speculative", who))
    render = make_render(
        quality=tuple(quality),
        precision=Precision(weights="fp8", kv_cache="fp8"),
        speculation=speculation,
        speculative_tokens=3,
    )
    deployment = _by_key(render_model(render, {}))[ENGINE]
    del deployment["metadata"]["annotations"][ANNOTATION_SERVING]
    found = serving_of(deployment)
    assert found is not None
    assert found.quality == tuple(quality)
    assert fingerprint(found.quality) == fingerprint(tuple(quality))
    assert (found.weights, found.kv_cache) == ("fp8", "fp8")
    runs = structs.replace(speculation, mode=SpeculationMode.ALWAYS, tokens=3, acceptance=None)
    assert found.speculation == runs


@pytest.mark.parametrize("config", ["", "{", "[]", '{"method": ["ngram"]}', '{"method": "ngram"}', '{"method": "x"}'])
def test_drafts_that_nobody_knows_are_none(make_render: Make, config: str) -> None:
    """Somebody else's words: nothing raises."""
    deployment = _by_key(render_model(make_render(), {}))[ENGINE]
    deployment["spec"]["template"]["spec"]["containers"][0]["args"] += ["--speculative-config", config]
    del deployment["metadata"]["annotations"][ANNOTATION_SERVING]
    found = serving_of(deployment)
    assert found is not None
    assert (found.speculation, dict(found.quality).get("spec.speculative")) == (None, None)


@pytest.mark.parametrize("text", ["", "no json", "{}", "[1]", '{"model": 1}'])
def test_a_damaged_record_is_none(make_render: Make, text: str) -> None:
    """The arguments tell what it does not; a Deployment without them tells nothing."""
    deployment = _by_key(render_model(make_render(quality=(("spec.model", LLAMA),)), {}))[ENGINE]
    deployment["metadata"]["annotations"][ANNOTATION_SERVING] = text
    serving = serving_of(deployment)
    assert serving is not None
    assert serving.quality == (("spec.model", LLAMA),)
    assert serving_of({"metadata": {}, "spec": {"template": {"spec": {"containers": []}}}}) is None
    assert serving_of({}) is None
