"""Environment, command and memory claim of a container."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from goodput_world.agent import command
from goodput_world.agent.command import ContainerConfigError
from goodput_world.agent.images import ImageSpec

POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"a": "1", "b": "2"}},
    "spec": {"nodeName": "n", "containers": []},
}
SECRETS = {("Secret", "token"): {"hf": "abc"}, ("ConfigMap", "settings"): {"X": "1", "Y": "2"}}


def env_of(container: Mapping[str, Any], base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a container of POD."""
    return command.environment(
        POD,
        {"name": "c", **container},
        lookup=lambda kind, name: SECRETS.get((kind, name)),
        host_ip="127.0.9.9",
        pod_ip="127.0.1.1",
        allocatable={"memory": "8Gi", "cpu": "4"},
        base=base or {},
    )


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("$(A)/x", "1/x"),
        ("$(MISSING)", "$(MISSING)"),
        ("$$(A)", "$(A)"),
        ("$A", "$A"),
        ("$(A)$(A)", "11"),
        ("100$", "100$"),
    ],
)
def test_references_expand_as_in_kubernetes(text: str, want: str) -> None:
    """Unknown names stay, `$$` escapes, a bare `$A` is no reference."""
    assert command.expand(text, {"A": "1"}) == want


def test_environment_sources_in_order() -> None:
    """envFrom first, then env, which refers to what came before; the base is overridden."""
    env = env_of(
        {
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "settings"}}],
            "env": [
                {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "hf"}}},
                {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "URL", "value": "http://$(IP):$(P_X)"},
                {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['b']"}}},
                {"name": "HOME", "value": "/cache"},
            ],
        },
        base={"HOME": "/"},
    )

    assert env == {
        "P_X": "1",
        "P_Y": "2",
        "HF_TOKEN": "abc",
        "IP": "127.0.1.1",
        "URL": "http://127.0.1.1:1",
        "LABEL": "2",
        "HOME": "/cache",
    }


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ({"secretKeyRef": {"name": "gone", "key": "k"}}, 'secret "gone" not found'),
        ({"secretKeyRef": {"name": "token", "key": "k"}}, "couldn't find key k in Secret token"),
        ({"configMapKeyRef": {"name": "gone", "key": "k"}}, 'configmap "gone" not found'),
        ({"fieldRef": {"fieldPath": "spec.nothing"}}, "unsupported fieldPath"),
    ],
    ids=["no secret", "no key", "no configmap", "no field"],
)
def test_a_missing_source_is_a_config_error(variable: dict[str, Any], message: str) -> None:
    """The kubelet's CreateContainerConfigError, with its words."""
    with pytest.raises(ContainerConfigError, match=message):
        env_of({"env": [{"name": "V", "valueFrom": variable}]})


def test_an_optional_source_may_be_missing() -> None:
    """The variable is then absent, not empty."""
    source = {"secretKeyRef": {"name": "gone", "key": "k", "optional": True}}

    assert env_of({"env": [{"name": "V", "valueFrom": source}]}) == {}


@pytest.mark.parametrize(
    ("reference", "want"),
    [
        ({"resource": "limits.memory", "divisor": "1Mi"}, "1024"),
        ({"resource": "limits.cpu"}, "4"),
        ({"resource": "requests.cpu"}, "1"),
        ({"resource": "requests.memory"}, "0"),
    ],
    ids=["by divisor", "the node's without a limit", "rounded up", "no request"],
)
def test_resource_references(reference: dict[str, Any], want: str) -> None:
    """Limits fall back to what the node has; results round up."""
    container = {"name": "c", "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "100m"}}}

    assert command.resource_value(POD, container, reference, {"cpu": "4"}) == want


IMAGE = ImageSpec(("vllm", "serve"), {"vllm": ("/usr/bin/python", "-m", "engine")}, engine=True)


@pytest.mark.parametrize(
    ("container", "want"),
    [
        ({}, ["vllm", "serve"]),
        ({"args": ["m", "--port=$(P)"]}, ["vllm", "serve", "m", "--port=8000"]),
        ({"command": ["sh", "-c"], "args": ["true"]}, ["sh", "-c", "true"]),
        ({"command": ["sh"]}, ["sh"]),
    ],
    ids=["entrypoint", "args follow it", "command replaces it", "command alone"],
)
def test_command_and_args(container: dict[str, Any], want: list[str]) -> None:
    """`command` replaces the image's entrypoint, `args` follow."""
    assert command.image_argv(container, IMAGE, {"P": "8000"}) == want


def test_a_name_of_the_image_becomes_a_local_program() -> None:
    """Only the first word is looked up."""
    assert IMAGE.resolve(["vllm", "serve", "vllm"]) == ["/usr/bin/python", "-m", "engine", "serve", "vllm"]
    assert IMAGE.resolve(["/bin/sh"]) == ["/bin/sh"]
    with pytest.raises(ValueError, match="no command"):
        IMAGE.resolve([])


def test_programs_listen_on_the_pod_ip() -> None:
    """0.0.0.0 becomes the pod IP, in argv and environment, except for an engine, which binds POD_IP_BIND itself."""
    router = ImageSpec(("router",), listen_flag=("--listen", "90"))

    assert command.bind_to_pod(["r", "--host", "0.0.0.0"], router, "127.1.1.1") == [
        "r",
        "--host",
        "127.1.1.1",
        "--listen=127.1.1.1:90",
    ]
    assert command.bind_to_pod(["r", "--listen=0.0.0.0:1"], router, "127.1.1.1") == ["r", "--listen=127.1.1.1:1"]
    assert command.bind_env_to_pod({"B": "0.0.0.0:80"}, router, "127.1.1.1") == {"B": "127.1.1.1:80"}
    engine = ImageSpec(("v",), engine=True, binds_pod_ip=True)
    assert command.bind_to_pod(["v", "--host", "0.0.0.0"], engine, "127.1.1.1") == ["v", "--host", "0.0.0.0"]


@pytest.mark.parametrize(
    ("argv", "want"),
    [
        (["vllm", "serve", "org/m", "--x"], "org/m"),
        (["vllm", "serve", "--model", "org/m"], "org/m"),
        (["python", "-m", "x", "--model=org/m"], "org/m"),
        (["vllm", "serve"], ""),
        (["sh", "-c", "true"], ""),
    ],
)
def test_the_model_of_a_command(argv: list[str], want: str) -> None:
    """Positional or by flag."""
    assert command.served_model(argv) == want


@pytest.mark.parametrize(
    ("argv", "env", "want"),
    [
        ([], {}, 5),
        (["--kv-offloading-size", "2"], {}, 5 + 2 * 2**30),
        (["--kv_offloading_size=0.5"], {}, 5 + 2**29),
        ([], {"GOODPUT_SIM_HOST_MEMORY_BYTES": "7"}, 7),
        (["--kv-offloading-size"], {}, 5),
        (["--kv-offloading-size", "many"], {}, 5),
    ],
    ids=["plant", "with offload", "underscores", "environment", "no value", "no number"],
)
def test_host_memory_claim(argv: list[str], env: dict[str, str], want: int) -> None:
    """What the plant says, plus the offload size in GiB; a bad flag is left for the engine to refuse."""
    assert command.host_memory_claim_bytes(argv, env, 5) == want
