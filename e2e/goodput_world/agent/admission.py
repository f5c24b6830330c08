"""Network policies applied: to the Service dialler's last hop, and to pods that ask about a connection they accepted.

A pod asks over a Unix socket, one JSON line a question: {"peer": ["127.0.0.1", 40312], "pod": "ns/name", "port": 8000}
is answered {"allow": true, "policy": "ns/policy-or-empty"}.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from goodput_world.agent import sockets
from goodput_world.agent.networkpolicy import Endpoint, Verdict, decide, open_to_all
from goodput_world.agent.services import Admission, pod_ports

log = logging.getLogger(__name__)

Address = tuple[str, int]


class PolicyGate:
    """Answers whether a connection may be made, by the policies, pods and namespaces of the moment."""

    def __init__(
        self,
        *,
        policies: Callable[[], Iterable[Mapping[str, Any]]],
        pod: Callable[[str], Mapping[str, Any] | None],
        pod_by_ip: Callable[[str], Mapping[str, Any] | None],
        namespace_labels: Callable[[str], Mapping[str, str]],
        processes: Callable[[], sockets.Owners],
        node_ips: frozenset[str],
    ) -> None:
        """`pod` finds one by NAMESPACE/NAME; `processes` gives those of the pods that run."""
        self._policies = policies
        self._pod = pod
        self._pod_by_ip = pod_by_ip
        self._namespace_labels = namespace_labels
        self._processes = processes
        self._node_ips = node_ips
        self._admitted: set[Address] = set()
        self._search = sockets.HolderSearch()

    def connected(self, own: Address) -> None:
        """The dialler is about to connect from this address; it has asked already."""
        self._admitted.add(own)

    def disconnected(self, own: Address) -> None:
        """That connection has ended."""
        self._admitted.discard(own)

    def dial(self, peer: Address, ours: Address, destination: Mapping[str, Any], port: int) -> Admission:
        """May the client of a Service connect to the pod behind it?"""
        policies = list(self._policies())
        if not policies or open_to_all(policies, self._endpoint(destination), port):
            return Admission(True)
        source = self._source(peer, ours)
        verdict = decide(policies, source, self._endpoint(destination), port)
        if not verdict.allowed:
            log.info("refused: %s to %s:%d by %s", source.name or peer, _name(destination), port, verdict.policy)
        return Admission(verdict.allowed, source.ip if source.namespace is not None else "127.0.0.1")

    def ask(self, peer: Address, pod_key: str, port: int) -> Verdict:
        """May this peer, which has connected to `port` of a pod, stay?"""
        if peer in self._admitted or peer[0] in self._node_ips:
            return Verdict(True, "")
        policies = list(self._policies())
        destination = self._pod(pod_key)
        if not policies or destination is None:
            return Verdict(True, "")
        if open_to_all(policies, self._endpoint(destination), port):
            return Verdict(True, "")
        source = self._source(peer, ((destination.get("status") or {}).get("podIP") or "127.0.0.1", port))
        verdict = decide(policies, source, self._endpoint(destination), port)
        if not verdict.allowed:
            log.info("refused: %s to %s:%d by %s", source.name or peer, pod_key, port, verdict.policy)
        return verdict

    def _source(self, peer: Address, ours: Address) -> Endpoint:
        known = self._pod_by_ip(peer[0])
        if known is None:
            # None: the peer has closed its end already (clients drop connections they no longer need).
            inode = sockets.inode_of(peer, ours)
            key = self._search.find(inode, self._processes()) if inode else None
            known = self._pod(key) if key else None
        if known is None:
            return Endpoint(None, ip=peer[0])
        return self._endpoint(known)

    def _endpoint(self, pod: Mapping[str, Any]) -> Endpoint:
        metadata = pod["metadata"]
        return Endpoint(
            namespace=metadata["namespace"],
            labels=metadata.get("labels") or {},
            namespace_labels=self._namespace_labels(metadata["namespace"]),
            ip=(pod.get("status") or {}).get("podIP") or "",
            ports=pod_ports(pod),
            name=_name(pod),
        )

    async def serve(self, directory: Path) -> asyncio.Server:
        """Answer questions on `directory`/admit.sock."""
        (directory / "admit.sock").unlink(missing_ok=True)
        descriptor = os.open(directory, os.O_RDONLY)
        try:  # a socket path may have 107 bytes at most, the directory may lie deeper
            return await asyncio.start_unix_server(self._answer, f"/proc/self/fd/{descriptor}/admit.sock")
        finally:
            os.close(descriptor)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                try:
                    question = orjson.loads(line)
                    host, port = question["peer"][:2]
                    verdict = self.ask((str(host), int(port)), str(question["pod"]), int(question["port"]))
                    answer = {"allow": verdict.allowed, "policy": verdict.policy}
                except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
                    answer = {"allow": False, "error": f"bad question: {error}"}
                writer.write(orjson.dumps(answer) + b"\n")
                await writer.drain()
        except (ConnectionError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()


def _name(pod: Mapping[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
