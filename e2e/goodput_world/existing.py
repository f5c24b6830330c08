"""A cluster that somebody else runs (kind, a GPU cluster): named by KUBECONFIG, without simulated nodes."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from types import TracebackType

from goodput_world.cluster import Cluster, tool
from goodput_world.errors import WorldError
from goodput_world.processes import Process
from goodput_world.waiting import wait_for


class ExistingCluster(Cluster):
    """`async with ExistingCluster() as cluster`: the same helpers; Services are reached through port-forwards."""

    def __init__(self, *, helm: Path | None = None) -> None:
        """Raises WorldError when KUBECONFIG is unset, names no file, or kubectl is missing."""
        path = os.environ.get("KUBECONFIG", "")
        if not path or not Path(path).is_file():
            raise WorldError(f"KUBECONFIG={path or '(unset)'} names no file: an existing cluster is named by it")
        self._scratch = tempfile.TemporaryDirectory(prefix="goodput-cluster-")
        super().__init__(
            kubectl=tool("kubectl"),
            helm=helm or tool("helm"),
            kubeconfig=Path(path),
            scratch=Path(self._scratch.name),
        )
        self._forwards: dict[tuple[str, str, int], tuple[Process, str]] = {}

    async def __aenter__(self) -> ExistingCluster:
        """Check that the cluster answers."""
        await self.kubectl("version")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the port-forwards; what was installed stays the caller's to remove."""
        for process, _ in self._forwards.values():
            await process.stop(grace_seconds=2.0)
        await self.close()
        self._scratch.cleanup()

    async def _reach(self, namespace: str, name: str, address: str, port: int) -> str:
        key = (namespace, name, port)
        if key in self._forwards and self._forwards[key][0].running:
            return self._forwards[key][1]
        process = Process(
            f"port-forward to {namespace}/{name}",
            [self.kubectl.program, "port-forward", "-n", namespace, f"service/{name}", f":{port}"],
            log_path=self.scratch / f"port-forward-{namespace}-{name}-{port}.log",
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
        )
        process.start()

        async def local_port() -> str | None:
            process.raise_if_exited()
            found = re.findall(r"127\.0\.0\.1:(\d+) ->", process.tail())
            return found[-1] if found else None

        url = f"http://127.0.0.1:{await wait_for(local_port, what=process.name)}"
        self._forwards[key] = (process, url)
        return url
