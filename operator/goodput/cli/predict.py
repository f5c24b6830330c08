"""`predict`: times of a replica at a fixed concurrency, of one point or of a table of them."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, TextIO

import click

from goodput.cli.flags import FORMATS, complete_gpu_type, complete_model, text_file, tokens
from goodput.cli.output import emit, say, show, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Flag that says what a column of the table holds.
_FLAGS = {
    "system": "--gpu-type",
    "precision": "--precision",
    "tp_size": "--tp",
    "pp_size": "--pp",
    "attention_dp_size": "--dp",
    "moe_ep_size": "--ep",
    "isl": "--input-tokens",
    "osl": "--output-tokens",
    "batch_size": "--batch",
}
_WORTH_TELLING_SECONDS = 1e-4
_COUNT = click.IntRange(1, 1_000_000)
_DEGREE = click.IntRange(1, 1024)


@click.command(
    epilog="""\b
Examples:
  kubectl goodput predict Qwen/Qwen3-32B --gpu-type h100-sxm --tp 2 --input-tokens 4000 --output-tokens 1000 --batch 32
  kubectl goodput predict --points points.csv -o csv > predicted.csv

\b
Columns of the table: model_path, system (a GPU type), precision, tp_size, pp_size, attention_dp_size, moe_ep_size, isl,
osl (tokens in and out), batch_size (requests in flight). Others are kept. Rows come back in their order, each with
ttft_ms, ttft_queue_ms (of that the share of the burst in which all requests start), tpot_ms,
tokens_per_second_per_gpu; what cannot be predicted stays empty, with a reason.
"""
)
@click.argument("model", required=False, metavar="[MODEL]", shell_complete=complete_model)
@click.option("--points", type=text_file(), help="Table of points, as CSV.")
@click.option("--gpu-type", help="GPU type, such as h100-sxm.", shell_complete=complete_gpu_type)
@click.option("--precision", default="", help="Precision of the weights. Unset: as the checkpoint stores them.")
@click.option("--tp", type=_DEGREE, default=1, show_default=True, help="Tensor parallelism.")
@click.option("--pp", type=_DEGREE, default=1, show_default=True, help="Pipeline parallelism.")
@click.option("--dp", type=_DEGREE, default=1, show_default=True, help="Data parallelism of attention.")
@click.option("--ep", type=_DEGREE, default=1, show_default=True, help="Ranks that experts are spread over.")
@click.option(
    "--input-tokens", "--input", "input_tokens", type=tokens, default="1155", show_default=True, help="Of a prompt."
)
@click.option("--output-tokens", type=tokens, default="211", show_default=True)
@click.option("--batch", type=_COUNT, default=1, show_default=True, help="Requests in flight.")
@click.option(
    "-o",
    "--output",
    type=click.Choice([*FORMATS, "csv"]),
    default="table",
    show_default=True,
    help="Form of the output.",
)
def predict(
    *,
    model: str | None,
    points: TextIO | None,
    gpu_type: str | None,
    precision: str,
    tp: int,
    pp: int,
    dp: int,
    ep: int,
    input_tokens: float,
    output_tokens: float,
    batch: int,
    output: str,
) -> None:
    """Predict times of MODEL on one replica that always has so many requests in flight.

    That is how engines are benchmarked (a closed loop): a new request is sent when one ends. For what a replica does
    under requests that come when they come, see `plan`.
    """
    if bool(model) == bool(points):
        raise click.UsageError("say what to predict: MODEL with --gpu-type, or a table with --points")
    if points is not None:
        columns, rows = _read(points)
        answers = _predicted(rows)
    else:
        if gpu_type is None:
            raise click.UsageError("--gpu-type: say on which, such as h100-sxm")
        from goodput.cli.models import named

        # Says what is close where the catalogue lacks it.
        named(model or "", "predict knows no others: size and plan take the config.json of any")
        row = {
            "model_path": model or "",
            "system": gpu_type,
            "precision": precision,
            "tp_size": str(tp),
            "pp_size": str(pp),
            "attention_dp_size": str(dp),
            "moe_ep_size": str(ep),
            "isl": f"{input_tokens:.0f}",
            "osl": f"{output_tokens:.0f}",
            "batch_size": str(batch),
        }
        columns, answers = list(row), _predicted([row], mean_length=1.0)
        if reason := answers[0]["reason"]:
            raise click.ClickException(_by_flag(reason))
    _show(columns, answers, output, one=points is None)


def _predicted(rows: Sequence[Mapping[str, str]], **how: float) -> list[dict[str, str]]:
    """The rows with what is predicted for them, and a reason where their ranks would exchange over a network."""
    from goodput.perfmodel.gpus import beyond_links
    from goodput.perfmodel.points import RESULTS, gpu_of, predict_rows, read_point

    answers = predict_rows(rows, **how)
    for answer in answers:
        if answer["reason"]:
            continue
        point = read_point(answer)
        ranks = {"tp_size": point.tensor, "attention_dp_size": point.tensor * point.data}
        gpu = gpu_of(point.system)
        for column, number in ranks.items():
            if reason := beyond_links(gpu, number):
                answer.update({**dict.fromkeys(RESULTS, ""), "reason": f"{column}: {reason}"})
                break
    return answers


def _by_flag(reason: str) -> str:
    """A reason that names a column, with the flag that stands for it."""
    column, colon, rest = reason.partition(":")
    return f"{_FLAGS[column]}{colon}{rest}" if column in _FLAGS else reason


def _read(points: TextIO) -> tuple[list[str], list[dict[str, str]]]:
    """Columns and rows of a table.

    Raises:
        click.ClickException: it is no table with the columns that are needed; names those that are missing.
    """
    from goodput.perfmodel.points import COLUMNS

    name = getattr(points, "name", "standard input")
    try:
        reader = csv.DictReader(points, strict=True)
        columns = list(reader.fieldnames or ())
        twice = [column for column in COLUMNS if columns.count(column) > 1]
        if twice:
            raise click.ClickException(f"--points: {name} has the columns {', '.join(twice)} twice")
        missing = [column for column in COLUMNS if column not in columns]
        if missing:
            raise click.ClickException(f"--points: {name} lacks the columns {', '.join(missing)}")
        rows = []
        for row in reader:
            if None in row or None in row.values():
                raise click.ClickException(f"--points: line {reader.line_num} of {name} has not {len(columns)} fields")
            rows.append(dict(row))
    except (csv.Error, UnicodeDecodeError) as error:
        raise click.ClickException(f"--points: {name} is no CSV: {error}") from error
    return columns, rows


def _show(columns: list[str], answers: list[dict[str, str]], output: str, *, one: bool) -> None:
    from goodput.perfmodel.points import RESULTS

    wanted = [*(column for column in columns if column not in RESULTS), *RESULTS]
    if output == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, wanted, lineterminator="\n")
        writer.writeheader()
        writer.writerows(answers)
        click.echo(text.getvalue(), nl=False)
    elif output != "table":
        emit([{name: _typed(answer[name], name) for name in wanted} for answer in answers], output)
    elif one:
        say(_told(answers[0]))
    else:
        shown = ("model_path", "system", "tp_size", "isl", "osl", "batch_size", *RESULTS)
        show(table(shown, [[answer[name] for name in shown] for answer in answers]))


def _typed(text: str, name: str) -> Any:
    from goodput.perfmodel.points import RESULTS

    if name not in RESULTS or name == "reason":
        return text or None
    return float(text) if text else None


def _told(answer: dict[str, str]) -> list[str]:
    from goodput.perfmodel.points import gpu_of, read_point
    from goodput.perfmodel.verdicts import duration

    point = read_point(answer)
    ttft, queue, tpot = (float(answer[name]) / 1e3 for name in ("ttft_ms", "ttft_queue_ms", "tpot_ms"))
    burst = f" ({duration(queue)} of it only because all begin at once)" if queue >= _WORTH_TELLING_SECONDS else ""
    requests = "1 request" if answer["batch_size"] == "1" else f"{answer['batch_size']} requests"
    return [
        f"{answer['model_path']} on {point.parallel.gpus} x {gpu_of(point.system).name}, {requests} in flight of "
        f"{answer['isl']} tokens in and {answer['osl']} out:",
        f"  TTFT           {duration(ttft)}{burst}",
        f"  TPOT           {duration(tpot)}",
        f"  Output tokens  {answer['tokens_per_second_per_gpu']} a second and GPU",
    ]
