"""What Prometheus has of a fleet: scrapes of each pod at its own phase, some late, some lost."""

from __future__ import annotations

import random
from collections import deque
from typing import NamedTuple

from goodput.simulator.fleet.counters import Scrape
from goodput.simulator.fleet.events import Events
from goodput.simulator.fleet.pods import Pod
from goodput.simulator.fleet.routers import Router, Routers
from goodput.simulator.fleet.settings import ScrapeSettings


class RouterScrape(NamedTuple):
    """One look at one router: requests of users so far, each once, how many of them ended with an error, and how many
    are under way."""

    at: float
    requests: int
    errors: int
    in_flight: int


class Telemetry:
    """The scrapes of the last while, by pod, oldest first."""

    def __init__(self, settings: ScrapeSettings, events: Events, routers: Routers, seed: int) -> None:
        self._settings = settings
        self._events = events
        self._seed = seed
        self._draw = random.Random(f"{seed}/scrapes")
        self._pods: dict[str, deque[Scrape]] = {}
        self._routers: dict[str, deque[RouterScrape]] = {}
        self.missed: set[str] = set()  # pods and routers whose last scrape failed
        for router in routers.routers:
            self._routers[router.name] = deque()
            events.at(events.now + self._phase(router.name), self._scrape_router, router)

    def _phase(self, name: str) -> float:
        return random.Random(f"{self._seed}/phase/{name}").random() * self._settings.interval_seconds

    def _answers(self, name: str, up: bool) -> bool:
        """Whether a scrape succeeds: somebody answers, and the answer is not lost."""
        lost = self._settings.lost_share
        if up and (lost <= 0.0 or self._draw.random() >= lost):
            self.missed.discard(name)
            return True
        self.missed.add(name)
        return False

    def _scrape_router(self, router: Router) -> None:
        now = self._events.now
        if self._answers(router.name, True):
            kept = self._routers[router.name]
            kept.append(RouterScrape(now, router.requests, router.errors, router.in_flight))
            while kept[0].at < now - self._settings.keep_seconds:
                kept.popleft()
        self._events.at(now + self._settings.interval_seconds, self._scrape_router, router)

    def watch(self, pod: Pod) -> None:
        """A pod was made: scrape it from now on, whenever it answers, until it is gone."""
        self._events.at(self._events.now + self._phase(pod.name), self._scrape, pod)

    def _scrape(self, pod: Pod) -> None:
        now = self._events.now
        if pod.gone_at is not None:
            self.missed.discard(pod.name)
            # Its past is of use for rates a while longer.
            self._events.at(now + self._settings.keep_seconds, self._forget, pod)
            return
        if self._answers(pod.name, pod.up):
            kept = self._pods.setdefault(pod.name, deque())
            kept.append(pod.scrape(now))
            while kept[0].at < now - self._settings.keep_seconds:
                kept.popleft()
        self._events.at(now + self._settings.interval_seconds, self._scrape, pod)

    def _forget(self, pod: Pod) -> None:
        self._pods.pop(pod.name, None)

    def pods(self, now: float) -> dict[str, list[Scrape]]:
        """Scrapes of engines that a query at `now` sees."""
        visible = now - self._settings.delay_seconds
        return {
            name: found for name, kept in self._pods.items() if (found := [each for each in kept if each.at <= visible])
        }

    def routers(self, now: float) -> dict[str, list[RouterScrape]]:
        """Scrapes of routers that a query at `now` sees."""
        visible = now - self._settings.delay_seconds
        return {
            name: found
            for name, kept in self._routers.items()
            if (found := [each for each in kept if each.at <= visible])
        }
