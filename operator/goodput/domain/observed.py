"""What one look at the cluster and at Prometheus found: the input of a decision."""

from __future__ import annotations

import re
from enum import StrEnum

from goodput.domain.change import CheckView, Serving
from goodput.domain.identity import CANARY_POOL, Key
from goodput.domain.intent import Carrier, GpuType, ModelIntent, RoutingMode
from goodput.domain.plan import Placement
from goodput.domain.podtable import COUNTERS, PodTable, empty
from goodput.domain.taints import Taints, advice
from goodput.domain.values import Value


class PodState(StrEnum):
    """Where a replica stands between being created and gone."""

    PENDING = "Pending"  # not on a node yet
    STARTING = "Starting"  # on a node, never ready so far
    READY = "Ready"
    UNREADY = "Unready"  # was ready, is not now
    TERMINATING = "Terminating"
    FAILED = "Failed"  # crash loop, image cannot be pulled, configuration error


class PodView(Value, frozen=True, kw_only=True):
    """One pod of ours. Times are Unix seconds; None: has not happened.

    `trouble` is the kubelet's or scheduler's reason (CrashLoopBackOff, ErrImagePull, OOMKilled, Unschedulable...).
    """

    name: str
    uid: str
    pool: str
    revision: str
    state: PodState
    node: str | None
    created_at: float
    ready_at: float | None
    restarts: int = 0
    trouble: str = ""
    trouble_message: str = ""
    deletion_cost: int = 0
    node_lost: bool = False  # its node is gone, not ready, or cordoned

    @property
    def unschedulable(self) -> bool:
        """Whether the scheduler found no node for it."""
        return self.state is PodState.PENDING and "nschedulable" in self.trouble

    @property
    def said(self) -> str:
        """Why it is not well, in the words of the scheduler or the kubelet, and what helps."""
        words = (self.trouble_message or self.trouble)[:300]
        helps = advice(self.trouble_message)
        return f"{words} ({helps})" if helps else words

    def lacks(self, resource: str) -> bool:
        """Whether the scheduler says that it found too little of an extended resource for it.

        It also names resources that it does not find lacking, as in `untolerated taint {nvidia.com/gpu: present}`.
        """
        words = re.escape(resource)
        return (
            self.unschedulable and re.search(rf"Insufficient {words}(?![\w/-]|\.\w)", self.trouble_message) is not None
        )


class Tally(Value, frozen=True, kw_only=True):
    """Pods of one pool by state; `lost` sit on lost nodes and are not terminating, `holding` hold GPUs.

    Of the lost ones, those on a cordoned node serve on; `lost_silent` do not.
    """

    names: tuple[str, ...]
    uids: tuple[str, ...]  # sorted
    ready: int
    starting: int  # pending or not yet ready
    failed: int
    unschedulable: int
    placed: int  # on a node
    holding: int  # on a node and not terminating
    lost: int
    lost_silent: int
    leaving: int  # terminating
    newest_ready_at: float

    @classmethod
    def of(cls, pods: tuple[PodView, ...]) -> Tally:
        ready = starting = failed = unschedulable = placed = holding = lost = silent = leaving = 0
        newest = 0.0
        for pod in pods:
            state = pod.state
            if state is PodState.READY:
                ready += 1
            elif state is PodState.STARTING:
                starting += 1
            elif state is PodState.PENDING:
                starting += 1
                if pod.unschedulable:
                    unschedulable += 1
            elif state is PodState.FAILED:
                failed += 1
            elif state is PodState.TERMINATING:
                leaving += 1
            if pod.node is not None:
                placed += 1
            if state is not PodState.TERMINATING:
                if pod.node is not None:
                    holding += 1
                if pod.node_lost:
                    lost += 1
                    silent += state is not PodState.READY
            if pod.ready_at is not None and pod.ready_at > newest:
                newest = pod.ready_at
        return cls(
            names=tuple([pod.name for pod in pods]),
            uids=tuple(sorted([pod.uid for pod in pods])),
            ready=ready,
            starting=starting,
            failed=failed,
            unschedulable=unschedulable,
            placed=placed,
            holding=holding,
            lost=lost,
            lost_silent=silent,
            leaving=leaving,
            newest_ready_at=newest,
        )


