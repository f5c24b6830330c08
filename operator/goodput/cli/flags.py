"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])
_MOST = 1e9
FORMATS = ("table", "json", "yaml")
_MODEL_KINDS = ("model", "models", "mdl")


def number(text: str) -> float:
    """A number above 0, up to a billion; NaN is none.

    Raises:
        click.BadParameter: it is not.
    """
    try:
        value = float(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not a number") from error
    if not 0.0 < value <= _MOST:
        raise click.BadParameter(f"{text} is not above 0 and at most {_MOST:,.0f}")
    return value


def output_option(function: Any) -> Any:
    """`-o table|json|yaml`."""
    return click.option(
        "-o", "--output", type=click.Choice(FORMATS), default="table", show_default=True, help="Form of the output."
    )(function)


def complete_model(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Hub ids of the catalogue that go on like this, for the shell."""
    from goodput.perfmodel import model_ids

    return [name for name in model_ids() if name.lower().startswith(incomplete.lower())]


def complete_gpu_type(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """GPU types of the catalogue that go on like this, for the shell; slices once a card is named."""
    from goodput.perfmodel import built_in_gpu_types

    types = [gpu for gpu in built_in_gpu_types() if gpu.name.startswith(incomplete)]
    return [gpu.name for gpu in types if not gpu.slice_of or incomplete.startswith(gpu.slice_of)]


def target_options(function: Any) -> Any:
    """`--context` and `-n`: which cluster and namespace."""
    function = click.option("-n", "--namespace", help="Namespace. Unset: that of the kubeconfig's context.")(function)
    return click.option("--context", help="Context of the kubeconfig. Unset: the current one.")(function)


def model_name(words: tuple[str, ...], command: str) -> str:
    """NAME, `model NAME` or `model/NAME`.

    Raises:
        click.UsageError: neither.
    """
    if len(words) == 2 and words[0] in _MODEL_KINDS:
        return words[1]
    if len(words) == 1:
        kind, slash, name = words[0].partition("/")
        if slash and kind in _MODEL_KINDS:
            return name
        if not slash:
            return words[0]
    raise click.UsageError(f"say which Model: kubectl goodput {command} model NAME")


def text_file() -> click.File:
    """A file of text, or standard input; the mark that editors of some systems begin UTF-8 with is no part of it."""
    return click.File("r", encoding="utf-8-sig")


def tokens(text: str) -> float:
    """A mean number of tokens: 1 at least.

    Raises:
        click.BadParameter: it is not.
    """
    value = number(text)
    if value < 1.0:
        raise click.BadParameter(f"{text} is less than one token")
    return value


def files_option(*, required: bool) -> Callable[[_F], _F]:
    """`-f FILE...`."""
    return click.option(
        "-f", "--filename", "files", type=text_file(), multiple=True, required=required, help="File, or -."
    )


def gpu_type_option(function: Any) -> Any:
    """`--gpu-type NAME...`, wildcards allowed."""
    return click.option(
        "--gpu-type",
        "patterns",
        multiple=True,
        help="GPU types to look at, such as l40s or 'h100*'.",
        shell_complete=complete_gpu_type,
    )(function)


def engine_images(function: Any) -> Any:
    """`--engine-image` and `--router-image`."""
    from goodput.runtime.settings import DEFAULT_ENGINE_IMAGE, DEFAULT_ROUTER_IMAGE

    function = click.option(
        "--router-image", default=DEFAULT_ROUTER_IMAGE, show_default=True, help="Image of routers."
    )(function)
    return click.option(
        "--engine-image", default=DEFAULT_ENGINE_IMAGE, show_default=True, help="Image of engines that name none."
    )(function)
