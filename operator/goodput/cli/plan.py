"""`plan`: which GPUs, how many, what it costs; and why nothing else."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TextIO

import click

from goodput.cli.flags import files_option, output_option
from goodput.cli.output import console, emit, say, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from goodput.cli.planned import Planned
    from goodput.domain.intent import GpuType, ModelIntent

MOST_ROWS = 12
_POSITIVE = click.FloatRange(min=0.0, min_open=True, max=1e9)


@click.command(
    epilog="""\b
Examples:
  kubectl goodput plan -f chat.yaml
  kubectl goodput plan -f chat.yaml --rate 10 --input 1200 --output 250
  kubectl goodput plan -f chat.yaml --gpu-type l40s --gpu-type 'h100*' --all
  kubectl goodput plan -f chat.yaml -o json | jq '.[0].options[] | select(.verdict == "Meets")'
"""
)
@files_option(required=True)
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of objects that name none.")
@click.option("--rate", type=_POSITIVE, help="Expected requests per second. Unset: spec.workload.")
@click.option("--input", "input_tokens", type=_POSITIVE, help="Mean tokens of a prompt. Unset: spec.workload.")
@click.option("--output-tokens", type=_POSITIVE, help="Mean tokens of an answer. Unset: spec.workload.")
@click.option("--gpu-type", "patterns", multiple=True, help="GPU types to look at, such as l40s or 'h100*'.")
@click.option("--mig", is_flag=True, help="Also slices of GPUs (MIG profiles), each at its share of the card's price.")
@click.option("--spot", is_flag=True, help="Spot prices, where one is known.")
@click.option("--all", "every", is_flag=True, help="Every option, those that do not fit included.")
@output_option
def plan(
    *,
    files: tuple[TextIO, ...],
    namespace: str,
    rate: float | None,
    input_tokens: float | None,
    output_tokens: float | None,
    patterns: tuple[str, ...],
    mig: bool,
    spot: bool,
    every: bool,
    output: str,
) -> None:
    """Find the cheapest fleet for the Models in files that meets their SLO, and say why it is no other.

    Three questions are asked of every option, in this order: can it run, how long does it take, what does it cost.
    The files also hold the SLOs that the Models name, and GPUTypes that the built-in catalogue lacks or prices wrongly.
    """
    from goodput.cli.documents import read_documents
    from goodput.cli.offline import read_offline
    from goodput.cli.planned import as_json
    from goodput.runtime.settings import Settings

    world = read_offline(read_documents(files), namespace, Settings(prometheus_url=""))
    plans = [
        plan_intent(
            intent,
            world.gpu_types,
            patterns=patterns,
            mig=mig,
            spot=spot,
            rate=rate,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
        )
        for _, intent in world.models
    ]
    if output != "table":
        emit([as_json(each) for each in plans], output)
        return
    for index, each in enumerate(plans):
        if index:
            click.echo("")
        show(each, every)


def show(plan: Planned, every: bool) -> None:
    """Print one plan."""
    from goodput.cli import plantext

    say(plantext.heading(plan))
    click.echo("")
    rows = plantext.rows(plan, every, MOST_ROWS)
    if rows:
        console().print(table(plantext.COLUMNS, rows))
    say(plantext.told(plan, len(rows)))


def plan_intent(
    intent: ModelIntent,
    types: Sequence[GpuType],
    *,
    patterns: Sequence[str] = (),
    mig: bool = False,
    spot: bool = False,
    rate: float | None = None,
    input_tokens: float | None = None,
    output_tokens: float | None = None,
    free: Mapping[str, int] | None = None,
) -> Planned:
    """Plan one Model; what is given here counts before what it says itself.

    Raises:
        click.ClickException: its architecture or SLO is not known, or a pattern names no type.
    """
    from goodput.cli.planned import planned
    from goodput.decide.policy import Policy
    from goodput.perfmodel import Lengths
    from goodput.perfmodel.cost import priced
    from goodput.perfmodel.options import Requirements

    if intent.architecture is None or intent.objective is None:
        raise click.ClickException(f"Model {intent.key.name}: its architecture or its SLO is not known")
    policy = Policy()
    wanted = Requirements(
        arch=intent.architecture,
        objective=intent.objective,
        lengths=Lengths(input_tokens or policy.prior_input_tokens, output_tokens or policy.prior_output_tokens),
        rps=rate or 0.0,
        tensor_parallel=intent.tensor_parallel,
        pipeline_parallel=intent.pipeline_parallel,
        min_replicas=intent.min_replicas,
    )
    candidates, left_out = _candidates(intent, types, patterns, mig)
    return planned(
        intent.key.name,
        intent.slo.name,
        wanted,
        tuple(priced(gpu, spot=spot) for gpu in candidates),
        left_out=left_out,
        free=free,
        lengths_assumed=input_tokens is None or output_tokens is None,
    )


def _candidates(
    intent: ModelIntent, types: Sequence[GpuType], patterns: Sequence[str], mig: bool
) -> tuple[tuple[GpuType, ...], dict[str, tuple[str, ...]]]:
    from goodput.perfmodel.options import allowed

    for pattern in patterns:
        if not any(fnmatchcase(gpu.name, pattern) for gpu in types):
            known = ", ".join(gpu.name for gpu in types if not gpu.slice_of)
            raise click.ClickException(f"--gpu-type: no type is named {pattern}; there are {known}")
    matching = [gpu.name for gpu in types if any(fnmatchcase(gpu.name, pattern) for pattern in patterns)]
    named = [name for name in matching if not intent.gpu_types or name in intent.gpu_types] or intent.gpu_types
    candidates, foreign = allowed(types, named)
    left_out: dict[str, tuple[str, ...]] = {}
    if not named and not mig:
        left_out["MIG profiles, which need cards that are cut so: --mig looks at them too"] = tuple(
            gpu.name for gpu in candidates if gpu.slice_of and gpu.builtin
        )
        candidates = tuple(gpu for gpu in candidates if not (gpu.slice_of and gpu.builtin))
    if foreign:
        left_out["the default engine image does not run there; bring one and name the type in spec.gpuTypes"] = foreign
    return candidates, {why: names for why, names in left_out.items() if names}
