"""Replicas of one option under the expected demand: what they cost, how fast they are, what they use."""

from __future__ import annotations

from goodput.domain.intent import GpuType
from goodput.domain.values import Value
from goodput.perfmodel.capacity import Latency, latency
from goodput.perfmodel.cost import Cost, cost
from goodput.perfmodel.phases import Use, use
from goodput.perfmodel.requirements import Requirements
from goodput.perfmodel.speculating import Choice


class Fleet(Value, frozen=True, kw_only=True):
    """Replicas of one option that carry the expected demand. Costs are in the currency of the GPU prices."""

    replicas: int
    gpus: int
    rps: float  # demand that costs are shared among: the expected one, or what the fleet carries if that is less
    cost: Cost
    at_load: Latency  # of one replica
    use: Use  # of one GPU at that load


def fleet_of(wanted: Requirements, gpu: GpuType, found: Choice, replicas: int) -> Fleet:
    """So many replicas of what was found, at the expected demand or at their capacity."""
    shape = found.shape
    gpus = replicas * shape.tensor_parallel * shape.pipeline_parallel
    most = replicas * found.capacity.rps
    rps = min(wanted.rps, most) if wanted.rps else most
    at = latency(wanted.arch, gpu, shape, wanted.lengths, wanted.objective, rps=rps / replicas, within=found.capacity)
    used = use(
        wanted.arch,
        gpu,
        shape,
        wanted.lengths,
        rps=rps / replicas,
        batch=at.batch,
        tokens_per_step=shape.drafts.tokens_per_step if shape.drafts is not None else 1.0,
    )
    return Fleet(
        replicas=replicas,
        gpus=gpus,
        rps=rps,
        cost=cost(
            gpu,
            gpus=gpus,
            requests_per_second=rps,
            output_tokens_per_second=rps * wanted.lengths.output_mean,
            mfu=used.mfu,
            mbu=used.mbu,
        ),
        at_load=at,
        use=used,
    )
