"""A fleet in time: clients, routers, engines, Prometheus and a policy. Equal arguments give an equal outcome."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from goodput.domain.observed import PodState
from goodput.simulator.fleet.balance import Worker
from goodput.simulator.fleet.clients import Clients
from goodput.simulator.fleet.events import Events
from goodput.simulator.fleet.faults import Crash, NodeCordon, NodeFailure, ServerErrors, Slowdown, Throttle, Unready
from goodput.simulator.fleet.outages import Outages
from goodput.simulator.fleet.outcome import Outcome, outcome
from goodput.simulator.fleet.pods import Flight, Pod
from goodput.simulator.fleet.policy import Desired, Policy
from goodput.simulator.fleet.pool import Pool
from goodput.simulator.fleet.requests import Ask, End, Record
from goodput.simulator.fleet.routers import Routers
from goodput.simulator.fleet.settings import FleetSettings
from goodput.simulator.fleet.telemetry import Telemetry
from goodput.simulator.fleet.view import FleetView, PodSight
from goodput.simulator.sequences import AdmissionRejectedError, RequestError


def simulate(settings: FleetSettings, clients: Clients, policy: Policy) -> Outcome:
    """Serve the clients under the policy until the run is over and the last request ended."""
    return Simulation(settings, clients, policy).run()


class Simulation:
    """One run. All its state is here; nothing is shared between runs."""

    def __init__(self, settings: FleetSettings, clients: Clients, policy: Policy) -> None:
        self._settings = settings
        self._clients = clients
        self._policy = policy
        self._began_at = -settings.settle_seconds
        self._events = Events(self._began_at)
        self._routers = Routers(settings.router, self._events)
        self._telemetry = Telemetry(settings.scrape, self._events, self._routers, settings.seed)
        self._pool = Pool(
            settings, settings.engine, self._events, self._routers, born=self._telemetry.watch, cut=self._cut
        )
        self._outages = Outages(
            self._events,
            self._pool,
            grace_seconds=settings.node_grace_seconds,
            eviction_seconds=settings.eviction_seconds,
        )
        self._edges = settings.edges.with_bounds(settings.objective)
        self._draw = random.Random(f"{settings.seed}/routers")
        self._errors = [fault for fault in settings.faults if isinstance(fault, ServerErrors)]
        self._records: list[Record] = []
        self._open = 0  # requests that did not end yet
        self._more: Iterator[Ask] | None = clients.start()
        self._tried: dict[str, list[Worker]] = {}

    # ---------------------------------------------------------------- time
    def run(self) -> Outcome:
        """Run to the end."""
        settings, events = self._settings, self._events
        self._pool.scale(settings.replicas, at_once=True)
        self._plan_faults()
        events.at(self._began_at + self._policy.interval_seconds, self._decide)
        self._next_ask()
        end = settings.seconds + settings.tail_seconds
        while events.next_at <= end and not self._over():
            self._advance()
            events.act()
        for record in self._records:
            if record.end is None:
                record.end = End.UNFINISHED
        pods = (*self._pool.pods, *self._pool.gone)
        return outcome(
            self._policy.name,
            settings.objective,
            settings.seconds,
            records=self._records,
            history=self._pool.history,
            gpu_seconds=settings.plant.gpus * sum(_held(pod, settings.seconds) for pod in pods),
        )

    def _over(self) -> bool:
        return self._events.now >= self._settings.seconds and not self._open and self._more is None

    def _advance(self) -> None:
        """Let the engines work until the next event is due.

        Where the end of a request has consequences (its client asks again, a pod is removed), ends come in order.
        """
        while True:
            until = self._events.next_at
            pods = self._pool.pods
            if not self._clients.reactive and not self._pool.leaving:
                for pod in pods:
                    if pod.due <= until:
                        pod.advance(until)
                        self._settle(pod)
                return
            first = min(pods, key=lambda pod: pod.due, default=None)
            if first is None or first.due > until:
                return
            first.advance(first.due)
            self._settle(first)

    def _settle(self, pod: Pod) -> None:
        """Tell everybody of the requests that a pod finished."""
        for flight in pod.ended:
            last = flight.record.last_token_at
            assert last is not None
            self._end(flight, End.FINISHED, last)
            if pod.stopping:
                self._pool.drained(pod, last)
        pod.ended.clear()

    # ---------------------------------------------------------------- requests
    def _next_ask(self) -> None:
        """Plan the next request of those that come whatever the answers are; none comes after the run."""
        ask = next(self._more, None) if self._more is not None else None
        if ask is None or ask.seconds >= self._settings.seconds:
            self._more = None
            return
        self._events.at(ask.seconds, self._arrive, ask, True)

    def _arrive(self, ask: Ask, listed: bool) -> None:
        record = Record(ask)
        self._records.append(record)
        self._open += 1
        flight = Flight(str(len(self._records)), record, self._draw.randrange(self._settings.router.replicas))
        self._routers.arrived(flight)
        self._attempt(flight)
        if ask.abort_after_seconds is not None and not flight.over:
            self._events.at(ask.seconds + ask.abort_after_seconds, self._leave, flight)
        if listed:
            self._next_ask()

    def _attempt(self, flight: Flight) -> None:
        """Forward a request to an engine; what fails is tried again, perhaps elsewhere, until attempts are spent."""
        if flight.over:
            return
        now, record = self._events.now, flight.record
        tried = self._tried.setdefault(flight.key, [])
        worker = self._routers.pick(flight, tried, now)
        record.attempts += 1
        failure = End.REFUSED if worker is None else self._give(flight, worker)
        if failure is None or failure is End.INVALID:
            del self._tried[flight.key]
            if failure is not None:
                self._end(flight, failure, now)
            return
        if worker is not None:
            tried.append(worker)
            self._routers.failed(worker, now)
        if record.attempts < self._settings.router.attempts:
            self._events.at(now + self._routers.backoff_seconds(record.attempts), self._attempt, flight)
        else:
            del self._tried[flight.key]
            self._end(flight, failure, now)

    def _give(self, flight: Flight, worker: Worker) -> End | None:
        """One attempt: None if the engine took it, else how the request ends if this was the last one."""
        now, pod = self._events.now, worker.pod
        if not pod.up or pod.stopping or self._answers_error(now):
            return End.FAILED
        try:
            pod.submit(flight, now)
        except AdmissionRejectedError:
            return End.REFUSED
        except RequestError:
            return End.INVALID
        flight.record.pod = pod.name
        self._routers.accepted(worker)
        return None

    def _answers_error(self, now: float) -> bool:
        return any(
            fault.from_seconds <= now < fault.to_seconds and self._draw.random() < fault.share for fault in self._errors
        )

    def _end(self, flight: Flight, end: End, at: float) -> None:
        """A request ended for its client, which may ask again."""
        flight.over = True
        record = flight.record
        record.end, record.ended_at = end, at
        self._open -= 1
        # A stream that is cut was answered before: routers count no error.
        self._routers.ended(flight, error=flight.pod is None and end is not End.ABORTED)
        following = self._clients.after(record, at)
        if following is not None and following.seconds < self._settings.seconds:
            self._events.at(following.seconds, self._arrive, following, False)

    def _leave(self, flight: Flight) -> None:
        """The client of a request goes away."""
        if flight.over:
            return
        self._tried.pop(flight.key, None)
        if flight.pod is not None:
            flight.pod.drop(flight, self._events.now)
        self._end(flight, End.ABORTED, self._events.now)
        if flight.pod is not None:
            self._pool.drained(flight.pod, self._events.now)

    def _cut(self, flights: Iterable[Flight]) -> None:
        for flight in flights:
            self._end(flight, End.FAILED, self._events.now)

    # ---------------------------------------------------------------- the policy
    def _decide(self) -> None:
        now = self._events.now
        if now > self._settings.seconds:
            return
        wanted = self._policy.decide(self._view(now), now)
        desired = wanted if isinstance(wanted, Desired) else Desired(wanted)
        replicas = self._settings.bounded(desired.replicas)
        if replicas != self._pool.desired:
            self._pool.scale(replicas, desired.victims)
        self._events.at(now + self._policy.interval_seconds, self._decide)

    def _view(self, now: float) -> FleetView:
        settings, pool = self._settings, self._pool
        return FleetView(
            now=now,
            began_at=self._began_at,
            objective=settings.objective,
            edges=self._edges,
            desired=pool.desired,
            min_replicas=settings.min_replicas,
            max_replicas=settings.max_replicas,
            pods=tuple(
                PodSight(
                    pod.name,
                    pod.state,
                    pod.created_at,
                    pod.ready_at if pod.state is PodState.READY else None,
                    pod.restarts,
                    pod.node,
                    pool.nodes.lost(pod.node),
                )
                for pod in pool.pods
            ),
            scrapes=self._telemetry.pods(now),
            routers=self._telemetry.routers(now),
            missed=frozenset(self._telemetry.missed),
            gpus_installed=pool.nodes.installed,
            gpus_used=pool.nodes.used,
            gpus_per_replica=settings.plant.gpus,
            nodes=len(pool.nodes),
            engine=settings.engine,
        )

    def _plan_faults(self) -> None:
        for fault in self._settings.faults:
            if isinstance(fault, Crash):
                self._events.at(fault.at_seconds, self._pool.crash, fault.pod)
            elif isinstance(fault, Unready):
                self._events.at(fault.from_seconds, self._pool.set_ready, fault.pod, False)
                self._events.at(fault.to_seconds, self._pool.set_ready, fault.pod, True)
            elif isinstance(fault, Throttle):
                self._events.at(fault.from_seconds, self._run_at, fault.pod, fault.speed)
                self._events.at(fault.to_seconds, self._run_at, fault.pod, 1.0)
            elif isinstance(fault, Slowdown):
                self._events.at(fault.from_seconds, self._pool.run_at, fault.speed)
            elif isinstance(fault, NodeFailure | NodeCordon):
                self._outages.plan(fault)

    def _run_at(self, ordinal: int, speed: float) -> None:
        pod = self._pool.pod(ordinal)
        if pod is not None:
            pod.run_at(speed, self._events.now)


def _held(pod: Pod, seconds: float) -> float:
    """Seconds within the run for which a pod held its GPUs."""
    if pod.bound_at is None:
        return 0.0
    until = seconds if pod.gone_at is None else min(pod.gone_at, seconds)
    dark = pod.dark_seconds + (0.0 if pod.dark_since is None else max(0.0, seconds - max(0.0, pod.dark_since)))
    return max(0.0, until - max(0.0, pod.bound_at) - dark)
