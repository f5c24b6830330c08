"""From a container of a pod to all that its process is started with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import aiohttp

from goodput_world.agent import command
from goodput_world.agent.container import Launch
from goodput_world.agent.images import ImageSpec
from goodput_world.agent.kubeapi import ApiError
from goodput_world.agent.objects import env_references
from goodput_world.agent.quantity import whole

if TYPE_CHECKING:
    from goodput_world.agent.pod import PodRuntime

_CONTAINER_SHM_BYTES = 64 * 2**20
"""What container runtimes give a container that mounts nothing at /dev/shm."""
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SIM_DIRECTORY = "/run/goodput-sim"
"""Where a container finds what the node offers: its plant, the admission socket, the programs of its image."""


async def prepare(pod: PodRuntime, spec: Mapping[str, Any], image: ImageSpec) -> Launch:
    """Environment, command and mounts of a container. Raises command.ContainerConfigError."""
    agent, namespace = pod.node.agent, pod.pod["metadata"]["namespace"]
    try:
        found = await agent.objects.texts(namespace, env_references(spec))
    except (ApiError, aiohttp.ClientError, TimeoutError) as error:
        raise command.ContainerConfigError(str(error)) from error
    env = command.environment(
        pod.pod,
        spec,
        lookup=lambda kind, name: found[kind, name],
        host_ip=pod.host_ip,
        pod_ip=pod.pod_ip,
        allocatable=pod.node.allocatable,
        base=_base_env(pod, spec, image),
    )
    argv = command.image_argv(spec, image, env)
    claim = None
    if image.engine:
        file_name, plant = agent.plant_for(command.served_model(argv), pod.node.config.gpu_type)
        env["GOODPUT_SIM_PLANT"] = f"{SIM_DIRECTORY}/{file_name}"
        claim = command.host_memory_claim_bytes(argv, env, int(plant.get("host_memory_bytes") or 0))
    env = command.bind_env_to_pod(env, image, pod.pod_ip)
    try:
        argv = image.resolve(command.bind_to_pod(argv, image, pod.pod_ip))
    except ValueError as error:
        raise command.ContainerConfigError(str(error)) from error
    mounts = _mounts(pod, spec)
    if image.engine:
        env.update(engine_surroundings(pod.pod, spec, mounts))
    sandbox = {
        "root": str(pod.directory / f"{spec['name']}.root"),
        "hostname": str(pod.pod["spec"].get("hostname") or pod.pod["metadata"]["name"]),
        "mounts": mounts,
        "host_paths": agent.host_paths,
        "hidden": [str(agent.directory)],
        "workdir": spec.get("workingDir") or "/",
        "read_only_root": bool((spec.get("securityContext") or {}).get("readOnlyRootFilesystem")),
        "argv": argv,
        "env": env,
    }
    return Launch(sandbox, env, claim)


def _base_env(pod: PodRuntime, spec: Mapping[str, Any], image: ImageSpec) -> dict[str, str]:
    agent = pod.node.agent
    env = {
        "PATH": f"{SIM_DIRECTORY}/bin:{agent.bin_directory}:{_SYSTEM_PATH}",
        "HOME": "/",
        "LANG": "C.UTF-8",
        "HOSTNAME": str(pod.pod["metadata"]["name"]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "POD_IP_BIND": pod.pod_ip,
        **agent.inherited_env,
        **agent.services.environment(
            pod.pod["metadata"]["namespace"], links=pod.pod["spec"].get("enableServiceLinks", True)
        ),
    }
    if image.engine:
        gpus = gpu_count(spec, pod.node.config.gpu_resource)
        env.update(
            GOODPUT_SIM_ADMIT=f"{SIM_DIRECTORY}/admit.sock",
            GOODPUT_SIM_GPU=pod.node.config.gpu_type,
            GOODPUT_SIM_GPU_COUNT=str(gpus),
            POD=pod.key,
            GOODPUT_SIM_SPEED=f"{pod.pace.speed:g}",
            NVIDIA_VISIBLE_DEVICES=",".join(str(index) for index in pod.gpu_indices) or "void",
        )
        if agent.startup_seconds is not None:
            env["GOODPUT_SIM_STARTUP_SECONDS"] = f"{agent.startup_seconds:g}"
    return env


def _mounts(pod: PodRuntime, spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    container = next(c for c in (*pod.inits, *pod.containers) if c.view.name == spec["name"])
    container.message_path.touch()
    path = spec.get("terminationMessagePath") or "/dev/termination-log"
    mounts = [
        {"source": str(pod.directory / "hosts"), "path": "/etc/hosts", "read_only": False},
        {"source": str(container.message_path), "path": path, "read_only": False},
        {"source": str(pod.node.agent.offered), "path": SIM_DIRECTORY, "read_only": True},
    ]
    own = pod.volumes.mounts(spec) if pod.volumes is not None else []
    taken = {mount["path"].rstrip("/") for mount in own}
    return [*(mount for mount in mounts if mount["path"] not in taken), *own]


def gpu_count(container: Mapping[str, Any], resource: str) -> int:
    """GPUs that a container asks for."""
    limits = (container.get("resources") or {}).get("limits") or {}
    return whole(limits.get(resource) or 0)


def engine_surroundings(
    pod: Mapping[str, Any], container: Mapping[str, Any], mounts: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """What an engine cannot see for itself, since it runs as the user of this machine.

    GOODPUT_SIM_WRITABLE: the mounts it could write as the user and on the root file system that the pod asks for;
    absent where it could write everywhere. GOODPUT_SIM_SHM_BYTES: the size of its /dev/shm.
    """
    values: dict[str, str] = {}
    own: Mapping[str, Any] = container.get("securityContext") or {}
    shared: Mapping[str, Any] = pod["spec"].get("securityContext") or {}
    read_only = bool(own.get("readOnlyRootFilesystem"))
    if read_only or own.get("runAsNonRoot", shared.get("runAsNonRoot")):
        writable = [str(mount["path"]) for mount in mounts if not mount["read_only"]]
        if not read_only:
            writable.append("/tmp")
        values["GOODPUT_SIM_WRITABLE"] = ":".join(writable)
    size: int | None = _CONTAINER_SHM_BYTES
    for mount in container.get("volumeMounts") or ():
        if mount["mountPath"].rstrip("/") == "/dev/shm":
            volume = next(v for v in pod["spec"]["volumes"] if v["name"] == mount["name"])
            limit = (volume.get("emptyDir") or {}).get("sizeLimit")
            size = None if limit is None else whole(limit)
    if size is not None:
        values["GOODPUT_SIM_SHM_BYTES"] = str(size)
    return values
