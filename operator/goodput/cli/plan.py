"""`plan`: which GPUs, how many, what it costs; and why nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as dataclass_replace
from typing import TYPE_CHECKING, TextIO

import click

from goodput.cli.flags import files_option, gpu_type_option, model_name, number, output_option, target_options, tokens
from goodput.cli.output import emit, say, show, table
from goodput.cli.session import Target, namespace_of, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from goodput.cli.planned import Planned
    from goodput.domain.intent import GpuType, ModelIntent, Workload

MOST_ROWS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the command line says beside the Models; None: they say it, or nobody does."""

    rate: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    reasoning_tokens: float | None = None
    patterns: tuple[str, ...] = ()
    mig: bool = False
    spot: bool = False


@click.command(
    epilog="""\b
Examples:
  kubectl goodput plan -f chat.yaml
  kubectl goodput plan -f chat.yaml --rate 10 --input-tokens 1200 --output-tokens 250
  kubectl goodput plan -f chat.yaml --gpu-type l40s --gpu-type 'h100*' --all
  kubectl goodput plan -f chat.yaml --plot frontier=cost.svg --plot roofline=roof.png
  kubectl goodput plan model llama-8b -n team
  kubectl goodput plan -f chat.yaml -o json | jq '.[0].options[] | select(.verdict == "Meets")'
"""
)
@click.argument("words", nargs=-1, metavar="[[model] NAME]")
@files_option(required=False)
@target_options
@click.option("--rate", type=number, help="Expected requests per second.")
@click.option("--input-tokens", "--input", "input_tokens", type=tokens, help="Mean tokens of a prompt.")
@click.option("--output-tokens", type=tokens, help="Mean tokens generated for a request, reasoning included.")
@click.option("--reasoning-tokens", type=tokens, help="Of these, mean tokens before the first visible one.")
@gpu_type_option
@click.option("--mig", is_flag=True, help="Also slices of GPUs (MIG profiles), each at its share of the card's price.")
@click.option("--spot", is_flag=True, help="Spot prices, where one is known.")
@click.option("--all", "every", is_flag=True, help="Every option, those that do not fit included.")
@click.option(
    "--plot",
    "plots",
    multiple=True,
    metavar="KIND=FILE",
    help="frontier=FILE: cost against the SLO. roofline=FILE: the model's phases on each GPU's roof. SVG, PNG or PDF.",
)
@output_option
def plan(
    *,
    words: tuple[str, ...],
    files: tuple[TextIO, ...],
    namespace: str | None,
    context: str | None,
    rate: float | None,
    input_tokens: float | None,
    output_tokens: float | None,
    reasoning_tokens: float | None,
    patterns: tuple[str, ...],
    mig: bool,
    spot: bool,
    every: bool,
    plots: tuple[str, ...],
    output: str,
) -> None:
    """Find the cheapest fleet that meets a Model's SLO, and say why it is no other.

    Of Models in files (-f), which also hold the SLOs that they name and GPUTypes that the built-in catalogue lacks or
    prices wrongly; or of a Model of the cluster, with the demand measured there and the GPUs that are free.

    Three questions are asked of every option, in this order: can it run, how long does it take, what does it cost.
    What is not given here is spec.workload's; what nobody says is assumed, and said so.
    """
    if bool(words) == bool(files):
        raise click.UsageError("say what to plan: a Model of the cluster by NAME, or files with -f")
    drawings = _drawings(plots)
    question = Question(
        rate=rate,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        reasoning_tokens=reasoning_tokens,
        patterns=patterns,
        mig=mig,
        spot=spot,
    )
    notes: list[str] = []
    if words:
        plans = [_of_cluster(model_name(words, "plan"), Target(context, namespace), question, notes)]
    else:
        plans = _of_files(files, namespace or "default", question)
    _draw(plans, drawings)
    if output != "table":
        from goodput.cli.planned import as_json

        emit([as_json(each) for each in plans], output)
        return
    for index, each in enumerate(plans):
        if index:
            click.echo("")
        _show(each, every)
    if len(plans) > 1:
        from goodput.cli.plantext import summed

        click.echo("")
        say(summed(plans))
    say(notes)


def _show(plan: Planned, every: bool) -> None:
    """Print one plan."""
    from goodput.cli import plantext

    say(plantext.heading(plan))
    click.echo("")
    rows = plantext.rows(plan, every, MOST_ROWS)
    if rows:
        show(table(plantext.columns(plan), rows))
    say(plantext.told(plan, len(rows)))


def _of_files(files: Sequence[TextIO], namespace: str, question: Question) -> list[Planned]:
    from goodput.cli.documents import read_documents
    from goodput.cli.offline import read_offline
    from goodput.runtime.settings import Settings

    world = read_offline(read_documents(files), namespace, Settings(prometheus_url=""))
    return [plan_intent(intent, world.gpu_types, question) for _, intent in world.models]


