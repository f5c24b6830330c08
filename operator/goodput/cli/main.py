"""`kubectl goodput`: explains decisions, shows the fleet, sizes and plans on files.

Every command is a module of its own that is imported when it runs, and imports what it needs then: an offline command
starts without the parts that talk to a cluster.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from goodput.cli.flags import output_option

PROGRAM = "kubectl-goodput"
# Command -> module that defines it under its own name.
_COMMANDS = {
    "explain": "goodput.cli.explain",
    "plan": "goodput.cli.plan",
    "predict": "goodput.cli.predict",
    "render": "goodput.cli.render",
    "report": "goodput.cli.report",
    "simulate": "goodput.cli.simulate",
    "size": "goodput.cli.size",
    "top": "goodput.cli.top",
}


class Commands(click.Group):
    """Commands by name; those of `_COMMANDS` are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _COMMANDS:
            found: click.Command = getattr(import_module(_COMMANDS[cmd_name]), cmd_name)
            return found
        return super().get_command(ctx, cmd_name)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """vLLM fleets that scale on goodput: what a replica can do, what was decided, and why."""


@main.command()
@output_option
def version(output: str) -> None:
    """Print the version of this program."""
    from importlib.metadata import version as distribution_version

    from goodput.cli.output import emit

    value = distribution_version("goodput-operator")
    if output == "table":
        click.echo(f"kubectl-goodput {value}")
    else:
        emit({"version": value}, output)


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a completion script: `source <(kubectl-goodput completion bash)`."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise click.ClickException(f"no completion for {shell}")
    context: dict[str, Any] = {}
    click.echo(found(main, context, PROGRAM, "_KUBECTL_GOODPUT_COMPLETE").source())


if __name__ == "__main__":
    main()
