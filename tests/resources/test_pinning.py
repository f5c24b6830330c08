"""Pods restart only for a reason: what keeps a running pod template, and what replaces it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.resources.conftest import PLACEMENT_FIELDS, SETTINGS_FIELDS

from goodput.domain.decision import Rejected
from goodput.domain.identity import LABEL_REVISION
from goodput.domain.intent import Objective, Precision
from goodput.domain.speculation import DraftMethod, Speculation, SpeculationMode
from goodput.resources import pinning
from goodput.resources.compare import compare
from goodput.resources.engine.deployment import placement_of
from goodput.resources.inputs import EngineInput, KubeObject, ObjectKey, Rendered, RenderInput, SecretKey
from goodput.resources.render import object_key, render_model

ENGINE = ("Deployment", "llama-8b-serve")
ROUTER = ("Deployment", "llama-8b-router")

Make = Callable[..., RenderInput]
Stored = Callable[[Rendered], dict[ObjectKey, KubeObject]]


def _templates(rendered: Rendered) -> dict[ObjectKey, KubeObject]:
    return {object_key(item): item["spec"]["template"] for item in rendered.objects if item["kind"] == "Deployment"}


KEEPS: dict[str, dict[str, Any]] = {
    "another SLO": {"objective": Objective(ttft_seconds=0.431, tpot_seconds=None, e2e_seconds=12.0)},
    "no SLO": {"objective": None},
    "other sized numbers": {"max_num_seqs": 48, "max_num_batched_tokens": 4096, "max_model_len": 4096},
    "other queue limits": {"max_num_queued_requests": 77, "max_num_queued_tokens": 9999},
    "another price and capacity": {"price_per_hour": 9.0, "capacity_rps": 1.0},
    "another node selector of the same GPU type": {"node_selector": (("gpu", "l40s"),)},
    "another default engine image": {"engine_image": "vllm/vllm-openai:v0.34.0"},
    "another default router image": {"router_image": "goodput-router:0.2.0"},
    "a default token": {"default_credentials": SecretKey(name="hub", key="token")},
    "default pull secrets": {"default_image_pull_secrets": ("registry",)},
    "more replicas": {"replicas": 9},
    "one at a time": {"surge": False},
    "a longer start-up time": {"startup_timeout_seconds": 3600},
    "another scrape interval": {"scrape_seconds": 30, "pod_monitor": True},
}

RESTARTS: dict[str, dict[str, Any]] = {
    "another model": {"model": "meta-llama/Llama-3.2-1B"},
    "another served name": {"served_name": "chat"},
    "a revision": {"revision": "v2"},
    "credentials": {"credentials": SecretKey(name="hub", key="token")},
    "pull secrets": {"image_pull_secrets": ("registry",)},
    "an image": {"engine": EngineInput(image="vllm/vllm-openai:v0.34.0")},
    "an argument": {"engine": EngineInput(args=("--enforce-eager",))},
    "a variable": {"engine": EngineInput(env=({"name": "A", "value": "1"},))},
    "a label": {"template": {"labels": {"team": "search"}}},
    "admission off": {"admission": False},
    "another GPU type": {"gpu_type": "h100-sxm", "node_selector": (("gpu", "h100"),)},
    "another tensor parallelism": {"tensor_parallel": 2},
    "another pipeline parallelism": {"pipeline_parallel": 2},
}


@pytest.mark.parametrize("change", KEEPS)
def test_pods_stay_when_only_we_would_render_differently(change: str, make_render: Make, stored: Stored) -> None:
    """Neither an SLO, nor sized numbers, nor settings of the operator change a pod template that runs."""
    first = render_model(make_render(), {})
    second = render_model(make_render(**KEEPS[change]), stored(first))
    assert _templates(second) == _templates(first)


@pytest.mark.parametrize("change", RESTARTS)
def test_pods_are_rendered_anew_when_the_user_or_a_decision_asks(
    change: str, make_render: Make, stored: Stored
) -> None:
    """A change of what shapes pods gives another template, with another revision label."""
    first = render_model(make_render(), {})
    second = render_model(make_render(**RESTARTS[change]), stored(first))
    before, after = _templates(first)[ENGINE], _templates(second)[ENGINE]
    assert before["metadata"]["labels"][LABEL_REVISION] != after["metadata"]["labels"][LABEL_REVISION]
    assert compare(stored(first)[ENGINE], {object_key(item): item for item in second.objects}[ENGINE]) is not None


def test_a_user_change_takes_up_everything_that_was_waiting(make_render: Make, stored: Stored) -> None:
    """With the next change of the user, new thresholds, sizes and default images enter the pods."""
    first = render_model(make_render(), {})
    objective = Objective(ttft_seconds=0.431, tpot_seconds=0.05, e2e_seconds=None)
    changes: dict[str, Any] = {"objective": objective, "max_num_seqs": 48, "engine_image": "vllm/vllm-openai:v0.34.0"}
    waiting = render_model(make_render(**changes), stored(first))
    taken = render_model(make_render(**changes, template={"labels": {"team": "search"}}), stored(waiting))
    container = _templates(taken)[ENGINE]["spec"]["containers"][0]
    assert container["image"] == "vllm/vllm-openai:v0.34.0"
    assert container["args"][container["args"].index("--max-num-seqs") + 1] == "48"
    assert "0.431" in container["args"][-1]
    assert taken.update_available is None


def test_an_operator_upgrade_changes_no_pod_and_says_what_waits(
    make_render: Make, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another rendering code leaves engines and routers as they are and shows as an update; the same code does not."""
    existing = stored(render_model(make_render(), {}))
    assert render_model(make_render(), existing).update_available is None
    before = pinning.RENDER_REVISION
    monkeypatch.setattr(pinning, "RENDER_REVISION", before + 1)
    monkeypatch.setattr("goodput.resources.engine.pod.PRE_STOP_SECONDS", 99)
    monkeypatch.setattr("goodput.resources.router.PRE_STOP_SECONDS", 99)
    upgraded = render_model(make_render(), existing)
    assert [compare(existing[object_key(item)], item) for item in upgraded.objects] == [None] * len(upgraded.objects)
    assert upgraded.update_available is not None
    assert f"engine pods are rendered by revision {before}," in upgraded.update_available
    assert f"router pods are rendered by revision {before}," in upgraded.update_available
    # Kept over a second upgrade as well, from what is stored now.
    again = render_model(make_render(), stored(upgraded))
    assert _templates(again) == _templates(upgraded)
    taken = render_model(make_render(take_update=True), existing)
    assert taken.update_available is None
    for template in _templates(taken).values():
        assert template["spec"]["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"] == 99


