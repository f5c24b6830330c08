"""What tests and the demo do with a cluster, whether it is the embedded world or one that KUBECONFIG names."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from goodput_world.errors import WorldError
from goodput_world.kubectl import Kubectl, run_command
from goodput_world.waiting import wait_for

if TYPE_CHECKING:
    import kubernetes

T = TypeVar("T")

REPOSITORY = Path(__file__).resolve().parents[2]
SYSTEM_NAMESPACE = "goodput-system"
RELEASE = "goodput"

Manifest = str | Path | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""YAML text, a file or folder, one object or several."""


class Cluster:
    """A cluster with kubectl and helm at hand."""

    def __init__(self, *, kubectl: Path, helm: Path, kubeconfig: Path, scratch: Path) -> None:
        """`scratch` is a folder for helm's own files and values."""
        self.kubeconfig = kubeconfig
        self.kubectl = Kubectl(kubectl, kubeconfig)
        self.scratch = scratch
        self._helm = helm
        self._api: kubernetes.client.ApiClient | None = None

    @property
    def api(self) -> kubernetes.client.ApiClient:
        """A synchronous client of the `kubernetes` package: `CoreV1Api(world.api)`. In async code use a thread."""
        import kubernetes  # a second and more to import, and few need it

        if self._api is None:
            self._api = kubernetes.config.new_client_from_config(config_file=str(self.kubeconfig))
        return self._api

    async def apply(self, manifest: Manifest, *, namespace: str | None = None) -> str:
        """Server-side apply; returns what kubectl prints. Raises CommandFailed with the API server's words."""
        where = ["-n", namespace] if namespace else []
        if isinstance(manifest, Path):
            return await self.kubectl("apply", "--server-side", "--force-conflicts", *where, "-f", str(manifest))
        return await self.kubectl(
            "apply", "--server-side", "--force-conflicts", *where, "-f", "-", stdin=as_yaml(manifest)
        )

    async def get(self, resource: str, name: str, *, namespace: str | None = None) -> dict[str, Any]:
        """One object. Raises CommandFailed when there is none."""
        where = ["-n", namespace] if namespace else []
        found: dict[str, Any] = json.loads(await self.kubectl("get", resource, name, *where, "-o", "json"))
        return found

    async def list_objects(
        self, resource: str, *, namespace: str | None = None, selector: str | None = None
    ) -> list[dict[str, Any]]:
        """All objects of a kind, of one namespace or of all."""
        where = ["-n", namespace] if namespace else ["-A"]
        chosen = ["-l", selector] if selector else []
        found = json.loads(await self.kubectl("get", resource, *where, *chosen, "-o", "json"))
        items: list[dict[str, Any]] = found["items"]
        return items

    async def wait_for(
        self,
        condition: Callable[[], Awaitable[T | None]],
        *,
        what: str,
        timeout_seconds: float = 60.0,
    ) -> T:
        """The first truthy value of `condition`; see `waiting.wait_for`."""
        return await wait_for(condition, what=what, timeout_seconds=timeout_seconds)

    async def create_namespace(self, name: str, *, pod_security: str = "restricted") -> None:
        """A namespace that enforces a Pod Security level, ready for pods (its ServiceAccount is there)."""
        await self.apply(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": pod_security}},
            }
        )
        await wait_for(
            lambda: self.kubectl("get", "serviceaccount", "default", "-n", name, "--ignore-not-found", "-o", "name"),
            what=f"default ServiceAccount of namespace {name}",
        )

    async def service_url(self, namespace: str, name: str, port: int | str | None = None) -> str:
        """`http://address:port` under which this machine reaches a Service; `port` is a number or name, else the first.

        Raises WorldError when the Service has no such port.
        """
        spec = (await self.get("service", name, namespace=namespace))["spec"]
        ports = [entry for entry in spec["ports"] if port is None or port in {entry["port"], entry.get("name")}]
        if not ports:
            raise WorldError(f"Service {namespace}/{name} has no port {port}: it has {spec['ports']}")
        return await self._reach(namespace, name, spec["clusterIP"], int(ports[0]["port"]))

    async def _reach(self, namespace: str, name: str, address: str, port: int) -> str:
        return f"http://{address}:{port}"

    async def install_crds(self) -> None:
        """Apply the CRDs of the repository and wait until the API server serves them."""
        folder = REPOSITORY / "crds"
        if not any(folder.glob("*.yaml")):
            raise WorldError(f"no CRDs in {folder}: run `make generate`")
        await self.apply(folder)
        await self.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(folder))

    async def install_chart(self, values: Mapping[str, Any], *, timeout_seconds: float = 180.0) -> None:
        """Install or upgrade charts/goodput as release `goodput` in `goodput-system`, and wait until it is ready."""
        file = self.scratch / "chart-values.yaml"
        file.write_text(yaml.safe_dump(dict(values)))
        await self.helm(
            *("upgrade", "--install", RELEASE, str(REPOSITORY / "charts" / "goodput")),
            *("--namespace", SYSTEM_NAMESPACE, "--create-namespace", "--skip-crds", "--values", str(file)),
            *("--wait", "--timeout", f"{timeout_seconds:.0f}s"),
            timeout_seconds=timeout_seconds + 30,
        )

    async def uninstall_chart(self) -> None:
        """`helm uninstall`, as a user would."""
        await self.helm("uninstall", RELEASE, "--namespace", SYSTEM_NAMESPACE, "--wait")

    async def helm(self, *arguments: str, timeout_seconds: float = 180.0) -> str:
        """Run helm; its own files stay in the scratch folder. Raises CommandFailed with helm's words."""
        return await run_command(
            [str(self._helm), *arguments],
            environment={
                **os.environ,
                "KUBECONFIG": str(self.kubeconfig),
                **{
                    f"HELM_{kind}_HOME": str(self.scratch / f"helm-{kind.lower()}")
                    for kind in ("CACHE", "CONFIG", "DATA")
                },
            },
            timeout_seconds=timeout_seconds,
        )

    async def operator_logs(self) -> str:
        """What the operator's pods have logged so far."""
        return await self.kubectl(
            *("logs", "-n", SYSTEM_NAMESPACE, "-l", "app.kubernetes.io/name=goodput"),
            *("--tail=-1", "--prefix", "--all-containers"),
        )

    async def close(self) -> None:
        """Let go of the client."""
        if self._api is not None:
            await asyncio.to_thread(self._api.close)
            self._api = None


def as_yaml(manifest: str | Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    """YAML text of one object or several; text is passed through."""
    if isinstance(manifest, str):
        return manifest
    if isinstance(manifest, Mapping):
        return yaml.safe_dump(dict(manifest), sort_keys=False)
    return yaml.safe_dump_all([dict(document) for document in manifest], sort_keys=False)


def tool(name: str) -> Path:
    """A program on PATH. Raises WorldError when it is not there."""
    found = shutil.which(name)
    if found is None:
        raise WorldError(f"`{name}` is not on PATH: an existing cluster is used with your own {name}")
    return Path(found)
