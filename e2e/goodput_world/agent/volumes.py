"""The volumes of one pod as directories on this machine, filled as a kubelet fills them and kept up to date."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from goodput_world.agent import sandbox
from goodput_world.agent.command import ContainerConfigError, field_value, resource_value
from goodput_world.agent.kubeapi import Api, ApiError
from goodput_world.agent.objects import ObjectSource
from goodput_world.agent.quantity import whole

_TOKEN_REFRESH_SHARE = 0.8
"""A token is renewed when this share of its life is over, as a kubelet does."""


class MountError(Exception):
    """A volume cannot be set up now; the pod waits in ContainerCreating and it is tried again."""


class PodVolumes:
    """All volumes of one pod below one directory."""

    def __init__(
        self,
        pod: Mapping[str, Any],
        directory: Path,
        *,
        api: Api,
        objects: ObjectSource,
        claims: Path,
        host_ip: str,
        pod_ip: str,
        allocatable: Mapping[str, str],
    ) -> None:
        """`claims` is where the directories of PersistentVolumeClaims live, shared by all pods."""
        self._pod = pod
        self._directory = directory
        self._api = api
        self._objects = objects
        self._claims = claims
        self._host_ip = host_ip
        self._pod_ip = pod_ip
        self._allocatable = allocatable
        self._specs: dict[str, Mapping[str, Any]] = {
            volume["name"]: volume for volume in pod["spec"].get("volumes", ())
        }
        self._paths: dict[str, Path] = {}
        self._mounted: list[Path] = []
        self._token_due: dict[Path, float] = {}

    @property
    def _namespace(self) -> str:
        return str(self._pod["metadata"]["namespace"])

    async def set_up(self) -> None:
        """Make every volume. Raises MountError for what is missing; calling it again goes on where it stopped."""
        for name, spec in self._specs.items():
            if name not in self._paths:
                self._paths[name] = await self._make(name, spec)

    async def refresh(self) -> None:
        """Bring ConfigMaps, Secrets, tokens and downward API files up to date; what is gone stays as it was."""
        for name, spec in self._specs.items():
            if name in self._paths and _is_filled(spec):
                with contextlib.suppress(MountError, ApiError, aiohttp.ClientError, TimeoutError):
                    await self._fill(self._paths[name], spec)

    def tear_down(self) -> None:
        """Unmount what was mounted."""
        for path in reversed(self._mounted):
            with contextlib.suppress(OSError):
                sandbox.unmount(str(path))
        self._mounted.clear()

    def mounts(self, container: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The mounts of a container for the sandbox. ContainerConfigError for a subPath that leaves its volume."""
        found = []
        for mount in container.get("volumeMounts") or ():
            source = self._paths[mount["name"]]
            sub = mount.get("subPath") or ""
            if sub:
                if ".." in Path(sub).parts or os.path.isabs(sub):
                    raise ContainerConfigError(f"subPath {sub!r} must be relative and must not contain '..'")
                source = source / sub
                if not source.exists():
                    source.mkdir(parents=True)
            spec = self._specs[mount["name"]]
            read_only = bool(mount.get("readOnly")) or _is_filled(spec)
            found.append({"source": str(source), "path": mount["mountPath"], "read_only": read_only})
        return found

    async def _make(self, name: str, spec: Mapping[str, Any]) -> Path:
        path = self._directory / name
        if "emptyDir" in spec:
            path.mkdir(parents=True, exist_ok=True)
            empty = spec["emptyDir"] or {}
            if empty.get("medium") == "Memory":
                limit = empty.get("sizeLimit")
                sandbox.tmpfs(str(path), None if limit is None else whole(limit))
                self._mounted.append(path)
            else:
                path.chmod(0o777)
        elif "persistentVolumeClaim" in spec:
            claim = spec["persistentVolumeClaim"]["claimName"]
            found = await self._api.get_or_none(f"/api/v1/namespaces/{self._namespace}/persistentvolumeclaims/{claim}")
            if found is None:
                raise MountError(f'persistentvolumeclaim "{claim}" not found')
            path = self._claims / self._namespace / claim
            path.mkdir(parents=True, exist_ok=True)
        elif "hostPath" in spec:
            path = Path(spec["hostPath"]["path"])
            if spec["hostPath"].get("type") == "DirectoryOrCreate":
                path.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                raise MountError(f"hostPath {path} does not exist")
        elif _is_filled(spec):
            path.mkdir(parents=True, exist_ok=True)
            await self._fill(path, spec)
        else:
            kind = next((key for key in spec if key != "name"), "nothing")
            raise MountError(f'volume "{name}": the simulated nodes have no {kind} volumes')
        return path

    async def _fill(self, path: Path, spec: Mapping[str, Any]) -> None:
        files: dict[str, bytes] = {}
        if "projected" in spec:
            for source in spec["projected"].get("sources") or ():
                files.update(await self._source_files(path, source))
        else:
            files = await self._source_files(path, spec)
        wanted = {path / name for name in files}
        for file, data in ((path / name, data) for name, data in files.items()):
            _write_if_changed(file, data)
        for file in _files_below(path):
            if file not in wanted:
                file.unlink()

    async def _source_files(self, path: Path, source: Mapping[str, Any]) -> dict[str, bytes]:
        if "configMap" in source:
            return await self._object_files("ConfigMap", source["configMap"])
        if "secret" in source:
            return await self._object_files("Secret", source["secret"])
        if "downwardAPI" in source:
            return {item["path"]: self._downward(item).encode() for item in source["downwardAPI"].get("items") or ()}
        if "serviceAccountToken" in source:
            projection = source["serviceAccountToken"]
            return {projection["path"]: await self._token(path / projection["path"], projection)}
        raise MountError(f"the simulated nodes cannot project {', '.join(source)}")

    async def _object_files(self, kind: str, source: Mapping[str, Any]) -> dict[str, bytes]:
        name = source.get("secretName") or source.get("name") or ""
        data = await self._objects.data(kind, self._namespace, name)
        if data is None:
            if source.get("optional"):
                return {}
            raise MountError(f'{kind.lower()} "{name}" not found')
        items = source.get("items")
        if items is None:
            return data
        missing = [item["key"] for item in items if item["key"] not in data]
        if missing and not source.get("optional"):
            raise MountError(f'{kind.lower()} "{name}" has no key {missing[0]!r}')
        return {item["path"]: data[item["key"]] for item in items if item["key"] in data}

    def _downward(self, item: Mapping[str, Any]) -> str:
        if "fieldRef" in item:
            path = item["fieldRef"]["fieldPath"]
            return field_value(self._pod, path, host_ip=self._host_ip, pod_ip=self._pod_ip)
        containers = self._pod["spec"]["containers"]
        reference = item["resourceFieldRef"]
        owner = next((c for c in containers if c["name"] == reference.get("containerName")), containers[0])
        return resource_value(self._pod, owner, reference, self._allocatable)

    async def _token(self, path: Path, projection: Mapping[str, Any]) -> bytes:
        if path.exists() and time.time() < self._token_due.get(path, 0):
            return path.read_bytes()
        metadata = self._pod["metadata"]
        account = self._pod["spec"].get("serviceAccountName") or "default"
        spec: dict[str, Any] = {
            "expirationSeconds": projection.get("expirationSeconds") or 3600,
            "boundObjectRef": {
                "kind": "Pod",
                "apiVersion": "v1",
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
        }
        if projection.get("audience"):
            spec["audiences"] = [projection["audience"]]
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        try:
            answer = await self._api.post(
                f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token", request
            )
        except ApiError as error:
            raise MountError(f'failed to fetch token of service account "{account}": {error}') from error
        self._token_due[path] = time.time() + _TOKEN_REFRESH_SHARE * float(spec["expirationSeconds"])
        return str(answer["status"]["token"]).encode()

    def update(self, pod: Mapping[str, Any]) -> None:
        """Take a newer version of the pod: its labels and annotations may be in downward API files."""
        self._pod = pod


def _is_filled(spec: Mapping[str, Any]) -> bool:
    return any(kind in spec for kind in ("configMap", "secret", "projected", "downwardAPI"))


def _files_below(path: Path) -> Iterable[Path]:
    return [file for file in path.rglob("*") if file.is_file() and not file.name.startswith("..new-")]


def _write_if_changed(file: Path, data: bytes) -> None:
    """Write by rename: a reader sees the old file or the new one."""
    with contextlib.suppress(OSError):
        if file.read_bytes() == data:
            return
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f"..new-{file.name}")
    fresh.write_bytes(data)
    fresh.chmod(0o644)
    fresh.replace(file)