class PoolView(Value, frozen=True, kw_only=True):
    """The Deployment of one pool as the API server has it, with its pods (sorted by name)."""

    name: str
    exists: bool
    spec_replicas: int = 0
    revision: str = ""
    rolling_out: bool = False
    foreign_scaler: str | None = None  # field manager or object that also writes .spec.replicas
    pods_refused: str = ""  # what the API server said when pods were to be created; empty: it took them
    gpu_type: str = ""
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    carrier: Carrier | None = None  # the resource and labels with which its pods were rendered
    placement: Placement | None = None  # with which its pods were rendered
    serving: Serving | None = None  # None: nobody can tell
    change: str = ""  # id of the change that it is the canary of
    pods: tuple[PodView, ...] = ()
    # Of `pods`, where somebody tallied them already: they are for as long as none of them changes.
    tallied: Tally | None = None

    @property
    def tally(self) -> Tally:
        """Its pods by state."""
        return self.tallied if self.tallied is not None else Tally.of(self.pods)

    @property
    def ready(self) -> int:
        """Pods that serve."""
        return self.tally.ready

    @property
    def coming(self) -> int:
        """Replicas that start, and those that are asked for and were not created yet (or are refused)."""
        tally = self.tally
        return tally.starting + max(0, self.spec_replicas - (len(self.pods) - tally.leaving))


class PoolTelemetry(Value, frozen=True, kw_only=True):
    """Telemetry of one pool at one instant. Cumulative sums are over the pods listed, None where no series exists.

    `unlisted`: pods were scraped that are not known (not yet, or no longer), and the sums are over them as well.
    """

    counters: PodTable = empty(COUNTERS)
    unlisted: bool = False
    fault: str = ""  # which counter of which pod is no count (NaN, infinite or negative), in words
    prompt_tokens: float | None = None
    cached_prompt_tokens: float | None = None
    generation_tokens: float | None = None
    itl_sum_seconds: float | None = None  # inter-token latency: sum and count
    itl_count: float | None = None
    prefill_sum_seconds: float | None = None  # of finished requests, from being scheduled to the first token
    prefill_count: float | None = None
    drafts: float | None = None  # of speculative decoding
    accepted_tokens: float | None = None  # of those drafts
    request_seconds_p95: float | None = None  # p95 of end-to-end time over the last 10 minutes


class RouterTelemetry(Value, frozen=True, kw_only=True):
    """Ingress counters of a Model's router pods: (pod, scraped_at, requests so far), sorted by pod."""

    requests: tuple[tuple[str, float, float], ...] = ()
    errors: tuple[tuple[str, float, float], ...] = ()


class ModelTelemetry(Value, frozen=True, kw_only=True):
    """Telemetry of one Model; `problem` says what is missing in words (empty: all there)."""

    pool: PoolTelemetry | None
    router: RouterTelemetry | None
    problem: str = ""
    unlabelled: bool = False  # the metric exists in Prometheus, but without our pod labels


class Tainted(Value, frozen=True, kw_only=True):
    """GPUs of one type on nodes whose `taints` not every Model tolerates."""

    taints: Taints
    nodes: int
    installed: int
    used: int

    @property
    def free(self) -> int:
        return max(0, self.installed - self.used)


class GpuSupply(Value, frozen=True, kw_only=True):
    """GPUs of one type: `installed` on ready, schedulable nodes; `used` by any pod on them, ours or not.

    `tainted` are those of them that only pods with further tolerations reach, by sets of taints.
    """

    type: str
    nodes: int
    installed: int
    used: int
    limit: int | None = None  # what node autoscalers may bring it to
    note: str = ""  # what its author should know: nodes that are refused, memory that labels say otherwise
    tainted: tuple[Tainted, ...] = ()

    @property
    def capacity(self) -> int:
        return max(self.installed, self.limit or 0)

    @property
    def free(self) -> int:
        return max(0, self.capacity - self.used)


NO_CANARY = PoolView(name=CANARY_POOL, exists=False)


class ModelView(Value, frozen=True, kw_only=True):
    """Everything one Model's decision may look at."""

    intent: ModelIntent
    pool: PoolView
    router: PoolView
    telemetry: ModelTelemetry | None  # None: Prometheus was not asked or did not answer
    canary: PoolView = NO_CANARY
    checks: tuple[CheckView, ...] = ()
    # Users are still sent to engines: no router is ready yet.
    routers_bypassed: bool = False

    @property
    def routed(self) -> bool:
        """Whether users come through routers, which count what they offer; else engines count what reaches them."""
        return self.intent.routing is RoutingMode.ROUTER and not self.routers_bypassed


class Undecided(Value, frozen=True, kw_only=True):
    """A Model for which nothing is decided: its pools go on as they are, and hold what they hold."""

    key: Key
    pools: tuple[PoolView, ...]


class Snapshot(Value, frozen=True, kw_only=True):
    """One consistent look at the fleet, sorted by key; the only input of `decide` beside memory, policy and now."""

    models: tuple[ModelView, ...]
    undecided: tuple[Undecided, ...] = ()
    gpu_types: tuple[GpuType, ...]
    supply: tuple[GpuSupply, ...]
    strangers: str = ""  # accelerators of nodes that no type counts, in words
    telemetry_error: str = ""  # Prometheus as a whole could not be read: why
