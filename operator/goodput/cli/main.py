"""`kubectl goodput`: explains decisions, shows the fleet, renders objects offline."""

from __future__ import annotations

import time
from importlib.metadata import version as distribution_version
from typing import Any, TextIO

import click
import yaml
from click.shell_completion import get_completion_class
from rich.live import Live as LiveDisplay

from goodput.adapters.kinds import MODELS
from goodput.adapters.kube import KubeClient, Object
from goodput.adapters.kube_errors import NotFound
from goodput.cli import explain as explaining
from goodput.cli import top as topping
from goodput.cli.output import console, emit, output_option, table
from goodput.cli.session import Target, list_all, namespace_of, run
from goodput.runtime.settings import DEFAULT_ENGINE_IMAGE, DEFAULT_ROUTER_IMAGE, Settings

PROGRAM = "kubectl-goodput"


def _target_options(function: Any) -> Any:
    function = click.option("-n", "--namespace", help="Namespace. Unset: that of the kubeconfig's context.")(function)
    return click.option("--context", help="Context of the kubeconfig. Unset: the current one.")(function)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """vLLM fleets that scale on goodput: what was decided, and why."""


@main.command()
@click.argument("words", nargs=-1, required=True, metavar="[model] NAME")
@_target_options
@output_option
def explain(words: tuple[str, ...], namespace: str | None, context: str | None, output: str) -> None:
    """Tell the last decision of a Model: what, why, from which numbers, and what was not done."""
    name = _model_name(words)
    target = Target(context, namespace)
    where = namespace_of(target)

    async def fetch(api: KubeClient) -> Object:
        try:
            return await api.get(MODELS, where, name)
        except NotFound as error:
            known = [item["metadata"]["name"] for item in await list_all(api, MODELS, where)]
            there = f"there are: {', '.join(sorted(known))}" if known else "it has none; try -n NAMESPACE"
            raise click.ClickException(f"no Model {name} in namespace {where}; {there}") from error

    model = run(target, fetch)
    if output != "table":
        emit(explaining.explained(model), output)
        return
    for line in explaining.told(model):
        click.echo(line)


@main.command()
@_target_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Models of all namespaces.")
@click.option("-w", "--watch", is_flag=True, help="Refresh until Ctrl-C.")
@click.option("--every", type=click.FloatRange(1.0), default=5.0, show_default=True, help="Seconds between refreshes.")
@click.option(
    "--prometheus-url",
    envvar="GOODPUT_PROMETHEUS_URL",
    help="Live figures from the Prometheus that scrapes the operator. Unset: from status, rounded and rarely written.",
)
@output_option
def top(
    *,
    namespace: str | None,
    context: str | None,
    all_namespaces: bool,
    watch: bool,
    every: float,
    prometheus_url: str | None,
    output: str,
) -> None:
    """Show the fleet: demand, goodput, replicas and cost of every Model."""
    target = Target(context, namespace)
    where = None if all_namespaces else namespace_of(target)

    def look() -> list[dict[str, Any]]:
        models = run(target, lambda api: list_all(api, MODELS, where))
        live: topping.Live = {}
        if prometheus_url:
            try:
                live = topping.live_figures(prometheus_url)
            except (OSError, ValueError, KeyError) as error:
                raise click.ClickException(
                    f"Prometheus at {prometheus_url} cannot be read ({type(error).__name__}): forward its port, or "
                    "leave --prometheus-url out"
                ) from error
        return topping.rows(models, live)

    def shown() -> Any:
        return table(topping.COLUMNS, [[row[column] for column in topping.COLUMNS] for row in look()])

    if output != "table":
        emit(look(), output)
    elif not watch:
        console().print(shown())
    else:
        with LiveDisplay(shown(), console=console(), auto_refresh=False) as display:
            while True:
                time.sleep(every)
                display.update(shown(), refresh=True)


@main.command()
@click.option("-f", "--filename", "files", type=click.File("r"), multiple=True, required=True, help="File, or -.")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of objects that name none.")
@click.option("--replicas", type=click.IntRange(0), help="Replicas. Unset: what a new Model begins with.")
@click.option(
    "--engine-image", default=DEFAULT_ENGINE_IMAGE, show_default=True, help="Image of engines that name none."
)
@click.option("--router-image", default=DEFAULT_ROUTER_IMAGE, show_default=True, help="Image of routers.")
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json", "table"]), default="yaml", show_default=True, help="Form."
)
def render(
    *,
    files: tuple[TextIO, ...],
    namespace: str,
    replicas: int | None,
    engine_image: str,
    router_image: str,
    output: str,
) -> None:
    """Print the objects that Goodput would create for the Models in files, without a cluster.

    The files also hold the SLOs they name, and GPUTypes that the built-in catalogue lacks.
    """
    from goodput.cli.documents import read_documents
    from goodput.cli.render import rendered

    settings = Settings(prometheus_url="", engine_image=engine_image, router_image=router_image)
    objects = rendered(read_documents(files), namespace, settings, replicas)
    if output == "json":
        emit({"apiVersion": "v1", "kind": "List", "items": objects}, "json")
    elif output == "table":
        rows = [[item["kind"], item["metadata"]["namespace"], item["metadata"]["name"]] for item in objects]
        console().print(table(("kind", "namespace", "name"), rows))
    else:
        click.echo(yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True), nl=False)


@main.command()
@output_option
def version(output: str) -> None:
    """Print the version of this program."""
    value = distribution_version("goodput-operator")
    if output == "table":
        click.echo(f"kubectl-goodput {value}")
    else:
        emit({"version": value}, output)


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a completion script: `source <(kubectl-goodput completion bash)`."""
    found = get_completion_class(shell)
    if found is None:
        raise click.ClickException(f"no completion for {shell}")
    click.echo(found(main, {}, PROGRAM, "_KUBECTL_GOODPUT_COMPLETE").source())


def _model_name(words: tuple[str, ...]) -> str:
    """NAME, `model NAME` or `model/NAME`."""
    kinds = ("model", "models", "mdl")
    if len(words) == 2 and words[0] in kinds:
        return words[1]
    if len(words) == 1:
        kind, slash, name = words[0].partition("/")
        if slash and kind in kinds:
            return name
        if not slash:
            return words[0]
    raise click.UsageError("say which Model: kubectl goodput explain model NAME")


if __name__ == "__main__":
    main()
