"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])
FORMATS = ("table", "json", "yaml")
_MODEL_KINDS = ("model", "models", "mdl")


class _Positive(click.ParamType):
    """A number above 0, up to a billion; NaN is none."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)
        if not 0.0 < number <= _MOST:
            self.fail(f"{value} is not above 0 and at most {_MOST:.0f}", param, ctx)
        return number


_MOST = 1e9
POSITIVE = _Positive()


def output_option(function: Any) -> Any:
    """`-o table|json|yaml`."""
    return click.option(
        "-o", "--output", type=click.Choice(FORMATS), default="table", show_default=True, help="Form of the output."
    )(function)


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


def files_option(*, required: bool) -> Callable[[_F], _F]:
    """`-f FILE...`."""
    return click.option(
        "-f", "--filename", "files", type=click.File("r"), multiple=True, required=required, help="File, or -."
    )


def engine_images(function: Any) -> Any:
    """`--engine-image` and `--router-image`."""
    from goodput.runtime.settings import DEFAULT_ENGINE_IMAGE, DEFAULT_ROUTER_IMAGE

    function = click.option(
        "--router-image", default=DEFAULT_ROUTER_IMAGE, show_default=True, help="Image of routers."
    )(function)
    return click.option(
        "--engine-image", default=DEFAULT_ENGINE_IMAGE, show_default=True, help="Image of engines that name none."
    )(function)
