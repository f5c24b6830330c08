"""kube-proxy and cluster DNS: listens on every ClusterIP and port, and knows every Service by name.

A connection goes to a Ready, not terminating pod chosen by the Service's selector, over its (named) target port.
Connections that exist are left alone when a pod starts to terminate.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from goodput_world.agent.splice import CHUNK_BYTES, Downstream, Side

log = logging.getLogger(__name__)

_BACKLOG = 1024
UNPRIVILEGED_OFFSET = 30_000
"""A Service port below 1024 that may not be bound is listened on so much higher: 80 on 30080."""
_CLUSTER_DOMAIN = "svc.cluster.local"

PodsOf = Callable[[str], Iterable[Mapping[str, Any]]]
"""namespace -> its pods as the API server has them."""
Admit = Callable[[tuple[str, int], tuple[str, int], Mapping[str, Any], int], "Admission"]
"""(client's end, our end, destination pod, port) -> may it connect, and from which address."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The answer of the network policies to one connection; `source_ip` is what the pod shall see as its peer."""

    allowed: bool
    source_ip: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Backend:
    """A pod behind a Service port."""

    pod: Mapping[str, Any]
    ip: str
    port: int


def pod_ports(pod: Mapping[str, Any]) -> dict[str, int]:
    """The named ports of all containers of a pod."""
    return {
        port["name"]: port["containerPort"]
        for container in pod["spec"]["containers"]
        for port in container.get("ports") or ()
        if port.get("name")
    }


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether a pod may get new connections: Ready and not being deleted."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions: Sequence[Mapping[str, Any]] = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def backends(service: Mapping[str, Any], port: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> list[Backend]:
    """The pods that serve a Service port now, by name. A pod without the named target port is left out."""
    selector: Mapping[str, str] = service["spec"].get("selector") or {}
    if not selector:
        return []
    target = port.get("targetPort", port["port"])
    found = []
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        if any(labels.get(key) != value for key, value in selector.items()):
            continue
        if not is_ready(pod) and not service["spec"].get("publishNotReadyAddresses"):
            continue
        ip = (pod.get("status") or {}).get("podIP")
        number = pod_ports(pod).get(target) if isinstance(target, str) else target
        if ip and number:
            found.append(Backend(pod, ip, number))
    return sorted(found, key=lambda backend: str(backend.pod["metadata"]["name"]))


@dataclass(slots=True)
class _Listener:
    server: asyncio.Server
    turn: int = 0


@dataclass(slots=True)
class ServiceProxy:
    """All Services of the cluster. `api_address` is where `kubernetes.default` leads."""

    pods_of: PodsOf
    admit: Admit
    api_address: tuple[str, int]
    connected: Callable[[tuple[str, int]], None] = lambda _: None
    disconnected: Callable[[tuple[str, int]], None] = lambda _: None
    services: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    unbound: dict[tuple[str, int], str] = field(default_factory=dict)
    _listeners: dict[tuple[str, int], _Listener] = field(default_factory=dict)
    _ports: dict[tuple[str, int], tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    _cache: dict[tuple[str, int], list[Backend]] = field(default_factory=dict)
    _dialling: set[asyncio.Task[None]] = field(default_factory=set)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(CHUNK_BYTES)))

    # --- what is known -----------------------------------------------------------------------------------------------

    def set_services(self, services: Mapping[str, Mapping[str, Any]]) -> None:
        """Take all Services, by NAMESPACE/NAME. `listen` then opens and closes ports."""
        self.services = dict(services)
        self._ports = {
            (service["spec"]["clusterIP"], int(port["port"])): (key, port)
            for key, service in self.services.items()
            if service["spec"].get("clusterIP") not in {None, "", "None"}
            for port in service["spec"].get("ports") or ()
            if port.get("protocol", "TCP") == "TCP"
        }
        self._cache.clear()

    def pods_changed(self) -> None:
        """Pods were added, removed or changed: choose anew from now on."""
        self._cache.clear()

    def backends_of(self, address: tuple[str, int]) -> list[Backend]:
        """The pods behind a ClusterIP and port, as of now."""
        cached = self._cache.get(address)
        if cached is None:
            key, port = self._ports[address]
            service = self.services[key]
            cached = backends(service, port, self.pods_of(service["metadata"]["namespace"]))
            self._cache[address] = cached
        return cached

    def host_lines(self, namespace: str) -> list[str]:
        """Lines of /etc/hosts that resolve every Service, by its short name within the namespace."""
        lines: list[str] = []
        for key in sorted(self.services):
            service = self.services[key]
            name, home = service["metadata"]["name"], service["metadata"]["namespace"]
            names = f"{name}.{home} {name}.{home}.svc {name}.{home}.{_CLUSTER_DOMAIN}"
            if home == namespace:
                names = f"{name} {names}"
            lines.extend(f"{ip}\t{names}" for ip in self._resolved(service))
        return lines

    def _resolved(self, service: Mapping[str, Any]) -> list[str]:
        ip = service["spec"].get("clusterIP")
        if ip and ip != "None":
            return [str(ip)]
        ports = service["spec"].get("ports") or [{"port": 1}]
        pods = list(self.pods_of(service["metadata"]["namespace"]))
        return sorted({backend.ip for backend in backends(service, ports[0], pods)})

    @property
    def has_headless(self) -> bool:
        """Whether names may change with the pods."""
        return any(service["spec"].get("clusterIP") == "None" for service in self.services.values())

    def environment(self, namespace: str, *, links: bool) -> dict[str, str]:
        """The Service variables of a pod: where the API server is, and with `links` every Service beside it."""
        values: dict[str, str] = {}
        for key, service in sorted(self.services.items()):
            ip, ports = service["spec"].get("clusterIP"), service["spec"].get("ports") or ()
            home, name = key.split("/")
            is_api = key == "default/kubernetes"
            if not ip or ip == "None" or not ports or not (is_api or (links and home == namespace)):
                continue
            address = (str(ip), int(ports[0]["port"]))
            if is_api and address in self.unbound:
                address = self.api_address  # the port is privileged here: go to the API server itself
            prefix = name.upper().replace("-", "_")
            host, port = address
            values[f"{prefix}_SERVICE_HOST"] = host
            values[f"{prefix}_SERVICE_PORT"] = values[f"{prefix}_PORT_{port}_TCP_PORT"] = str(port)
            values[f"{prefix}_PORT"] = values[f"{prefix}_PORT_{port}_TCP"] = f"tcp://{host}:{port}"
            values[f"{prefix}_PORT_{port}_TCP_ADDR"] = host
            values[f"{prefix}_PORT_{port}_TCP_PROTO"] = "tcp"
            for named in ports:
                if named.get("name"):
                    values[f"{prefix}_SERVICE_PORT_{named['name'].upper().replace('-', '_')}"] = str(named["port"])
        return values

    # --- ports -------------------------------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Open the ports of new Services, close those of removed ones."""
        async with self._lock:
            for address in [address for address in self._listeners if address not in self._ports]:
                self._listeners.pop(address).server.close()
            for address in [address for address in self.unbound if address not in self._ports]:
                del self.unbound[address]
            for address in self._ports:
                if address in self._listeners or address in self.unbound:
                    continue
                await self._open(address)

    async def _open(self, address: tuple[str, int]) -> None:
        loop = asyncio.get_running_loop()

        async def dial(peer: tuple[str, int], client: Downstream) -> None:
            await self._dial(address, peer, client)

        async def bind(port: int) -> asyncio.Server:
            return await loop.create_server(
                lambda: Downstream(dial, self._dialling, self._buffer),
                address[0],
                port,
                backlog=_BACKLOG,
                reuse_address=True,
            )

        try:
            server = await bind(address[1])
        except OSError as error:
            self.unbound[address] = str(error)
            service = self._ports[address][0]
            if error.errno not in {errno.EACCES, errno.EPERM}:
                log.error("cannot listen on %s:%d for Service %s: %s", *address, service, error)
                return
            server = await bind(UNPRIVILEGED_OFFSET + address[1])
            log.error(
                "Service %s: port %d is privileged, %s:%d stands in for it; names with the true port do not work. "
                "Run as root, or set sysctl net.ipv4.ip_unprivileged_port_start=0",
                *(service, address[1], address[0], UNPRIVILEGED_OFFSET + address[1]),
            )
        self._listeners[address] = _Listener(server)

    async def _dial(self, address: tuple[str, int], peer: tuple[str, int], client: Downstream) -> None:
        """Connect a client of a Service port to one of its pods, or refuse it."""
        if address not in self._ports:
            return client.refuse()
        if self._ports[address][0] == "default/kubernetes":
            return client.join(await self._connect(self.api_address, "127.0.0.1"))
        chosen = self.backends_of(address)
        listener = self._listeners.get(address)
        if not chosen or listener is None:
            return client.refuse()
        listener.turn += 1
        backend = chosen[listener.turn % len(chosen)]
        admission = self.admit(peer, address, backend.pod, backend.port)
        if not admission.allowed:
            return client.refuse()
        client.join(await self._connect((backend.ip, backend.port), admission.source_ip))
        return None

    async def _connect(self, target: tuple[str, int], source_ip: str) -> Side:
        loop = asyncio.get_running_loop()
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.bind((source_ip, 0))
            own: tuple[str, int] = sock.getsockname()
            self.connected(own)  # before the pod can ask who that is
            try:
                await loop.sock_connect(sock, target)
                _, side = await loop.create_connection(
                    lambda: _Upstream(own, self.disconnected, self._buffer), sock=sock
                )
            except OSError:
                self.disconnected(own)
                raise
        except BaseException:
            sock.close()
            raise
        return side

    def close(self) -> None:
        """Stop listening; open connections end with the process."""
        for listener in self._listeners.values():
            with contextlib.suppress(OSError):
                listener.server.close()
        self._listeners.clear()


class _Upstream(Side):
    """The pod's side; tells when its port is free again."""

    def __init__(
        self, own: tuple[str, int], disconnected: Callable[[tuple[str, int]], None], buffer: memoryview
    ) -> None:
        super().__init__(buffer)
        self._own = own
        self._disconnected = disconnected

    def connection_lost(self, exc: Exception | None) -> None:
        self._disconnected(self._own)
        super().connection_lost(exc)
