"""Where the operator would place a Model of files: every GPU type is there in plenty."""

from __future__ import annotations

from collections.abc import Sequence

import click

from goodput.decide import Policy, decide
from goodput.domain.errors import InvalidObject
from goodput.domain.identity import ROUTER_POOL, SERVE_POOL
from goodput.domain.intent import GpuType, ModelIntent
from goodput.domain.observed import GpuSupply, ModelView, PoolView, Snapshot
from goodput.domain.plan import PoolPlan

# Offline every type is there in plenty: what fits best is shown, not what is free.
PLENTY_OF_NODES = 1000


def placed(intent: ModelIntent, types: Sequence[GpuType]) -> PoolPlan:
    """The first pool of a Model. Slices of cards exist where a Model names them, or a GPUType says so.

    Raises:
        click.ClickException: it cannot be placed, and why.
    """
    supply = tuple(
        GpuSupply(type=gpu.name, nodes=PLENTY_OF_NODES, installed=PLENTY_OF_NODES * gpu.gpus_per_node, used=0)
        for gpu in types
        if gpu.name in intent.gpu_types or not (gpu.slice_of and gpu.builtin)
    )
    view = ModelView(
        intent=intent,
        pool=PoolView(name=SERVE_POOL, exists=False),
        router=PoolView(name=ROUTER_POOL, exists=False),
        telemetry=None,
    )
    try:
        plan = decide(Snapshot(models=(view,), gpu_types=tuple(types), supply=supply), {}, Policy(), 1.0).models[0]
    except InvalidObject as error:
        raise click.ClickException(f"Model {intent.key.name}: {error}") from error
    if plan.pool is None:
        why = next((c.message for c in plan.conditions if c.type == "Placed"), "it cannot be placed")
        raise click.ClickException(f"Model {intent.key.name}: {why}")
    return plan.pool
