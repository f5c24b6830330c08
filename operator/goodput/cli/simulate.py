"""`simulate`: what a fleet would have done with the requests of a trace, under this operator and under others."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from goodput.cli.flags import files_option, gpu_type_option, number
from goodput.cli.output import emit, say, show, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from goodput.cli.simulated import WhatIf
    from goodput.domain.intent import GpuType, ModelIntent
    from goodput.simulator.fleet.outcome import Outcome

OURS = "goodput"
# Runs that take longer than this say how far they are, and again after each of these times.
_PATIENCE_SECONDS, _AGAIN_SECONDS = 3.0, 10.0


def _policies(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    return policies_of(names)


def policies_of(names: Sequence[str]) -> tuple[str, ...]:
    """The policies by their names, each once; `all` stands for every one.

    Raises:
        click.BadParameter: a name is none.
    """
    from goodput.simulator.policies import POLICIES

    chosen: list[str] = []
    for name in names or (OURS,):
        if name != "all" and name not in POLICIES:
            raise click.BadParameter(f"{name!r} is none of all, {', '.join(POLICIES)}")
        chosen += POLICIES if name == "all" else (name,)
    return tuple(dict.fromkeys(chosen))


def complete_policy(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Policies that go on like this, for the shell."""
    from goodput.simulator.policies import POLICIES

    return [name for name in ("all", *POLICIES) if name.startswith(incomplete)]


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(
    epilog="""\b
Examples:
  kubectl goodput simulate -f chat.yaml --trace monday.csv
  kubectl goodput simulate -f chat.yaml --trace monday.csv --policy goodput --policy static-peak --policy llmd-slo
  kubectl goodput simulate -f chat.yaml --trace monday.csv --policy all -o html > monday.html
  kubectl goodput simulate -f chat.yaml --trace monday.csv --compress 2 --startup 300
  kubectl goodput simulate -f chat.yaml --trace monday.csv -o json | jq '.[] | {policy, attainment, cost}'
  kubectl goodput simulate -f chat.yaml --trace monday.csv --require-attainment || exit 1
"""
)
@files_option(required=True)
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of objects that name none.")
@click.option("--model", "model", help="Which Model, where the files hold several.")
@click.option("--trace", "trace", type=_FILE, required=True, help="Requests: CSV or JSON lines, gzip or not.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    callback=_policies,
    shell_complete=complete_policy,
    help="Whose law scales the fleet; repeat it, or say all. Unset: goodput.",
)
@click.option("--startup", type=number, default=100.0, show_default=True, help="Seconds until a new replica serves.")
@click.option("--compress", type=number, default=1.0, show_default=True, help="Play the trace so many times as fast.")
@click.option("--first", type=number, help="Only the first so many seconds of it, after --compress.")
@click.option("--replicas", type=click.IntRange(1), help="Replicas at the start. Unset: for the first five minutes.")
@click.option("--gpus", type=click.IntRange(1), help="GPUs that there are. Unset: enough.")
@gpu_type_option
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of all that is drawn.")
@click.option("--plant", type=_FILE, help="JSON file that says what one replica really does. Unset: drawn.")
@click.option("--perfect", is_flag=True, help="Draw nothing: hardware that is just as published points say.")
@click.option("--no-admission", is_flag=True, help="Engines refuse nobody: requests wait instead.")
@click.option("--require-attainment", is_flag=True, help="Exit with 1 if goodput misses the SLO's attainment.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml", "html"]),
    default="table",
    show_default=True,
    help="Form of the output.",
)
def simulate(
    *,
    files: tuple[TextIO, ...],
    namespace: str,
    model: str | None,
    trace: Path,
    policies: tuple[str, ...],
    startup: float,
    compress: float,
    first: float | None,
    replicas: int | None,
    gpus: int | None,
    patterns: tuple[str, ...],
    seed: int,
    plant: Path | None,
    perfect: bool,
    no_admission: bool,
    require_attainment: bool,
    output: str,
) -> None:
    """Play a trace to the fleet of a Model, before a roll-out: who would be served well, and what would it cost?

    Engines batch, queue and refuse as vLLM does; routers, scrapes, start-up and drain are those of a cluster. The
    operator's law is the one that runs there, and it does not know the plant: efficiencies are drawn within a fifth of
    what published points say. Other laws run on the same engines with the same requests.
    """
    from goodput.cli.simulated import Question, asks_from, what_if
    from goodput.cli.simulated import simulate as simulated

    if plant is not None and perfect:
        raise click.UsageError("--plant gives the plant, --perfect draws nothing of one: say one of them")
    if require_attainment and OURS not in policies:
        raise click.UsageError(f"--require-attainment looks at {OURS}: add --policy {OURS}")
    question = Question(
        startup_seconds=startup,
        seed=seed,
        compress=compress,
        first_seconds=first,
        replicas=replicas,
        gpus=gpus,
        plant=plant,
        perfect=perfect,
        admission=not no_admission,
    )
    intent, types = _model(files, namespace, model, patterns)
    found = what_if(intent.key.name, intent, types, asks_from(trace, question), question)
    progress = Progress(policies)
    outcomes = simulated(found, policies, progress.told)
    _print(found, outcomes, output)
    if require_attainment:
        _require(found, outcomes)


