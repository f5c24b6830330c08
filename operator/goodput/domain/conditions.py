"""Conditions of our objects: types, reasons (one list, each with a sentence) and the value itself.

Types follow kstatus (`Ready`, `Reconciling`, `Stalled`), so that `kubectl wait`, Argo CD and Flux work without custom
code. Every other word of our status is a reason of one of these types.
"""

from __future__ import annotations

from enum import StrEnum

from goodput.domain.values import Value


class ConditionType(StrEnum):
    """Condition types of a Model (SLO and GPUType use `Ready` alone)."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    SLO_MET = "SLOMet"
    METRICS_FRESH = "MetricsFresh"
    PLACED = "Placed"
    UPDATE_AVAILABLE = "UpdateAvailable"


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class ConditionReason(StrEnum):
    """Why a condition has its status. The comment says what a user should take from it."""

    # Ready
    SERVING = "Serving"  # at least one replica (and the router, where there is one) answers requests
    NO_REPLICA_READY = "NoReplicaReady"  # nothing serves yet, or no longer
    ROUTER_NOT_READY = "RouterNotReady"  # replicas are ready, but no router pod is
    STARTING = "Starting"  # first pods are on their way
    NOT_MANAGED = "NotManaged"  # the spec cannot be read: pods go on as they are, and nobody looks after them
    # Reconciling
    FIRST_SEEN = "FirstSeen"  # the object was just seen; nothing is known yet
    ROLLING_OUT = "RollingOut"  # pods of a new revision replace those of the old one
    CANARY_STARTING = "CanaryStarting"  # a replica of another checkpoint, precision or speculation
    QUALITY_CHECK_RUNNING = "QualityCheckRunning"  # the Job of spec.qualityCheck judges it
    SCALING = "Scaling"  # replicas differ from what was decided
    SETTLED = "Settled"  # what was decided is what runs
    HELD_UP = "HeldUp"  # what was decided does not run yet, and Stalled says what stands in the way
    # Stalled
    INVALID_SPEC = "InvalidSpec"  # a field has a value the schema could not refuse; the message names it
    SLO_NOT_FOUND = "SLONotFound"
    SLO_NOT_ALLOWED = "SLONotAllowed"  # spec.allowedNamespaces of the SLO leaves this namespace out
    SLO_DELETED = "SLODeleted"  # serving on by the last SLO seen
    SERVED_NAME_CONFLICT = "ServedNameConflict"  # another Model of this namespace serves the same name
    SCALER_CONFLICT = "ScalerConflict"  # something else writes replicas of our Deployment
    ROLLOUT_BLOCKED = "RolloutBlocked"  # the new revision does not get ready, or surge GPUs are missing
    QUALITY_CHECK_FAILED = "QualityCheckFailed"  # what serves serves on; the message names the Job
    CANARY_FAILED = "CanaryFailed"  # the canary did not get ready; what serves serves on
    IMAGE_NOT_ALLOWED = "ImageNotAllowed"  # the operator's settings do not allow this image
    IMAGE_PULL_FAILED = "ImagePullFailed"
    SECRET_NOT_FOUND = "SecretNotFound"
    CONFIGMAP_NOT_FOUND = "ConfigMapNotFound"
    CONFIGMAP_UNREADABLE = "ConfigMapUnreadable"  # the API server does not show it; the message says why
    NAME_CONFLICT = "NameConflict"  # an object of a name that we need exists and is not ours
    CRASH_LOOP = "CrashLoop"
    OUT_OF_MEMORY = "OutOfMemory"
    # The cluster takes no pods of this Model: a quota, an admission policy, or the scheduler, but not for lack of GPUs.
    PODS_REFUSED = "PodsRefused"
    API_REFUSED = "APIRefused"  # the API server refused a write; the message is its own
    INTERNAL_ERROR = "InternalError"  # a fault of the operator itself; its log has the whole story
    CRD_OUTDATED = "CRDOutdated"  # the CRDs are older than the operator
    PAUSED = "Paused"
    NOT_STALLED = "NotStalled"
    # Placed
    PLACED = "Placed"
    PRICE_UNKNOWN = "PriceUnknown"  # placed, but no price is known: ranked by GPU count
    GPU_TYPE_NOT_FOUND = "GPUTypeNotFound"  # spec.gpuTypes names a type that neither exists nor is built in
    NO_GPU_TYPE = "NoGPUType"  # no node of the cluster matches any allowed GPU type
    DOES_NOT_FIT = "DoesNotFit"  # weights and one request exceed the memory of every allowed type
    ARCHITECTURE_UNKNOWN = "ArchitectureUnknown"  # neither built in nor given in spec.architecture
    ARCHITECTURE_INVALID = "ArchitectureInvalid"
    INSUFFICIENT_GPUS = "InsufficientGPUs"  # pods are Pending for lack of GPUs; the message says how many
    PARALLELISM_INVALID = "ParallelismInvalid"
    PRECISION_INVALID = "PrecisionInvalid"  # not one that this checkpoint can be loaded in
    SPECULATION_INVALID = "SpeculationInvalid"  # this checkpoint cannot be drafted for in that way
    # SLOMet
    MEETING = "Meeting"
    MISSING_OBJECTIVE = "MissingObjective"  # fewer requests than the SLO asks for meet all objectives
    TOO_FEW_REQUESTS = "TooFewRequests"  # below spec.minRequests of the SLO attainment is not a statement
    UNDECIDED = "Undecided"  # the bounds of attainment lie on both sides of the objective
    SLO_INFEASIBLE = "SLOInfeasible"  # no number of replicas can meet it
    # A limit stops the fleet below what the SLO needs; of Stalled, one of the namespace below minReplicas.
    CAPPED = "Capped"
    FAILING = "Failing"  # requests fail for reasons that replicas do not heal
    # MetricsFresh
    FRESH = "Fresh"
    METRICS_MISSING = "MetricsMissing"  # a query found nothing for pods that serve
    METRICS_STALE = "MetricsStale"
    METRICS_UNLABELLED = "MetricsUnlabelled"  # series exist without our pod labels: relabelling is missing
    PROMETHEUS_UNREACHABLE = "PrometheusUnreachable"
    METRICS_INVALID = "MetricsInvalid"  # NaN or falling counters where none can be
    NO_PODS = "NoPods"  # nothing to measure yet
    # UpdateAvailable
    UP_TO_DATE = "UpToDate"
    RENDERING_CHANGED = "RenderingChanged"  # this operator version would render other pods
    # SLO and GPUType
    IN_USE = "InUse"
    UNUSED = "Unused"
    MATCHES_NODES = "MatchesNodes"
    NO_NODES = "NoNodes"


class Condition(Value, frozen=True):
    """One condition as decided; transition times are added where it is written."""

    type: ConditionType
    status: ConditionStatus
    reason: ConditionReason
    message: str = ""