def _of_cluster(name: str, target: Target, question: Question, notes: list[str]) -> Planned:
    from msgspec.structs import replace

    from goodput.cli.live import measured, read_cluster
    from goodput.cli.offline import read_offline
    from goodput.runtime.settings import Settings

    where = namespace_of(target)
    cluster = run(target, lambda api: read_cluster(api, where, name))
    world = read_offline(cluster.documents, where, Settings(prometheus_url=""))
    ((_, intent),) = world.models
    seen = measured(cluster.documents[0])
    if seen.requests_per_second is not None and question.rate is None:
        notes.append("Demand is what users offered over the last 10 minutes, not what may come: --rate asks for more.")
    question = dataclass_replace(
        question,
        rate=question.rate or seen.requests_per_second,
        input_tokens=question.input_tokens or seen.input_tokens,
        output_tokens=question.output_tokens or seen.output_tokens,
    )
    free, types = cluster.supply(world.gpu_types, intent.tolerations)
    notes += cluster.notes
    # What nodes carry is no mere possibility: slices of cards too.
    present = [gpu if free is None else replace(gpu, builtin=False) for gpu in types]
    return plan_intent(intent, present, question, free)


def plan_intent(
    intent: ModelIntent, types: Sequence[GpuType], question: Question, free: Mapping[str, int] | None = None
) -> Planned:
    """Plan one Model; what `question` says counts before what the Model says.

    Raises:
        click.ClickException: its architecture or SLO is not known, or a pattern names no type.
    """
    from msgspec.structs import replace

    from goodput.cli.planned import planned
    from goodput.decide import Policy
    from goodput.decide.choosing import requirements
    from goodput.perfmodel.cost import priced
    from goodput.perfmodel.gpus import whole_cards
    from goodput.perfmodel.options import allowed

    if intent.architecture is None or intent.objective is None:
        raise click.ClickException(f"Model {intent.key.name}: its architecture or its SLO is not known")
    load = _asked(intent.workload, question)
    wanted = requirements(replace(intent, workload=load), intent.architecture, intent.objective, Policy())
    candidates, left_out = _candidates(intent, types, question)
    return planned(
        intent.key.name,
        intent.slo.name,
        wanted,
        tuple(priced(gpu, spot=question.spot) for gpu in candidates),
        every=tuple(priced(gpu, spot=question.spot) for gpu in whole_cards(allowed(types, ())[0])),
        left_out=left_out,
        free=free,
        reasoning_tokens=load.reasoning_tokens,
        lengths_assumed=load.input_tokens is None or load.output_tokens is None,
    )


def _asked(load: Workload, question: Question) -> Workload:
    """The load of the Model, where the command line does not say otherwise.

    Reasoning comes before what a user sees: who gives the one alone leaves the other as it is.
    """
    from msgspec.structs import replace

    from goodput.perfmodel.lengths import PRIOR_OUTPUT_TOKENS

    reasoning = load.reasoning_tokens if question.reasoning_tokens is None else question.reasoning_tokens
    output = question.output_tokens
    if output is None and question.reasoning_tokens is not None:
        output = (load.output_tokens or PRIOR_OUTPUT_TOKENS) - load.reasoning_tokens + reasoning
    elif output is not None and reasoning >= output:
        raise click.ClickException(
            f"--output-tokens: {output:.0f} tokens with {reasoning:.0f} of reasoning leave none to see; give the sum"
        )
    return replace(
        load,
        requests_per_second=question.rate or load.requests_per_second,
        input_tokens=question.input_tokens or load.input_tokens,
        output_tokens=output or load.output_tokens,
        reasoning_tokens=reasoning,
    )


def _candidates(
    intent: ModelIntent, types: Sequence[GpuType], question: Question
) -> tuple[tuple[GpuType, ...], dict[str, tuple[str, ...]]]:
    from goodput.cli.gputypes import matching
    from goodput.perfmodel.options import allowed

    matched = [gpu.name for gpu in matching(types, question.patterns, mig=question.mig)]
    named = [name for name in matched if not intent.gpu_types or name in intent.gpu_types]
    if matched and not named:
        allowed_names = ", ".join(intent.gpu_types)
        raise click.ClickException(f"--gpu-type: spec.gpuTypes of Model {intent.key.name} allows {allowed_names} only")
    named = named or list(intent.gpu_types)
    candidates, foreign = allowed(types, named)
    left_out: dict[str, tuple[str, ...]] = {}
    if not named and not question.mig:
        left_out["MIG profiles, which need cards that are cut so: --mig looks at them too"] = tuple(
            gpu.name for gpu in candidates if gpu.slice_of and gpu.builtin
        )
        candidates = tuple(gpu for gpu in candidates if not (gpu.slice_of and gpu.builtin))
    if foreign:
        left_out["the default engine image does not run there; bring one and name the type in spec.gpuTypes"] = foreign
    return candidates, {why: names for why, names in left_out.items() if names}


def _drawings(plots: Sequence[str]) -> list[tuple[str, Path]]:
    if not plots:
        return []
    from goodput.cli.plots import parse, pyplot

    drawings = [parse(text) for text in plots]
    pyplot()  # says at once what is missing
    return drawings


def _draw(plans: Sequence[Planned], drawings: Sequence[tuple[str, Path]]) -> None:
    if not drawings:
        return
    if len(plans) > 1:
        raise click.UsageError("--plot draws one Model: give a file with one")
    from goodput.cli.plots import draw

    for kind, path in drawings:
        draw(plans[0], kind, path)
