"""Warning events about pods, each kind once a minute at most: people read them, the API server stores them."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from typing import Any

import aiohttp

from goodput_world.agent.kubeapi import Api, ApiError
from goodput_world.agent.status import timestamp

log = logging.getLogger(__name__)

_QUIET_SECONDS = 60.0


class EventRecorder:
    """Posts Warnings in the background; an event that cannot be posted is dropped."""

    def __init__(self, api: Api) -> None:
        """Nothing is posted before the first `warn`."""
        self._api = api
        self._last: dict[tuple[str, str, str], float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def warn(self, pod: Mapping[str, Any], reason: str, message: str, container: str = "") -> None:
        """Post one Warning unless the same kind was posted for this container within the last minute."""
        metadata = pod["metadata"]
        log.info("pod %s/%s %s: %s: %s", metadata["namespace"], metadata["name"], container, reason, message)
        key = (metadata["uid"], reason, container)
        now = time.monotonic()
        if now - self._last.get(key, -_QUIET_SECONDS) < _QUIET_SECONDS:
            return
        self._last[key] = now
        task = asyncio.get_running_loop().create_task(self._post(pod, reason, message, container))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _post(self, pod: Mapping[str, Any], reason: str, message: str, container: str) -> None:
        metadata = pod["metadata"]
        involved = {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        if container:
            involved["fieldPath"] = f"spec.containers{{{container}}}"
        now = timestamp()
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": metadata["namespace"], "name": f"{metadata['name']}.{os.urandom(6).hex()}"},
            "involvedObject": involved,
            "type": "Warning",
            "reason": reason,
            "message": message[:1000],
            "source": {"component": "kubelet", "host": pod["spec"].get("nodeName", "")},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._api.request("POST", f"/api/v1/namespaces/{metadata['namespace']}/events", body, attempts=1)
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            log.info("event dropped: %s", error)
