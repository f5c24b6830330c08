"""Leadership by a Lease: one operator writes at a time.

As client-go does it: a Lease is expired when *we* have not seen it change for its duration, so clocks need not agree. A
leader that cannot renew for `RENEW_DEADLINE_SECONDS` stops being one before another can take over.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from goodput.adapters.kinds import LEASES
from goodput.adapters.kube import KubeApi
from goodput.adapters.kube_errors import Conflict, KubeError, NotFound
from goodput.adapters.objects import Object

log = logging.getLogger(__name__)

LEASE_SECONDS = 15
RENEW_DEADLINE_SECONDS = 10.0
RETRY_SECONDS = 2.0
RELEASE_SECONDS = 5.0


class Lease:
    """Acquires and renews; `leading` says whether writes are allowed right now."""

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        name: str,
        identity: str,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._renewed_at = float("-inf")
        # Number of the present leadership: another may have led between two that nobody here saw end.
        self.term = 0
        self._seen: tuple[str, float] = ("", float("-inf"))
        self._object: Object | None = None
        # Since a write of ours that made us the holder, or may have: it may get through although nobody waits for it.
        self._perhaps_ours = False

    @property
    def leading(self) -> bool:
        return self._monotonic() - self._renewed_at < RENEW_DEADLINE_SECONDS

    async def run(self) -> None:
        """Try to acquire, then renew, until cancelled."""
        while True:
            led = self.leading
            try:
                await self._try()
            except KubeError as error:
                log.warning("lease %s/%s: %s", self._namespace, self._name, error)
            if self.leading != led:
                log.info("%s the lease %s/%s", "acquired" if self.leading else "lost", self._namespace, self._name)
            await asyncio.sleep(RETRY_SECONDS)

    async def release(self) -> None:
        """Give the Lease up, so that a successor need not wait for it to expire."""
        if not self._perhaps_ours:
            return
        self._renewed_at = float("-inf")
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._give_up()
        except (KubeError, TimeoutError) as error:
            log.warning("cannot release the lease: %s", error or "no answer in time")

    async def _give_up(self) -> None:
        try:
            if self._object is not None:
                await self._api.replace(LEASES, self._lease(self._object, holder="", seconds=1))
                return
        except Conflict:
            # A renewal that was cut off got through, or somebody else has the Lease by now.
            pass
        found = await self._read()
        if (found.get("spec") or {}).get("holderIdentity") == self._identity:
            await self._api.replace(LEASES, self._lease(found, holder="", seconds=1))

    async def _try(self) -> None:
        started = self._monotonic()
        try:
            found = self._object if self.leading and self._object is not None else await self._read()
            spec = found.get("spec") or {}
            holder = spec.get("holderIdentity") or ""
            if holder not in ("", self._identity) and not self._expired(found, spec):
                self._renewed_at = float("-inf")
                self._perhaps_ours = False
                return
            self._perhaps_ours = True
            self._object = await self._api.replace(LEASES, self._lease(found, self._identity, LEASE_SECONDS))
        except NotFound:
            self._object, self._perhaps_ours = None, True
            self._object = await self._api.create(LEASES, self._lease(None, self._identity, LEASE_SECONDS))
        except Conflict:
            # Somebody else wrote it, or our own write got through unanswered: read it next time.
            self._object = None
            return
        if not self.leading:
            self.term += 1
        self._renewed_at = started

    async def _read(self) -> Object:
        self._object = await self._api.get(LEASES, self._namespace, self._name)
        return self._object

    def _expired(self, found: Object, spec: dict[str, Any]) -> bool:
        version = found["metadata"]["resourceVersion"]
        if version != self._seen[0]:
            self._seen = (version, self._monotonic())
        return self._monotonic() - self._seen[1] > float(spec.get("leaseDurationSeconds") or LEASE_SECONDS)

    def _lease(self, found: Object | None, holder: str, seconds: int) -> Object:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        before = (found or {}).get("spec") or {}
        mine = before.get("holderIdentity") == self._identity
        transitions = int(before.get("leaseTransitions") or 0) + (0 if mine or found is None else 1)
        metadata = {"name": self._name, "namespace": self._namespace}
        if found is not None:
            metadata = {**found["metadata"], **metadata}
            metadata.pop("managedFields", None)
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": metadata,
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": seconds,
                "acquireTime": before.get("acquireTime") if mine else now,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }
