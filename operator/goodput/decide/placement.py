"""GPU type and parallelism of one replica: the cheapest that fits and meets the SLO; who is placed stays placed."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from goodput.decide.choosing import NOTHING_BEYOND, choose, requirements, unfit
from goodput.decide.engine import holding, price_of, replica_of
from goodput.decide.policy import Policy
from goodput.domain.conditions import ConditionReason
from goodput.domain.errors import ModelDoesNotFit
from goodput.domain.intent import GpuType, ModelIntent
from goodput.domain.observed import NO_CANARY, GpuSupply, PoolView
from goodput.domain.plan import Placement
from goodput.domain.values import Value
from goodput.perfmodel.judging import unsupported
from goodput.perfmodel.options import allowed


class Placed(Value, frozen=True):
    """A placement, or why there is none (`reason`)."""

    placement: Placement | None
    gpu: GpuType | None = None
    reason: ConditionReason = ConditionReason.PLACED
    message: str = ""
    # Whether only a change of the Model or of GPUTypes can help (else: nodes that may come).
    stalled: bool = False

    @property
    def known(self) -> bool:
        """Whether it is known what a replica can do."""
        return self.gpu is not None


def place(
    intent: ModelIntent,
    pool: PoolView,
    gpus: Mapping[str, GpuType],
    supply: Mapping[str, GpuSupply],
    policy: Policy,
    *,
    free: Mapping[str, int] | None = None,
    strangers: str = "",
    beyond: Mapping[str, str] = NOTHING_BEYOND,
    canary: PoolView = NO_CANARY,
    begun: bool = False,
    served: bool = False,
) -> Placed:
    """Placement of a Model. What is placed stays, unless its type is gone, disallowed or its parallelism was edited.

    Of what has `served`, just as it is asked for, it is not judged again whether it fits.

    `free` holds GPUs by type that no other Model of this tick took yet; None: what `supply` has. `strangers` says which
    accelerators there are that no type counts, for who finds no other, and `beyond` by type which GPUs are not in
    `supply` since its pods do not reach them. Where what runs moves, `canary` stays if it has `begun`, if it is one of
    what is asked for now: users get what was judged, where it was judged.
    """
    arch, objective = intent.architecture, intent.objective
    if arch is None:
        return Placed(
            None,
            None,
            ConditionReason.ARCHITECTURE_UNKNOWN,
            f"spec.architecture: {intent.model} is not built in: give the fields of its config.json",
            True,
        )
    if objective is None:
        return Placed(None, None, ConditionReason.SLO_NOT_FOUND, f"spec.slo: SLO {intent.slo} was never seen", True)
    unknown = [name for name in intent.gpu_types if name not in gpus]
    if unknown and len(unknown) == len(intent.gpu_types):
        return Placed(
            None,
            None,
            ConditionReason.GPU_TYPE_NOT_FOUND,
            f"spec.gpuTypes: no GPUType named {', '.join(unknown)} exists or is built in",
            True,
        )
    stays, incumbent = pool, _incumbent(intent, pool, gpus, supply, served=served)
    if incumbent is None and begun and canary.tally.placed:
        stays, incumbent = canary, _incumbent(intent, canary, gpus, supply)
    if incumbent is None:
        if free is None:
            free = {name: there.free for name, there in supply.items()}
        wanted = requirements(intent, arch, objective, policy)
        chosen = choose(
            intent,
            wanted,
            gpus,
            supply,
            _own(free, pool, canary),
            policy=policy,
            strangers=strangers,
            beyond=beyond,
        )
        best = chosen.option
        if best is None:
            return Placed(None, None, chosen.reason, chosen.message, chosen.stalled)
        shape = (best.shape.tensor_parallel, best.shape.pipeline_parallel)
        placement = replica_of(intent, best.gpu, *shape, policy=policy, rejected=chosen.rejected)
        return Placed(placement, best.gpu, chosen.reason, chosen.message)
    try:
        shape = (stays.tensor_parallel, stays.pipeline_parallel)
        return Placed(replica_of(intent, incumbent, *shape, policy=policy), incumbent)
    except ModelDoesNotFit as error:
        if served and stays.placement is not None:
            return _kept(intent, stays.placement, incumbent, str(error))
        return Placed(None, None, ConditionReason.DOES_NOT_FIT, unfit(intent, str(error)), True)


def _kept(intent: ModelIntent, runs: Placement, gpu: GpuType, why: str) -> Placed:
    """The placement that `runs`: another operator, or a GPUType as it was edited, would not place it anew."""
    placement = replace(
        runs,
        resource_name=gpu.resource_name,
        node_selector=gpu.node_selector,
        tolerations=gpu.tolerations,
        price_per_hour=price_of(gpu, runs.gpus),
        price_assumed=gpu.price_assumed,
    )
    message = f"it serves and stays, though by what is believed now nothing new would be placed so: {why}"
    return Placed(placement, holding(intent, gpu, runs), ConditionReason.PLACED, message)


def _own(free: Mapping[str, int], *pools: PoolView) -> Mapping[str, int]:
    """`free`, and what pools of the Model hold themselves: a roll-out gives it back."""
    found = dict(free)
    for pool in pools:
        own = pool.tally.placed * pool.tensor_parallel * pool.pipeline_parallel
        if own:
            found[pool.gpu_type] = found.get(pool.gpu_type, 0) + own
    return found


def moving(pool: PoolView, placement: Placement) -> bool:
    """Whether what runs is of another GPU type or parallelism than what is to run: its pods are all to be replaced."""
    runs = (pool.gpu_type, pool.tensor_parallel, pool.pipeline_parallel)
    return pool.exists and runs != (placement.gpu_type, placement.tensor_parallel, placement.pipeline_parallel)


def running(pool: PoolView, placement: Placement) -> Placement:
    """What replicas run with: they may have been rendered when something else was believed of their settings."""
    return pool.placement if pool.placement is not None and not moving(pool, placement) else placement


def _incumbent(
    intent: ModelIntent,
    pool: PoolView,
    gpus: Mapping[str, GpuType],
    supply: Mapping[str, GpuSupply],
    *,
    served: bool = False,
) -> GpuType | None:
    gpu = gpus.get(pool.gpu_type) if pool.exists else None
    if gpu is None or (intent.gpu_types and gpu.name not in intent.gpu_types):
        return None
    if intent.tensor_parallel not in (None, pool.tensor_parallel):
        return None
    if intent.pipeline_parallel not in (None, pool.pipeline_parallel):
        return None
    if not served and intent.architecture is not None and unsupported(intent.architecture, intent.precision, gpu):
        return None
    if pool.carrier in gpu.alternatives:
        # Other labels of the same nodes appeared, or became more: no reason to render its pods anew.
        gpu = replace(
            gpu,
            resource_name=pool.carrier.resource_name,
            node_selector=pool.carrier.node_selector,
            alternatives=tuple(way for way in gpu.carriers if way != pool.carrier),
        )
    there = supply.get(gpu.name)
    if any(pod.node is not None for pod in pool.pods) or (there is not None and there.capacity > 0):
        return gpu
    # No node of the type is left and nothing runs: stay only if there is nowhere else to go.
    elsewhere = any(
        other.capacity > 0 and name != gpu.name and name in gpus and allowed((gpus[name],), intent.gpu_types)[0]
        for name, other in supply.items()
    )
    return None if elsewhere else gpu