def test_a_rendering_that_makes_the_same_pods_is_no_update(
    make_render: Make, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another revision of the code that changed routers only says nothing of engines."""
    existing = stored(render_model(make_render(), {}))
    monkeypatch.setattr(pinning, "RENDER_REVISION", pinning.RENDER_REVISION + 1)
    assert render_model(make_render(), existing).update_available is None
    monkeypatch.setattr("goodput.resources.router.PRE_STOP_SECONDS", 99)
    told = render_model(make_render(), existing).update_available
    assert told is not None
    assert "router pods" in told
    assert "engine pods" not in told


def test_a_new_default_image_is_an_update_unless_the_user_chose_one(make_render: Make, stored: Stored) -> None:
    """The message names both images; a Model with an image of its own has nothing to take up."""
    newer = "vllm/vllm-openai:v0.34.0"
    existing = stored(render_model(make_render(), {}))
    update = render_model(make_render(engine_image=newer), existing).update_available
    assert update == f"engine pods run image vllm/vllm-openai:v0.33.0, the default is {newer}"
    own = make_render(engine=EngineInput(image="example.com/vllm:1"))
    existing = stored(render_model(own, {}))
    assert render_model(make_render(own, engine_image=newer), existing).update_available is None


def test_other_default_secrets_are_an_update_unless_the_user_chose_some(make_render: Make, stored: Stored) -> None:
    """What waits is told for both pods, and taken in turn; a Model with Secrets of its own has nothing to take up."""
    token = SecretKey(name="hub", key="HF_TOKEN")
    defaults: dict[str, Any] = {"default_credentials": token, "default_image_pull_secrets": ("registry",)}
    first = render_model(make_render(), {})
    told = render_model(make_render(**defaults), stored(first)).update_available
    assert told == (
        "engine pods use default Secrets: none, the settings name: token hub/HF_TOKEN, pull registry; "
        "router pods use default Secrets: none, the settings name: pull registry"
    )
    taken = render_model(make_render(**defaults, take_update=True), stored(first))
    assert _templates(taken)[ENGINE] != _templates(first)[ENGINE]
    assert render_model(make_render(**defaults), stored(taken)).update_available is None
    gone = render_model(make_render(), stored(taken))
    assert _templates(gone) == _templates(taken)
    assert gone.update_available is not None
    assert "the settings name: none" in gone.update_available
    own = make_render(credentials=SecretKey(name="own", key="k"), image_pull_secrets=("mine",))
    existing = stored(render_model(own, {}))
    assert render_model(make_render(own, **defaults), existing).update_available is None


# What an administrator mends, and how it is told.
MENDED: dict[str, tuple[dict[str, Any], str]] = {
    "tolerations": (
        {"tolerations": ('{"key":"gpu","operator":"Exists"}',)},
        'engine pods have tolerations none, by GPUType l40s it is {"key":"gpu","operator":"Exists"}',
    ),
    "node selector": (
        {"node_selector": (("gpu", "right"), ("zone", "a"))},
        "engine pods have nodeSelector nvidia.com/gpu.product=NVIDIA-L40S, by GPUType l40s it is gpu=right,zone=a",
    ),
    "memory": (
        {"max_model_len": 2048},
        "engine pods have --max-model-len 8192, by GPUType l40s it is 2048",
    ),
    "time to start": (
        {"startup_timeout_seconds": 7200},
        "engine pods may take 1800 s to start, the settings say 7200 s",
    ),
}


@pytest.mark.parametrize("what", MENDED)
def test_what_an_administrator_mends_is_told_and_taken_in_turn(what: str, make_render: Make, stored: Stored) -> None:
    """Pods that serve stay as they are until it is their turn; then nothing waits any more."""
    change, text = MENDED[what]
    first = render_model(make_render(), {})
    told = render_model(make_render(**change), stored(first))
    assert _templates(told) == _templates(first)
    assert told.update_available == text
    taken = render_model(make_render(**change, take_update=True), stored(told))
    assert _templates(taken)[ENGINE]["spec"] == _templates(render_model(make_render(**change), {}))[ENGINE]["spec"]
    assert render_model(make_render(**change), stored(taken)).update_available is None


@pytest.mark.parametrize("what", MENDED)
def test_pods_that_never_served_take_it_at_once(what: str, make_render: Make, stored: Stored) -> None:
    """There is nothing to protect: what keeps them from starting may be what was mended."""
    change, _ = MENDED[what]
    first = render_model(make_render(), {})
    second = render_model(make_render(**change, unserved=("serve",)), stored(first))
    assert _templates(second)[ENGINE] == _templates(render_model(make_render(**change), {}))[ENGINE]
    assert _templates(second)[ROUTER] == _templates(first)[ROUTER]
    assert second.update_available is None


def test_routers_that_never_served_take_a_mended_image_and_engines_stay(make_render: Make, stored: Stored) -> None:
    """Each pool stands for itself."""
    change = {"router_image": "goodput-router:mended", "engine_image": "vllm/vllm-openai:v0.34.0"}
    first = render_model(make_render(), {})
    second = render_model(make_render(**change, unserved=("router",)), stored(first))
    assert _templates(second)[ROUTER]["spec"]["containers"][0]["image"] == "goodput-router:mended"
    assert _templates(second)[ENGINE] == _templates(first)[ENGINE]


# What an edited SLO, or an edited load, makes of the numbers of a placement.
EDITED: dict[str, Any] = {
    "objective": Objective(ttft_seconds=20.0, tpot_seconds=1.0, e2e_seconds=None),
    "sized_for": "another",
    "max_num_seqs": 1024,
    "max_num_batched_tokens": 16384,
    "max_model_len": 4096,
    "speculative_tokens": 5,
    "max_num_queued_requests": 497,
    "max_num_queued_tokens": 99_999,
}


def _arg(template: KubeObject, flag: str) -> str | None:
    args = template["spec"]["containers"][0]["args"]
    return args[args.index(flag) + 1] if flag in args else None


def _drafting(make_render: Make, **changes: Any) -> RenderInput:
    return make_render(**{"speculation": LOOKUP, "speculative_tokens": 3, "sized_for": "chat", **changes})


def test_what_an_edited_slo_makes_of_settings_is_no_update(make_render: Make, stored: Stored) -> None:
    """Nobody is told of it and nothing restarts, in turn or not; the next roll-out has all of it."""
    first = render_model(_drafting(make_render), {})
    for terms in ({}, {"take_update": True}, {"unserved": ("serve", "router")}):
        second = render_model(_drafting(make_render, **EDITED, **terms), stored(first))
        assert _templates(second) == _templates(first)
        assert second.update_available is None
    rolled = _templates(render_model(_drafting(make_render, **EDITED, engine=EngineInput(image="x:2")), stored(first)))
    flags = ("--max-num-seqs", "--max-num-batched-tokens", "--max-model-len", "--max-num-queued-reqs")
    assert [_arg(rolled[ENGINE], flag) for flag in flags] == ["1024", "16384", "4096", "497"]
    assert '"num_speculative_tokens":5' in (_arg(rolled[ENGINE], "--speculative-config") or "")


def test_what_an_older_operator_sized_for_nobody_knows_what_restarts_nothing(make_render: Make, stored: Stored) -> None:
    """Its record does not say for which SLO."""
    first = render_model(_drafting(make_render, sized_for=""), {})
    second = render_model(_drafting(make_render, **EDITED, take_update=True), stored(first))
    assert (_templates(second), second.update_available) == (_templates(first), None)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"speculative_tokens": 5}, "engine pods draft 3 tokens at a time, by what is believed now it is 5"),
        ({"max_num_seqs": 128}, "engine pods have --max-num-seqs 64, by GPUType l40s it is 128"),
        ({"max_num_batched_tokens": 512}, "engine pods have --max-num-batched-tokens 2048, by GPUType l40s it is 512"),
    ],
    ids=["drafts", "sequences", "tokens of a step"],
)
def test_settings_that_another_operator_sizes_for_the_same_slo_are_told(
    make_render: Make, stored: Stored, change: dict[str, Any], text: str
) -> None:
    """The author did nothing: it is an update, taken in turn."""
    first = render_model(_drafting(make_render), {})
    told = render_model(_drafting(make_render, **change), stored(first))
    assert (_templates(told), told.update_available) == (_templates(first), text)
    taken = render_model(_drafting(make_render, **change, take_update=True), stored(told))
    assert _templates(taken)[ENGINE] != _templates(first)[ENGINE]
    assert taken.update_available is None


def test_what_an_administrator_mends_after_an_slo_was_edited_is_told(make_render: Make, stored: Stored) -> None:
    """Labels of nodes in any case; the memory of the GPU where it is nothing else that changes what fits."""
    first = render_model(_drafting(make_render), {})
    labels = _drafting(make_render, **EDITED, node_selector=(("gpu", "right"),))
    assert render_model(labels, stored(first)).update_available == (
        "engine pods have nodeSelector nvidia.com/gpu.product=NVIDIA-L40S, by GPUType l40s it is gpu=right"
    )
    memory = _drafting(make_render, sized_for="another", max_num_queued_requests=497, max_model_len=4096)
    assert render_model(memory, stored(first)).update_available == (
        "engine pods have --max-model-len 8192, by GPUType l40s it is 4096"
    )


@pytest.mark.parametrize("change", [{"objective": None}, {"max_num_queued_requests": 77}, {"replicas": 9}])
def test_pods_that_start_go_on_where_nothing_was_mended(
    change: dict[str, Any], make_render: Make, stored: Stored
) -> None:
    """An SLO that is edited while a first replica loads does not make it load again."""
    first = render_model(make_render(), {})
    assert _templates(render_model(make_render(**change, unserved=("serve", "router")), stored(first))) == _templates(
        first
    )


# Another value of each thing that an administrator or a decision sets.
OTHER: dict[str, Any] = {
    "engine_image": "x:2",
    "router_image": "y:2",
    "scrape_seconds": 30,
    "pod_monitor": True,
    "pod_monitor_labels": (("release", "stack"),),
    "router_replicas": 3,
    "default_credentials": SecretKey(name="hub", key="k"),
    "default_image_pull_secrets": ("registry",),
    "metrics_from": ({"podSelector": {}},),
    "startup_timeout_seconds": 7200,
    "gpu_type": "h100-sxm",
    "resource_name": "amd.com/gpu",
    "node_selector": (("gpu", "other"),),
    "tolerations": ('{"key":"gpu","operator":"Exists"}',),
    "tensor_parallel": 2,
    "pipeline_parallel": 2,
    "max_num_seqs": 7,
    "max_num_batched_tokens": 1024,
    "max_model_len": 2048,
    "speculative_tokens": 3,
    "max_num_queued_requests": 77,
    "max_num_queued_tokens": 9999,
    "sized_for": "another",
    "capacity_rps": 9.0,
    "price_per_hour": 9.0,
    "price_assumed": True,
    "rejected": (Rejected("h100-sxm", "too dear"),),
}
# They follow the SLO, which is edited at any time.
UNTOLD = {"max_num_queued_requests", "max_num_queued_tokens"}


@pytest.mark.parametrize("field", sorted({*SETTINGS_FIELDS, *PLACEMENT_FIELDS}))
def test_nothing_that_would_change_pods_waits_untold(field: str, make_render: Make, stored: Stored) -> None:
    """Every setting and every part of a placement leaves fresh pods alone, replaces pods, or is told as an update."""
    drafting = Speculation(method=DraftMethod.NGRAM) if field == "speculative_tokens" else None
    first = render_model(make_render(speculation=drafting), {})
    changed = make_render(speculation=drafting, **{field: OTHER[field]})
    differs = _templates(render_model(changed, {})) != _templates(first)
    second = render_model(changed, stored(first))
    replaced = _templates(second) != _templates(first)
    assert (replaced or second.update_available is not None) is (differs and field not in UNTOLD)


LOOKUP = Speculation(method=DraftMethod.NGRAM)


@pytest.mark.parametrize(
    "edit",
    [
        {"precision": Precision(weights="fp8")},
        {"precision": Precision(kv_cache="fp8")},
        {"speculation": LOOKUP, "speculative_tokens": 3},
    ],
)
def test_an_edit_of_precision_or_speculation_replaces_pods(
    edit: dict[str, Any], make_render: Make, stored: Stored
) -> None:
    """They are the author's, who waits for no update."""
    first = render_model(make_render(), {})
    second = render_model(make_render(**edit), stored(first))
    assert _templates(second)[ENGINE] != _templates(first)[ENGINE]
    assert _templates(second)[ROUTER] == _templates(first)[ROUTER]


def test_an_edit_that_decides_nothing_else_replaces_no_pods(make_render: Make, stored: Stored) -> None:
    """Speculation that was on anyway is on by order: the same pods."""
    first = render_model(make_render(speculation=LOOKUP, speculative_tokens=3), {})
    ordered = Speculation(method=DraftMethod.NGRAM, mode=SpeculationMode.ALWAYS)
    second = render_model(make_render(speculation=ordered, speculative_tokens=3), stored(first))
    assert _templates(second) == _templates(first)


def test_taking_updates_restarts_nothing_when_there_is_none(make_render: Make, stored: Stored) -> None:
    """`engine.update: Automatic` takes what an administrator changed, not an edited SLO and what follows from it."""
    first = render_model(make_render(), {})
    changed = make_render(objective=None, max_num_queued_requests=77, max_num_queued_tokens=9999, take_update=True)
    assert _templates(render_model(changed, stored(first))) == _templates(first)


@pytest.mark.parametrize("change", RESTARTS)
def test_without_room_what_is_asked_for_waits_and_is_told(change: str, make_render: Make, stored: Stored) -> None:
    """Engine pods and their records stay what they are; replicas follow. With room all of it comes."""
    existing = stored(render_model(make_render(), {}))
    edit = RESTARTS[change]
    waiting = render_model(make_render(**edit, room=False, replicas=7), existing)
    kept = {object_key(item): item for item in waiting.objects}[ENGINE]
    assert waiting.withheld
    assert compare(existing[ENGINE], {**kept, "spec": {**kept["spec"], "replicas": 2}}) is None
    assert kept["metadata"]["annotations"] == existing[ENGINE]["metadata"]["annotations"]
    assert kept["spec"]["replicas"] == 7
    begun = render_model(make_render(**edit, replicas=7), existing)
    assert not begun.withheld
    assert _templates(begun)[ENGINE] != _templates(waiting)[ENGINE]


def test_without_room_nothing_is_withheld_that_nobody_asked_for(make_render: Make, stored: Stored) -> None:
    """An update waits for its turn and is told as ever; in turn it is withheld. Routers take theirs, and a new Model is
    made."""
    images = {"engine_image": "x:2", "router_image": "y:2"}
    assert not render_model(make_render(room=False), {}).withheld
    first = render_model(make_render(), {})
    assert not render_model(make_render(room=False), stored(first)).withheld
    told = render_model(make_render(**images, room=False), stored(first))
    assert not told.withheld
    assert "engine pods run image" in (told.update_available or "")
    taken = render_model(make_render(**images, room=False, take_update=True), stored(first))
    assert taken.withheld
    assert taken.update_available == "engine pods run image vllm/vllm-openai:v0.33.0, the default is x:2"
    assert _templates(taken)[ENGINE] == _templates(first)[ENGINE]
    assert _templates(taken)[ROUTER] != _templates(first)[ROUTER]


def test_a_foreign_edit_of_the_template_is_put_right(make_render: Make, stored: Stored) -> None:
    """The template written is the one that we rendered, not what somebody made of it on the Deployment."""
    first = render_model(make_render(), {})
    existing = stored(first)
    existing[ENGINE]["spec"]["template"]["spec"]["containers"][0]["image"] = "example.com/other:1"
    second = render_model(make_render(max_num_seqs=48), existing)
    assert _templates(second)[ENGINE] == _templates(first)[ENGINE]
    difference = compare(existing[ENGINE], {object_key(item): item for item in second.objects}[ENGINE])
    assert difference is not None
    assert "image" in difference


@pytest.mark.parametrize("damage", ["missing", "not JSON", "not an object"])
def test_a_lost_record_of_the_template_restarts_no_pod(damage: str, make_render: Make, stored: Stored) -> None:
    """Without a readable copy in the annotations, the template on the Deployment is kept."""
    existing = stored(render_model(make_render(), {}))
    annotations = existing[ENGINE]["metadata"]["annotations"]
    if damage == "missing":
        del annotations[pinning.ANNOTATION_TEMPLATE]
    else:
        annotations[pinning.ANNOTATION_TEMPLATE] = {"not JSON": "{", "not an object": "[1]"}[damage]
    second = render_model(make_render(max_num_seqs=48), existing)
    assert _templates(second)[ENGINE] == existing[ENGINE]["spec"]["template"]
    assert _templates(render_model(make_render(), stored(second)))[ENGINE] == _templates(second)[ENGINE]


def test_the_placement_on_the_deployment_is_that_of_its_pods(make_render: Make, stored: Stored) -> None:
    """The annotation gives back the placement as rendered, and keeps it while the pods do."""
    render = make_render(tolerations=('{"key":"gpu","operator":"Exists"}',))
    first = render_model(render, {})
    assert placement_of(stored(first)[ENGINE]) == render.placement
    second = render_model(make_render(render, max_num_seqs=1, price_per_hour=None), stored(first))
    assert placement_of(stored(second)[ENGINE]) == render.placement


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"gpu_type":"l40s"}', '{"node_selector":5}'])
def test_an_unreadable_placement_is_none(text: str) -> None:
    """A damaged annotation never raises."""
    assert placement_of({"metadata": {"annotations": {pinning.ANNOTATION_PLACEMENT: text}}}) is None
    assert placement_of(None) is None


