"""Whatever a user's part of the spec holds, our part of the pod stands."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from goodput.domain.identity import LABEL_MANAGED_BY, LABEL_MODEL, LABEL_POOL, LABEL_REVISION
from goodput.resources.engine.owned import owned_flag
from goodput.resources.inputs import EngineInput, KubeObject
from goodput.resources.render import render_model

WORDS = st.text("abcxyz-./_", min_size=1, max_size=12)
KEYS = st.one_of(
    WORDS,
    st.sampled_from(
        [LABEL_MODEL, LABEL_POOL, LABEL_REVISION, LABEL_MANAGED_BY, "pod-template-hash", "x.goodput.dev/a"]
    ),
)
NAMES = st.sampled_from(["cache", "tmp", "shm", "models", "goodput-x", "mine", "other"])
PATHS = st.one_of(
    st.sampled_from(
        ["/cache", "/cache/x", "/tmp", "/dev/shm", "/models", "//cache", "/mine/../tmp", "/mine", "/", "x"]
    ),
    WORDS.map(lambda text: "/" + text),
)
AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "hugepages-2Mi"]), st.sampled_from(["1", "2", "64Gi"])
)
TEMPLATES = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.dictionaries(KEYS, WORDS),
        "annotations": st.dictionaries(KEYS, WORDS),
        "resources": st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS}),
        "tolerations": st.lists(st.fixed_dictionaries({"key": WORDS, "operator": st.just("Exists")}), max_size=3),
        "priorityClassName": WORDS,
        "volumes": st.lists(
            st.one_of(
                st.fixed_dictionaries({"name": NAMES, "emptyDir": st.just({})}),
                st.fixed_dictionaries({"name": NAMES, "hostPath": st.just({"path": "/"})}),
                st.fixed_dictionaries({"name": NAMES, "secret": st.just({"secretName": "s"})}),
            ),
            max_size=4,
        ),
        "volumeMounts": st.lists(st.fixed_dictionaries({"name": NAMES, "mountPath": PATHS}), max_size=4),
        "hostNetwork": st.booleans(),
        "nodeSelector": st.dictionaries(WORDS, WORDS),
    },
)
ARGS = st.lists(
    st.one_of(
        WORDS,
        st.sampled_from(
            ["--port", "--port=1", "--max_num_seqs", "-tp", "-tp9", "--", "-", "--enforce-eager", "--seed", "-1", "--m"]
        ),
    ),
    max_size=6,
)
ENV = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["HOME", "USER", "HF_HOME", "HF_TOKEN", "MINE"]), "value": WORDS}),
    max_size=4,
)


def _engine_pod(render: Any) -> KubeObject:
    template: KubeObject = render_model(render, {}).objects[-1]["spec"]["template"]
    return template


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(template=TEMPLATES, args=ARGS, env=ENV)
def test_our_part_of_the_pod_stands(make_render: Any, template: Any, args: Any, env: Any) -> None:
    """Flags, environment, volumes, mounts, labels, GPUs and security of ours are as without the user's part."""
    plain = _engine_pod(make_render())
    pod = _engine_pod(make_render(template=template, engine=EngineInput(args=tuple(args), env=tuple(env))))
    ours, theirs = plain["spec"]["containers"][0], pod["spec"]["containers"][0]

    labels = {key: value for key, value in plain["metadata"]["labels"].items() if key != LABEL_REVISION}
    assert labels.items() <= pod["metadata"]["labels"].items()
    changeable = {"args", "env", "resources", "volumeMounts"}
    assert {k: v for k, v in theirs.items() if k not in changeable} == {
        k: v for k, v in ours.items() if k not in changeable
    }
    spec_changeable = {"containers", "volumes", "tolerations", "affinity", "priorityClassName"}
    assert {k: v for k, v in pod["spec"].items() if k not in spec_changeable} == {
        k: v for k, v in plain["spec"].items() if k not in spec_changeable
    }

    # argparse: the model is the one positional, and the last of equal flags wins.
    assert theirs["args"][0] == ours["args"][0]
    assert theirs["args"][-len(ours["args"]) + 1 :] == ours["args"][1:]
    between = theirs["args"][1 : len(theirs["args"]) - len(ours["args"]) + 1]
    assert not between or between[0].startswith("-")
    assert not any(owned_flag(token) for token in between)

    for field, key in (("env", "name"), ("volumeMounts", "mountPath")):
        keys = [item[key] for item in theirs[field]]
        assert len(keys) == len(set(keys))
        assert all(item in theirs[field] for item in ours[field])
    names = [item["name"] for item in pod["spec"]["volumes"]]
    assert len(names) == len(set(names))
    assert all(item in pod["spec"]["volumes"] for item in plain["spec"]["volumes"])
    assert all("hostPath" not in item for item in pod["spec"]["volumes"])
    for part in ("requests", "limits"):
        assert theirs["resources"][part]["nvidia.com/gpu"] == "1"
        assert set(theirs["resources"][part]) <= {"cpu", "memory", "ephemeral-storage", "nvidia.com/gpu"}
