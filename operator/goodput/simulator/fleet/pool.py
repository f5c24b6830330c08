"""The Deployment of engines: pods are made, placed, started, drained and removed, as a cluster does."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from goodput.domain.observed import PodState
from goodput.simulator.fleet.events import Events
from goodput.simulator.fleet.faults import CrashLoop
from goodput.simulator.fleet.nodes import Nodes
from goodput.simulator.fleet.pods import Flight, Pod
from goodput.simulator.fleet.prediction import Predictor
from goodput.simulator.fleet.routers import Routers
from goodput.simulator.fleet.settings import FleetSettings
from goodput.simulator.sequences import EngineConfig

# A container that died again starts after this time, twice as long with each restart, up to the most.
_BACKOFF_SECONDS, _MOST_BACKOFF_SECONDS = 10.0, 300.0


class Pool:
    """The pods of one Deployment. `born` is told of each new pod, `cut` which requests a dying one takes with it."""

    def __init__(
        self,
        settings: FleetSettings,
        engine: EngineConfig,
        events: Events,
        routers: Routers,
        *,
        born: Callable[[Pod], None],
        cut: Callable[[Iterable[Flight]], None],
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._events = events
        self._routers = routers
        self._born = born
        self._cut = cut
        self._edges = settings.edges.with_bounds(settings.objective)
        self._loops = [fault for fault in settings.faults if isinstance(fault, CrashLoop)]
        self.nodes = Nodes(settings.gpus_per_node)
        self.pods: list[Pod] = []  # that exist, oldest first
        self.gone: list[Pod] = []
        self.desired = 0
        self._speed = 1.0  # of all pods, as a share of the plant's
        self.leaving = 0  # pods that are on their way out
        # (seconds, desired, ready) with each change of either.
        self.history: list[tuple[float, int, int]] = []

    def pod(self, ordinal: int) -> Pod | None:
        """A pod that exists, by its ordinal."""
        return next((each for each in self.pods if each.ordinal == ordinal), None)

    def run_at(self, speed: float) -> None:
        """From now on every pod runs at a share of the plant's speed, those that are made later too."""
        self._speed = speed
        for pod in self.pods:
            pod.run_at(speed, self._events.now)

    @property
    def ready(self) -> int:
        """Replicas that serve and are to stay."""
        return sum(1 for each in self.pods if each.ready and each.deleted_at is None)

    def _note(self) -> None:
        entry = (self._events.now, self.desired, self.ready)
        if not self.history or self.history[-1][1:] != entry[1:]:
            self.history.append(entry)

    # ---------------------------------------------------------------- scaling
    def scale(self, replicas: int, victims: tuple[str, ...] = (), *, at_once: bool = False) -> None:
        """Ask for so many replicas; `victims` go first. `at_once`: new ones were made before, and are ready now."""
        self.desired = replicas
        alive = [each for each in self.pods if each.deleted_at is None]
        for _ in range(replicas - len(alive)):
            self._create(at_once)
        order = {name: place for place, name in enumerate(victims)}
        last = len(order)
        # As a ReplicaSet chooses: who is named, not placed, not ready, restarted most, then the youngest.
        alive.sort(
            key=lambda pod: (
                order.get(pod.name, last),
                pod.node is not None,
                pod.state is PodState.READY,
                -pod.restarts,
                -pod.ordinal,
            )
        )
        for pod in alive[: max(0, len(alive) - replicas)]:
            self._delete(pod)
        self._note()

    def _create(self, at_once: bool) -> None:
        now = self._events.now
        ordinal = len(self.pods) + len(self.gone) + 1
        settings = self._settings
        predictor = Predictor(settings.objective) if settings.predictor else None
        pod = Pod(ordinal, now, settings.plant, self._engine, self._edges, predictor=predictor)
        if self._speed != 1.0:
            pod.run_at(self._speed, now)
        self.pods.append(pod)
        self._born(pod)
        if self._place(pod):
            startup = self._startup(pod, scheduled=True)
            if at_once:
                pod.created_at -= startup
                startup = 0.0
            self._events.at(now + startup, self._started, pod, 0)

    def _startup(self, pod: Pod, *, scheduled: bool) -> float:
        """Seconds until the engine of a pod serves."""
        settings = self._settings
        draw = random.Random(f"{settings.seed}/startup/{pod.ordinal}/{pod.restarts}")
        spread = settings.startup_spread
        seconds = settings.startup_seconds * draw.uniform(1.0 - spread, 1.0 + spread)
        return seconds + (settings.scheduling_seconds if scheduled else 0.0)

    def _place(self, pod: Pod) -> bool:
        pod.node = self.nodes.place(self._settings.plant.gpus)
        if pod.node is None:
            return False
        pod.bound_at = self._events.now
        return True

    def place_pending(self) -> None:
        """Give pods that wait what GPUs there are."""
        for pod in self.pods:
            if pod.node is None and pod.deleted_at is None:
                if not self._place(pod):
                    return
                self._events.at(self._events.now + self._startup(pod, scheduled=True), self._started, pod, pod.restarts)

    def _started(self, pod: Pod, restarts: int) -> None:
        if pod.deleted_at is not None or pod.restarts != restarts or pod.node in self.nodes.dead:
            return
        now = self._events.now
        if any(fault.from_seconds <= now < fault.to_seconds for fault in self._loops):
            self._restart(pod)
            return
        pod.up = True
        self._turn_ready(pod)

    def _turn_ready(self, pod: Pod) -> None:
        pod.ready = True
        pod.ready_at = self._events.now
        self._routers.ready(pod, self._events.now)
        self._note()

    def set_ready(self, ordinal: int, ready: bool) -> None:
        """Let the probes of a pod fail, or pass again; its engine goes on."""
        pod = self.pod(ordinal)
        if pod is None or not pod.up or pod.deleted_at is not None:
            return
        if ready:
            self._turn_ready(pod)
        else:
            pod.ready = False
            self._routers.down(pod, self._events.now)
            self._note()

    # ---------------------------------------------------------------- dying
    def crash(self, ordinal: int) -> None:
        """The engine of a pod dies; its container starts again."""
        pod = self.pod(ordinal)
        if pod is not None and pod.up and pod.deleted_at is None:
            self._cut(pod.crash())
            self._routers.down(pod, self._events.now)
            self._restart(pod)
            self._note()

    def _restart(self, pod: Pod) -> None:
        """The container of a pod died: the first time it starts again at once, later after a wait."""
        wait = min(_MOST_BACKOFF_SECONDS, _BACKOFF_SECONDS * 2.0 ** (pod.restarts - 1)) if pod.restarts else 0.0
        pod.restarts += 1
        pod.failing = wait > 0.0
        self._events.at(self._events.now + wait, self._start_again, pod)

    def _start_again(self, pod: Pod) -> None:
        pod.failing = False
        self._events.at(self._events.now + self._startup(pod, scheduled=False), self._started, pod, pod.restarts)

    def _delete(self, pod: Pod) -> None:
        now = self._events.now
        if pod.node in self.nodes.dead:
            self.abandon(pod)
            return
        pod.deleted_at = now
        pod.draining = True
        self.leaving += 1
        if pod.node is None:
            self._gone(pod)
            return
        self._routers.deleted(pod, now)
        self._events.at(now + self._settings.pre_stop_seconds, self._stop, pod)
        self._events.at(now + self._settings.grace_seconds, self._kill, pod)

    def _stop(self, pod: Pod) -> None:
        pod.stopping = True
        self.drained(pod, self._events.now)

    def drained(self, pod: Pod, now: float) -> None:
        """Remove a pod that was told to stop, once it is empty."""
        if pod.stopping and pod.empty and pod.gone_at is None:
            self._events.at(now + self._settings.plant.teardown_seconds, self._gone, pod)

    def _kill(self, pod: Pod) -> None:
        if pod.gone_at is None:
            self._cut(pod.crash())
            self._gone(pod)

    def _gone(self, pod: Pod) -> None:
        if pod.gone_at is not None:
            return
        pod.gone_at = self._events.now
        self._lit(pod)
        pod.up = pod.ready = False
        self.pods.remove(pod)
        self.gone.append(pod)
        self.leaving -= pod.draining
        if pod.node is not None:
            self.nodes.release(pod.node, self._settings.plant.gpus)
            self.place_pending()
        self._note()

    # ---------------------------------------------------------------- nodes
    def lose(self, pod: Pod) -> None:
        """The node of a pod died: nothing of it runs or costs any more, and the API server does not know yet."""
        reported = pod.state
        self._cut(pod.crash())
        self._routers.down(pod, self._events.now)
        pod.reported = reported if pod.deleted_at is None else None
        pod.dark_since = self._events.now
        if pod.stopping:
            self.drained(pod, self._events.now)
        self._note()

    def revive(self, pod: Pod) -> None:
        """The node of a pod is back: what was to go goes, other containers start again."""
        self._lit(pod)
        pod.reported = None
        if pod.deleted_at is not None:
            self._gone(pod)
            return
        pod.restarts += 1
        self._start_again(pod)

    def abandon(self, pod: Pod) -> None:
        """Delete a pod whose node does not answer: it stays, Terminating, until the node is back."""
        if pod.deleted_at is None:
            pod.deleted_at = self._events.now
            self._routers.deleted(pod, self._events.now)

    def evict(self, pod: Pod) -> None:
        """Delete a pod as an eviction does; another one takes its place."""
        self._delete(pod)
        self.fill()

    def fill(self) -> None:
        """Make the pods that the Deployment lacks."""
        for _ in range(self.desired - sum(1 for each in self.pods if each.deleted_at is None)):
            self._create(at_once=False)
        self._note()

    def _lit(self, pod: Pod) -> None:
        """No more of a pod's time is that of a dead node."""
        if pod.dark_since is not None:
            begin, end = max(0.0, pod.dark_since), min(self._settings.seconds, self._events.now)
            pod.dark_seconds += max(0.0, end - begin)
            pod.dark_since = None
