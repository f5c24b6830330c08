"""From a container's spec to its environment and argv, by the rules of Kubernetes. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from goodput_world.agent.images import ImageSpec
from goodput_world.agent.quantity import parse_quantity

_ANY_ADDRESS = "0.0.0.0"
_REFERENCE = re.compile(r"\$(\$|\(([^()]*)\))")

Lookup = Callable[[str, str], Mapping[str, str] | None]
"""(kind "Secret" or "ConfigMap", name) -> its decoded data, None when it does not exist."""


class ContainerConfigError(Exception):
    """The container cannot be configured: kubelet's CreateContainerConfigError."""


def expand(text: str, values: Mapping[str, str]) -> str:
    """Kubernetes' `$(VAR)` expansion: unknown names stay as written, `$$` is a dollar sign."""

    def replaced(match: re.Match[str]) -> str:
        if match.group(1) == "$":
            return "$"
        return values.get(match.group(2), match.group(0))

    return _REFERENCE.sub(replaced, text)


def field_value(pod: Mapping[str, Any], path: str, *, host_ip: str, pod_ip: str) -> str:
    """A downward API field of a pod. Raises ContainerConfigError for one that does not exist."""
    metadata, spec = pod["metadata"], pod["spec"]
    plain = {
        "metadata.name": metadata.get("name", ""),
        "metadata.namespace": metadata.get("namespace", ""),
        "metadata.uid": metadata.get("uid", ""),
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.hostIP": host_ip,
        "status.hostIPs": host_ip,
        "status.podIP": pod_ip,
        "status.podIPs": pod_ip,
    }
    if path in plain:
        return str(plain[path])
    match = re.fullmatch(r"metadata\.(labels|annotations)(?:\['([^']+)'\])?", path)
    if match is None:
        raise ContainerConfigError(f"unsupported fieldPath: {path}")
    values: Mapping[str, str] = metadata.get(match.group(1)) or {}
    if match.group(2) is not None:
        return values.get(match.group(2), "")
    return "\n".join(f'{key}="{value}"' for key, value in sorted(values.items()))


def resource_value(
    pod: Mapping[str, Any], container: Mapping[str, Any], reference: Mapping[str, Any], allocatable: Mapping[str, str]
) -> str:
    """A `resourceFieldRef`: the limit or request divided by the divisor, rounded up; the node's where none is set."""
    owner = container
    for other in pod["spec"].get("containers", ()):
        if other["name"] == reference.get("containerName", container["name"]):
            owner = other
    kind, _, resource = reference["resource"].partition(".")
    resources = owner.get("resources") or {}
    written = (resources.get(kind) or {}).get(resource)
    if written is None:
        written = allocatable.get(resource, "0") if kind == "limits" else "0"
    divisor = parse_quantity(reference.get("divisor") or "1") or parse_quantity("1")
    return str(int((parse_quantity(written) / divisor).to_integral_value(rounding="ROUND_CEILING")))


def _from_key(source: Mapping[str, Any], kind: str, lookup: Lookup) -> str | None:
    name, key = source.get("name", ""), source["key"]
    data = lookup(kind, name)
    lowered = kind.lower()
    if data is None:
        if source.get("optional"):
            return None
        raise ContainerConfigError(f'{lowered} "{name}" not found')
    if key not in data:
        if source.get("optional"):
            return None
        raise ContainerConfigError(f"couldn't find key {key} in {kind} {name}")
    return data[key]


def environment(
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    *,
    lookup: Lookup,
    host_ip: str,
    pod_ip: str,
    allocatable: Mapping[str, str],
    base: Mapping[str, str],
) -> dict[str, str]:
    """The environment of a container, `base` (service addresses, PATH) first so that the pod overrides it."""
    values = dict(base)
    for source in container.get("envFrom") or ():
        prefix = source.get("prefix", "")
        for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            reference = source.get(field)
            if reference is None:
                continue
            data = lookup(kind, reference.get("name", ""))
            if data is None:
                if reference.get("optional"):
                    continue
                raise ContainerConfigError(f'{kind.lower()} "{reference.get("name", "")}" not found')
            values.update({prefix + key: value for key, value in data.items()})
    for variable in container.get("env") or ():
        name = variable["name"]
        source = variable.get("valueFrom")
        if source is None:
            values[name] = expand(variable.get("value", ""), values)
            continue
        value: str | None = ""
        if "fieldRef" in source:
            value = field_value(pod, source["fieldRef"]["fieldPath"], host_ip=host_ip, pod_ip=pod_ip)
        elif "resourceFieldRef" in source:
            value = resource_value(pod, container, source["resourceFieldRef"], allocatable)
        elif "secretKeyRef" in source:
            value = _from_key(source["secretKeyRef"], "Secret", lookup)
        elif "configMapKeyRef" in source:
            value = _from_key(source["configMapKeyRef"], "ConfigMap", lookup)
        if value is not None:
            values[name] = value
    return values


def image_argv(container: Mapping[str, Any], image: ImageSpec, env: Mapping[str, str]) -> list[str]:
    """`command` replaces the entrypoint, `args` follow; both are expanded. Names are those of the image."""
    command = [expand(word, env) for word in container.get("command") or ()]
    arguments = [expand(word, env) for word in container.get("args") or ()]
    return [*(command or image.entrypoint), *arguments]


def bind_to_pod(argv: Sequence[str], image: ImageSpec, pod_ip: str) -> list[str]:
    """The argv with the pod IP where the program would listen on every address of the machine."""
    if image.binds_pod_ip:
        return list(argv)
    words = [word.replace(_ANY_ADDRESS, pod_ip) for word in argv]
    if image.listen_flag is not None:
        flag, port = image.listen_flag
        if not any(word == flag or word.startswith(f"{flag}=") for word in words):
            words.append(f"{flag}={pod_ip}:{port}")
    return words


def bind_env_to_pod(env: Mapping[str, str], image: ImageSpec, pod_ip: str) -> dict[str, str]:
    """The environment with the pod IP in place of 0.0.0.0, for programs that do not bind POD_IP_BIND by themselves."""
    if image.binds_pod_ip:
        return dict(env)
    return {name: value.replace(_ANY_ADDRESS, pod_ip) for name, value in env.items()}


def served_model(argv: Sequence[str]) -> str:
    """The model that a `vllm serve MODEL` or `... --model MODEL` command loads; empty when it names none."""
    for index, word in enumerate(argv):
        name, has_value, value = word.partition("=")
        following = argv[index + 1] if index + 1 < len(argv) else ""
        if name == "--model":
            return value if has_value else following
        if word == "serve" and following and not following.startswith("-"):
            return following
    return ""


def host_memory_claim_bytes(argv: Sequence[str], env: Mapping[str, str], default_bytes: int) -> int:
    """Host memory an engine claims: what the plant says one takes, plus `--kv-offloading-size` (GiB, all ranks)."""
    written = env.get("GOODPUT_SIM_HOST_MEMORY_BYTES")
    claim = int(written) if written else default_bytes
    flag = "--kv-offloading-size"
    for index, word in enumerate(argv):
        name, has_value, value = word.replace("_", "-").partition("=")
        if name != flag:
            continue
        number = value if has_value else (argv[index + 1] if index + 1 < len(argv) else "0")
        try:
            claim += int(float(number) * 2**30)
        except ValueError:
            continue  # the engine itself refuses the flag
    return claim