def _model(
    files: Sequence[TextIO], namespace: str, name: str | None, patterns: Sequence[str]
) -> tuple[ModelIntent, tuple[GpuType, ...]]:
    """The Model that is meant, on the GPU types that are."""
    from msgspec.structs import replace

    from goodput.cli.documents import read_documents
    from goodput.cli.gputypes import matching
    from goodput.cli.offline import read_offline
    from goodput.runtime.settings import Settings

    world = read_offline(read_documents(files), namespace, Settings(prometheus_url=""))
    names = [intent.key.name for _, intent in world.models]
    chosen = [intent for _, intent in world.models if name in (None, intent.key.name)]
    if len(chosen) != 1:
        wrong = f"there is no Model {name}" if name else "the files hold several Models"
        raise click.ClickException(f"{wrong}: say --model {' or '.join(names)}")
    (intent,) = chosen
    if patterns:
        named = tuple(gpu.name for gpu in matching(world.gpu_types, patterns, mig=False))
        allowed = tuple(each for each in named if not intent.gpu_types or each in intent.gpu_types)
        if not allowed:
            raise click.ClickException(
                f"--gpu-type: spec.gpuTypes of Model {intent.key.name} allows {', '.join(intent.gpu_types)} only"
            )
        intent = replace(intent, gpu_types=allowed)
    return intent, world.gpu_types


def _print(found: WhatIf, outcomes: Sequence[Outcome], output: str) -> None:
    from goodput.cli import simulatedtext as text

    if output in ("json", "yaml"):
        click.echo("\n".join(text.heading(found)), err=True)
        emit([text.as_json(found, outcome) for outcome in outcomes], output)
    elif output == "html":
        from goodput.cli.simulatedpage import page

        click.echo(page(found, outcomes))
    else:
        say(text.heading(found))
        click.echo("")
        show(table(text.COLUMNS, [text.row(found, outcome) for outcome in outcomes]))
        notes = list(text.told(found, outcomes))
        if notes:
            click.echo("")
            say(notes)


def _require(found: WhatIf, outcomes: Sequence[Outcome]) -> None:
    """Raises `click.ClickException` where the operator's fleet misses the SLO."""
    from goodput.cli.figures import share

    ours = next(outcome for outcome in outcomes if outcome.policy == OURS)
    wanted = found.objective.attainment
    if ours.attainment < wanted:
        raise click.ClickException(f"attainment is {share(ours.attainment)}, the SLO wants {share(wanted)}")


class Progress:
    """Says on standard error how far a long run is."""

    def __init__(self, policies: Sequence[str]) -> None:
        self._places = {name: place for place, name in enumerate(policies, start=1)}
        self._next = time.monotonic() + _PATIENCE_SECONDS

    def told(self, policy: str, over: float) -> None:
        """So much of the run of a policy is over."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _AGAIN_SECONDS
        place = f"{self._places[policy]} of {len(self._places)}"
        print(f"{policy} ({place}): {100.0 * min(1.0, over):.0f} %", file=sys.stderr, flush=True)