def test_unset_fields_leave_the_hash_alone(make_render: Make, stored: Stored) -> None:
    """Empty values mean unset, so that a newer operator which knows more fields restarts nobody."""
    first = render_model(make_render(), {})
    empty = make_render(template={"labels": {}, "affinity": None, "volumes": []}, image_pull_secrets=())
    assert _templates(render_model(empty, stored(first))) == _templates(first)


def test_router_and_engine_are_pinned_apart(make_render: Make, stored: Stored) -> None:
    """An argument for the engine leaves the routers alone."""
    first = render_model(make_render(), {})
    second = render_model(make_render(engine=EngineInput(args=("--enforce-eager",))), stored(first))
    assert _templates(second)[ROUTER] == _templates(first)[ROUTER]
    assert _templates(second)[ENGINE] != _templates(first)[ENGINE]


def test_a_template_too_large_to_record_is_kept_all_the_same(make_render: Make, stored: Stored) -> None:
    """64 variables of 4 KiB are a legal Model: annotations stay within their 256 KiB, and pods do not restart."""
    env = tuple({"name": f"V{index}", "value": "x" * 4096} for index in range(64))
    render = make_render(engine=EngineInput(env=env))
    first = render_model(render, {})
    deployment = next(item for item in first.objects if object_key(item) == ENGINE)
    annotations = deployment["metadata"]["annotations"]
    assert sum(len(key) + len(value.encode()) for key, value in annotations.items()) < 256 * 1024
    again = render_model(replace(render, settings=replace(render.settings, engine_image="other:1")), stored(first))
    kept = _templates(again)[ENGINE]
    assert compare(kept, _templates(first)[ENGINE]) is None, "the pods that run go on"
    assert kept["metadata"]["labels"] == _templates(first)[ENGINE]["metadata"]["labels"]
