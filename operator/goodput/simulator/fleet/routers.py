"""The routers in front of a pool: each forwards its share of requests by what it knows itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from goodput.simulator.fleet.balance import BALANCES, Choice, Worker
from goodput.simulator.fleet.events import Events
from goodput.simulator.fleet.pods import Flight, Pod
from goodput.simulator.fleet.settings import RouterSettings

_BACKOFF_GROWTH = 1.5


@dataclass(slots=True, eq=False)
class Router:
    """One router pod: workers by pod name, and its counters since it started."""

    name: str
    number: int
    workers: dict[str, Worker] = field(default_factory=dict)
    requests: int = 0  # of users, each once
    errors: int = 0  # of those, answered with an error after all attempts
    in_flight: int = 0
    picks: int = 0


class Routers:
    """All routers, and what they notice of pods: new ones by discovery, dead ones by health checks."""

    def __init__(self, settings: RouterSettings, events: Events) -> None:
        self._settings = settings
        self._events = events
        if settings.balance not in BALANCES:
            raise ValueError(f"balance: {settings.balance!r} is unknown; known are {', '.join(sorted(BALANCES))}")
        self._balance = BALANCES[settings.balance]
        self.routers = [Router(f"router-{number}", number) for number in range(settings.replicas)]

    # ---------------------------------------------------------------- what they notice
    def _next_check(self, router: Router, after: float) -> float:
        """When a router next asks for the health of its workers; routers do not all ask at once."""
        interval = self._settings.health_interval_seconds
        phase = interval * router.number / len(self.routers)
        return phase + interval * -(-(after - phase) // interval)

    def ready(self, pod: Pod, now: float) -> None:
        """A pod turned ready: each router uses it with its first check that succeeds."""
        for router in self.routers:
            self._events.at(self._next_check(router, now + self._settings.discovery_seconds), self._use, router, pod)

    def _use(self, router: Router, pod: Pod) -> None:
        if not pod.ready or pod.deleted_at is not None:
            return
        known = router.workers.get(pod.name)
        if known is None:
            router.workers[pod.name] = Worker(pod)
        else:
            known.healthy, known.failures = True, 0

    def down(self, pod: Pod, now: float) -> None:
        """The engine of a pod died: each router leaves it out once enough checks have failed."""
        wait = (self._settings.health_failures - 1) * self._settings.health_interval_seconds
        for router in self.routers:
            self._events.at(self._next_check(router, now) + wait, self._leave_out, router, pod)

    def _leave_out(self, router: Router, pod: Pod) -> None:
        worker = router.workers.get(pod.name)
        if worker is not None and not pod.ready:
            worker.healthy = False

    def deleted(self, pod: Pod, now: float) -> None:
        """A pod is to go: discovery takes it out of every router."""
        self._events.at(now + self._settings.discovery_seconds, self._forget, pod)

    def _forget(self, pod: Pod) -> None:
        for router in self.routers:
            router.workers.pop(pod.name, None)

    # ---------------------------------------------------------------- what they do
    def arrived(self, flight: Flight) -> None:
        """A user's request reached its router."""
        router = self.routers[flight.router]
        router.requests += 1
        router.in_flight += 1

    def pick(self, flight: Flight, tried: list[Worker], now: float) -> Worker | None:
        """The worker that an attempt goes to; None: no router can use any."""
        router = self.routers[flight.router]
        usable = [each for each in router.workers.values() if each.healthy and each.closed_until <= now]
        if not usable:
            return None
        router.picks += 1
        return self._balance(Choice(usable, flight.record.ask, tried, router.picks, self._settings))

    def accepted(self, worker: Worker) -> None:
        """An engine took a request."""
        worker.in_flight += 1
        worker.failures = 0

    def failed(self, worker: Worker, now: float) -> None:
        """An attempt failed: after many in a row the circuit opens."""
        worker.failures += 1
        if worker.failures >= self._settings.circuit_failures:
            worker.failures = 0
            worker.closed_until = now + self._settings.circuit_open_seconds

    def ended(self, flight: Flight, *, error: bool) -> None:
        """An answer ended, or its client went away."""
        router = self.routers[flight.router]
        router.in_flight -= 1
        router.errors += error
        if flight.pod is not None:
            worker = router.workers.get(flight.pod.name)
            if worker is not None:
                worker.in_flight -= 1

    def backoff_seconds(self, attempts: int) -> float:
        """How long to wait after so many attempts."""
        return self._settings.backoff_seconds * _BACKOFF_GROWTH ** (attempts - 1)
