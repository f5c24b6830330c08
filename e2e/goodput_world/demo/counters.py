"""The operator's own count of good requests, read from Prometheus: what it believes, to hold against what clients
saw.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

OFFERED = "goodput_requests_offered_total"
GOOD_LOWER = "goodput_requests_good_lower_total"
GOOD_UPPER = "goodput_requests_good_upper_total"
_POLL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class OperatorCount:
    """Requests the operator counted as offered, and between which bounds as good."""

    offered: float
    good_lower: float
    good_upper: float

    def since(self, earlier: OperatorCount) -> OperatorCount:
        """What was added since an earlier count. Raises ValueError when the counters fell: the operator restarted."""
        if self.offered < earlier.offered:
            raise ValueError("the operator's counters fell during the replay: it restarted")
        return OperatorCount(
            self.offered - earlier.offered,
            self.good_lower - earlier.good_lower,
            self.good_upper - earlier.good_upper,
        )

    def bounds(self) -> tuple[float, float] | None:
        """Attainment from its lower to its upper bound; None when nothing was offered."""
        if self.offered <= 0:
            return None
        return self.good_lower / self.offered, min(1.0, self.good_upper / self.offered)


def total(vector: list[Mapping[str, Any]], namespace: str, model: str) -> float | None:
    """Sum of the series of one Model in a Prometheus instant vector; None if it has none.

    A scrape that keeps its own `namespace` label moves the operator's to `exported_namespace`.
    """
    values = [
        float(series["value"][1])
        for series in vector
        if series["metric"].get("exported_model", series["metric"].get("model")) == model
        and series["metric"].get("exported_namespace", series["metric"].get("namespace")) == namespace
    ]
    return sum(values) if values else None


class OperatorCounters:
    """Reads the counters of one Model through a Prometheus at `url`."""

    def __init__(self, url: str, namespace: str, model: str) -> None:
        self._url = url.rstrip("/")
        self._namespace = namespace
        self._model = model

    async def read(self) -> OperatorCount | None:
        """The counters now; None when Prometheus has no such series. Raises aiohttp.ClientError when it does not
        answer.
        """
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            found = [await self._total(session, name) for name in (OFFERED, GOOD_LOWER, GOOD_UPPER)]
        offered, lower, upper = found
        if offered is None or lower is None or upper is None:
            return None
        return OperatorCount(offered, lower, upper)

    async def _total(self, session: aiohttp.ClientSession, name: str) -> float | None:
        async with session.get(f"{self._url}/api/v1/query", params={"query": name}) as answer:
            answer.raise_for_status()
            body = await answer.json()
        return total(body["data"]["result"], self._namespace, self._model)

    async def settled(self, quiet_seconds: float, timeout_seconds: float) -> OperatorCount | None:
        """The counters once they have not changed for `quiet_seconds`, or at the timeout as they are.

        Metrics reach the operator a scrape and a tick after the request, and its windows look back.
        """
        deadline = time.monotonic() + timeout_seconds
        last = await self.read()
        changed_at = time.monotonic()
        while time.monotonic() < deadline and time.monotonic() - changed_at < quiet_seconds:
            await asyncio.sleep(_POLL_SECONDS)
            now = await self.read()
            if now != last:
                last, changed_at = now, time.monotonic()
        return last
