"""One replica: its engine in time, its counters, and the requests that it has."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from goodput.domain.observed import PodState
from goodput.simulator.engine import Engine, StepResult
from goodput.simulator.fleet.counters import Counters, Scrape
from goodput.simulator.fleet.prediction import Predictor
from goodput.simulator.fleet.requests import Record, engine_hashes
from goodput.simulator.fleet.settings import Edges
from goodput.simulator.plant import Plant, StepTimeModel
from goodput.simulator.sequences import AdmissionRejectedError, EngineConfig, EngineRequest, Sequence
from goodput.simulator.serving import RETRY_SECONDS
from goodput.simulator.stretch import Stretch


@dataclass(slots=True, eq=False)
class Flight:
    """A request on its way: `router` forwards it, `pod` has it, `over` says that it ended for its client."""

    key: str
    record: Record
    router: int
    pod: Pod | None = None
    over: bool = False
    predicted: bool = False  # a predictor spoke of it


def step_times(plant: Plant, speed: float = 1.0) -> StepTimeModel:
    """Step times of a plant that runs at a share of its speed."""
    if speed == 1.0:
        return StepTimeModel.of(plant)
    slower = replace(
        plant,
        mbu=plant.mbu * speed,
        mfu=plant.mfu * speed,
        step_overhead_seconds=plant.step_overhead_seconds / speed,
        per_sequence_overhead_seconds=plant.per_sequence_overhead_seconds / speed,
    )
    return StepTimeModel.of(slower)


class Pod:
    """A replica from its creation to its removal. Times are seconds of the run, None: not yet.

    `due` is when something next happens in its engine. Whoever gives it work or takes some away must have advanced it
    to that time.
    """

    def __init__(
        self,
        ordinal: int,
        created_at: float,
        plant: Plant,
        config: EngineConfig,
        edges: Edges,
        *,
        predictor: Predictor | None = None,
    ) -> None:
        self.ordinal = ordinal
        self.name = f"serve-{ordinal:04d}"
        self.created_at = created_at
        self.node: int | None = None
        self.bound_at: float | None = None
        self.up = False  # its engine serves
        self.ready = False  # and its probes say so
        self.ready_at: float | None = None  # the last time
        self.deleted_at: float | None = None
        self.stopping = False  # told to end: it takes nothing more and goes when it is empty
        self.gone_at: float | None = None
        self.restarts = 0
        self.failing = False  # waits to be started again
        self.reported: PodState | None = None  # what the API server still has of a pod whose node died
        self.dark_since: float | None = None  # its node is dead since then
        self.dark_seconds = 0.0  # and was before, within the run
        self.draining = False
        self.due = math.inf
        self.ended: list[Flight] = []  # finished since somebody last looked
        self._plant = plant
        self._config = config
        self._edges = edges
        self._predictor = predictor
        self._flights: dict[str, Flight] = {}
        self._times = step_times(plant)
        self._boot()

    def _boot(self) -> None:
        self.engine = Engine(self._config, self._times, self._plant.request_overhead_seconds)
        self.counters = Counters(self._edges)
        self._step: StepResult | None = None
        self._stretch: Stretch | None = None
        self._clock = self.created_at
        self.due = math.inf

    @property
    def state(self) -> PodState:
        """Where it stands, as the API server tells it."""
        if self.deleted_at is not None:
            return PodState.TERMINATING
        if self.reported is not None:
            return self.reported
        if self.node is None:
            return PodState.PENDING
        if self.ready:
            return PodState.READY
        if self.failing:
            return PodState.FAILED
        # A kubelet that does not answer leaves its pods as they were, but for not being ready.
        served = self.up or (self.dark_since is not None and self.ready_at is not None)
        return PodState.UNREADY if served else PodState.STARTING

    @property
    def empty(self) -> bool:
        """Whether it has no request."""
        return not self._flights

    @property
    def in_flight(self) -> int:
        """Requests that it has."""
        return len(self._flights)

    def advance(self, until: float) -> None:
        """Let the engine work until a time; tokens count when the step that makes them has ended."""
        while self.due <= until:
            if self._stretch is not None:
                self._decode(self._stretch, self._stretch.steps)
            elif self._step is not None:
                self._end(self._step)
            else:
                stretch = self.engine.plan_decode(self.due)
                if stretch is None:
                    self._begin(self.due)
                else:
                    self._stretch = stretch
                    self.due = stretch.ends_at

    def _begin(self, at: float) -> None:
        """One step."""
        self._step = self.engine.step(at)
        if self._step is None:
            self._clock = at + RETRY_SECONDS
            self._plan()
        else:
            self.due = self._step.ends_at

    def _sync(self, now: float) -> None:
        """Take the steps that have ended, and begin the one that is under way, before somebody looks or interferes."""
        stretch = self._stretch
        if stretch is not None:
            ended = stretch.ended_by(now)
            if ended:
                self._decode(stretch, ended)
            else:
                self._stretch = None
                self.due = stretch.started_at
            self._begin(self.due)

    def _decode(self, stretch: Stretch, steps: int) -> None:
        self._stretch = None
        seconds = stretch.seconds(steps)
        self._clock = stretch.started_at + seconds
        self.counters.decode(stretch.batch, steps, seconds)
        for sequence in self.engine.decode(stretch, steps):
            self._finish(sequence.owner, sequence)
        self._plan()

    def _end(self, step: StepResult) -> None:
        self._step = None
        self._clock = step.ends_at
        self.counters.step(step)
        for sequence in step.first_tokens:
            flight: Flight = sequence.owner
            if not flight.over and sequence.first_token_at is not None:
                flight.record.first_token_at = sequence.first_token_at
                self.counters.first_token(sequence, sequence.first_token_at - sequence.arrived_at)
        for sequence in step.finished:
            flight = sequence.owner
            if not flight.over:
                self._finish(flight, sequence)
        self._plan()

    def _finish(self, flight: Flight, sequence: Sequence) -> None:
        flight.record.last_token_at = sequence.last_token_at
        flight.record.generated = sequence.generated
        self.counters.finish(sequence)
        del self._flights[flight.key]
        self.ended.append(flight)

    def _plan(self) -> None:
        """Find out when something next happens; a step under way ends first."""
        if self._step is None:
            begins = self.engine.next_start(self._clock)
            self.due = math.inf if begins is None else begins

    def submit(self, flight: Flight, now: float) -> None:
        """Take a request; raises what the engine raises."""
        self._sync(now)
        ask = flight.record.ask
        hashes = engine_hashes(ask, self._config.block_size) if ask.block_hashes else ()
        request = EngineRequest(flight.key, max(1, ask.input_tokens), max(1, ask.output_tokens), hashes)
        if self._predictor is not None and not flight.predicted:
            flight.predicted = True
            self._predict(self._predictor, request, now)
        try:
            sequence = self.engine.submit(request, now, flight)
        except AdmissionRejectedError:
            self.counters.rejected += 1
            raise
        if self._predictor is not None:
            self._predictor.took(sequence)
        self._flights[flight.key] = flight
        flight.pod = self
        self._plan()

    def _predict(self, predictor: Predictor, request: EngineRequest, now: float) -> None:
        """Count what a request will take, whether the engine takes it or not."""
        begins_at = now if self._step is None else self._step.ends_at
        times = predictor.predict(self.engine, begins_at, request, now)
        if times is not None:
            self.counters.predict(*times)

    def drop(self, flight: Flight, now: float) -> None:
        """Forget a request whose client went away."""
        self._sync(now)
        self._flights.pop(flight.key, None)
        self.engine.abort(flight.key)
        self._plan()

    def crash(self) -> list[Flight]:
        """Lose the engine and all that it had: counters begin anew with the next one. Returns what was cut."""
        cut = list(self._flights.values())
        self._flights.clear()
        self.up = self.ready = False
        self._boot()
        return cut

    def run_at(self, speed: float, now: float) -> None:
        """From the next step on, run at a share of the plant's speed."""
        self._sync(now)
        self._times = self.engine.times = step_times(self._plant, speed)

    def scrape(self, now: float) -> Scrape:
        """What the engine exports now."""
        self._sync(now)
        return self.counters.scrape(self.engine, now)
