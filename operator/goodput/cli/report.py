"""`report`: the last day as the operator recorded it, and as it would have been under other laws and objectives."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from goodput.cli.flags import model_name, number
from goodput.cli.output import emit, say, show, table
from goodput.cli.simulate import OURS, Progress, complete_policy, policies_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from goodput.cli.recorded import Day
    from goodput.cli.simulated import WhatIf
    from goodput.domain.identity import Key
    from goodput.domain.intent import Objective
    from goodput.domain.ledger import Read
    from goodput.simulator.fleet.outcome import Outcome

_DEFAULT = (OURS, "static-peak", "hpa-queue", "hpa-kv", "llmd-slo")


@click.command(
    epilog="""\b
Examples:
  kubectl goodput report --from ledger/
  kubectl exec deploy/goodput -- sh -c 'cat /var/lib/goodput/ledger/*' | kubectl goodput report --from -
  kubectl goodput report model chat --from ledger/ --slo tpot=80ms --slo ttft=1s,tpot=80ms
  kubectl goodput report model chat --from ledger/ --hours 6 --policy goodput --policy llmd-slo -o html > day.html
"""
)
@click.argument("words", nargs=-1, metavar="[model NAME]")
@click.option(
    "--from",
    "paths",
    multiple=True,
    required=True,
    type=click.Path(exists=True, allow_dash=True, path_type=Path),
    help="File or directory of a ledger, or - for standard input; repeat it.",
)
@click.option("-n", "--namespace", help="Namespace of the Model, where the ledger has several of the name.")
@click.option("--hours", type=number, default=24.0, show_default=True, help="So many before the newest record.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    shell_complete=complete_policy,
    help=f"Whose law to replay; repeat it, or say all. Unset: {', '.join(_DEFAULT)}.",
)
@click.option(
    "--slo",
    "slos",
    multiple=True,
    metavar="ttft=..,tpot=..",
    help="Also ours under another objective (ttft, tpot, e2e, attainment; what is not named stays); repeat it.",
)
@click.option("--startup", type=number, help="Seconds until a new replica serves. Unset: as it was learned.")
@click.option("--gpus", type=click.IntRange(1), help="GPUs that there are. Unset: enough.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of all that is drawn.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml", "html"]),
    default="table",
    show_default=True,
    help="Form of the output.",
)
def report(
    *,
    words: tuple[str, ...],
    paths: tuple[Path, ...],
    namespace: str | None,
    hours: float,
    policies: tuple[str, ...],
    slos: tuple[str, ...],
    startup: float | None,
    gpus: int | None,
    seed: int,
    output: str,
) -> None:
    """Tell the last day of a Model, and what it would have been under other laws or another SLO.

    The load is rebuilt from what the operator counted: requests of each scrape, mean lengths, the share of prompts that
    the cache supplied. How long each request was is drawn, so look at how the replay of our law (the row goodput)
    compares with what was recorded before you believe the other rows.
    """
    from goodput.cli.objectives import objective_of, varied
    from goodput.cli.recorded import days
    from goodput.cli.replayed import Replay, as_it_was, asks_of_day, run_all

    chosen = policies_of(policies) if policies else _DEFAULT
    wanted = [objective_of(text) for text in slos]
    read = _read(paths)
    day = _day(days(read, hours), words, namespace)
    how = Replay(startup_seconds=startup, gpus=gpus, seed=seed)
    asks = asks_of_day(day, seed)
    found = as_it_was(day, asks, how)
    others: list[tuple[str, WhatIf]] = []
    notes = [f"{count} lines of the ledger were {what}" for count, what in _unread(read)]
    for bounds in wanted:
        objective = varied(found.objective, bounds)
        name = _difference(found.objective, objective)
        try:
            others.append((name, as_it_was(day, asks, how, objective)))
        except click.ClickException as error:
            notes.append(f"{name}: {error.message}")
    progress = Progress((*chosen, *(name for name, _ in others)))
    _print(day, found, run_all(found, chosen, others, progress.told), notes, output)


def _read(paths: Sequence[Path]) -> Read:
    from goodput.adapters.ledger_files import lines_of, read_texts
    from goodput.domain.ledger import decode

    piped = Path("-")
    try:
        texts = list(read_texts(path for path in paths if path != piped))
        if piped in paths:
            texts += lines_of(sys.stdin.buffer.read())
        read = decode(texts)
    except OSError as error:
        raise click.ClickException(f"--from {error.filename or ''}: {error.strerror or error}") from error
    if not read.lines:
        unread = ", ".join(f"{count} {what}" for count, what in _unread(read))
        raise click.ClickException(f"--from holds no line of a ledger{f' ({unread})' if unread else ''}")
    return read


def _unread(read: Read) -> list[tuple[int, str]]:
    kinds = (read.damaged, "damaged"), (read.foreign, "of another version, so left out")
    return [(count, what) for count, what in kinds if count]


def _day(found: dict[Key, Day], words: tuple[str, ...], namespace: str | None) -> Day:
    name = model_name(words, "report") if words else None
    chosen = [day for key, day in found.items() if name in (None, key.name) and namespace in (None, key.namespace)]
    if len(chosen) == 1:
        return chosen[0]
    there = ", ".join(str(key) for key in found) or "none that was served and asked for"
    wrong = "says several Models" if chosen else "has no such Model"
    raise click.ClickException(f"the ledger {wrong}: say `model NAME`, and -n NAMESPACE where needed. It has {there}")


def _difference(before: Objective, after: Objective) -> str:
    """`tpot 80 ms instead of 50 ms`."""
    from goodput.domain.percent import percent
    from goodput.perfmodel.verdicts import duration

    def text(seconds: float | None) -> str:
        return "none" if seconds is None else duration(seconds)

    parts = [
        f"{name} {text(now)} instead of {text(then)}"
        for name, then, now in (
            ("TTFT", before.ttft_seconds, after.ttft_seconds),
            ("TPOT", before.tpot_seconds, after.tpot_seconds),
            ("deadline" if after.batch else "end to end", before.e2e_seconds, after.e2e_seconds),
        )
        if then != now
    ]
    if before.attainment != after.attainment:
        parts.append(f"{percent(after.attainment)} instead of {percent(before.attainment)}")
    return ", ".join(parts) or "the same SLO"


def _print(day: Day, found: WhatIf, outcomes: Sequence[Outcome], notes: Sequence[str], output: str) -> None:
    from goodput.cli import reporttext as text
    from goodput.cli import simulatedtext

    heading = [*text.heading(day, found.name), *simulatedtext.heading(found)]
    if output in ("json", "yaml"):
        click.echo("\n".join((*heading, *notes)), err=True)
        emit(text.as_json(day, found, outcomes), output)
        return
    lines = [*text.told(day, found, outcomes), *notes]
    if output == "html":
        from goodput.cli.simulatedpage import page

        click.echo(page(found, outcomes, first=text.row(day, found), said=(heading, lines)))
        return
    say(heading)
    click.echo("")
    rows = [text.row(day, found), *(simulatedtext.row(found, each) for each in outcomes)]
    show(table(simulatedtext.COLUMNS, rows))
    click.echo("")
    say(lines)
