"""Probe and hook actions: HTTP, TCP and exec against one container of a pod."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goodput_world.agent import process as processes

_MAX_ANSWER_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Target:
    """Whom a probe addresses. `source_ip` is the node's address, so that the engine knows a node-local caller."""

    process: processes.ContainerProcess
    env: Mapping[str, str]
    ports: Mapping[str, int]
    pod_ip: str
    source_ip: str
    directory: Path


def port_number(port: int | str, ports: Mapping[str, int]) -> int:
    """A port of a probe or Service: a number, or the name of a container port. ValueError for an unknown name."""
    if isinstance(port, int):
        return port
    if port.isdigit():
        return int(port)
    if port not in ports:
        raise ValueError(f"the container has no port named {port!r}")
    return ports[port]


async def act(action: Mapping[str, Any], target: Target, timeout_seconds: float) -> tuple[bool, str]:
    """Carry out the action of a probe or hook once: (success, what went wrong). Never raises."""
    try:
        async with asyncio.timeout(timeout_seconds):
            if "exec" in action:
                return await _exec(action["exec"], target, timeout_seconds)
            if "httpGet" in action:
                return await _http_get(action["httpGet"], target)
            if "tcpSocket" in action:
                port = port_number(action["tcpSocket"]["port"], target.ports)
                host = action["tcpSocket"].get("host") or target.pod_ip
                _, writer = await asyncio.open_connection(host, port, local_addr=(target.source_ip, 0))
                writer.close()
                return True, ""
            if "sleep" in action:
                await asyncio.sleep(float(action["sleep"].get("seconds") or 0))
                return True, ""
            return False, f"unsupported action: {', '.join(action)}"
    except TimeoutError:
        return False, f"timed out after {timeout_seconds:g} s"
    except (OSError, ValueError, asyncio.IncompleteReadError) as error:
        return False, str(error)


async def _exec(action: Mapping[str, Any], target: Target, timeout_seconds: float) -> tuple[bool, str]:
    code, output = await processes.run_inside(
        target.process, action.get("command") or (), target.env, target.directory, timeout_seconds
    )
    return code == 0, "" if code == 0 else f"exit status {code}: {output[-500:].strip()}"


async def _http_get(action: Mapping[str, Any], target: Target) -> tuple[bool, str]:
    port = port_number(action["port"], target.ports)
    host = action.get("host") or target.pod_ip
    context: ssl.SSLContext | None = None
    if action.get("scheme") == "HTTPS":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    headers = {"Host": f"{host}:{port}", "User-Agent": "kube-probe/1.36", "Accept": "*/*", "Connection": "close"}
    for header in action.get("httpHeaders") or ():
        headers[header["name"]] = header["value"]
    path = action.get("path") or "/"
    lines = [f"GET {path if path.startswith('/') else '/' + path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    reader, writer = await asyncio.open_connection(host, port, ssl=context, local_addr=(target.source_ip, 0))
    try:
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = (await reader.readline()).decode(errors="replace").split(" ", 2)
        if len(head) < 2 or not head[1].isdigit():
            return False, f"no HTTP answer: {' '.join(head)!r}"
        status = int(head[1])
        await reader.read(_MAX_ANSWER_BYTES)
        return 200 <= status < 400, "" if 200 <= status < 400 else f"HTTP probe failed with statuscode: {status}"
    finally:
        writer.close()
