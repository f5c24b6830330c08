"""`render`: the objects of the Models in files, offline, with the built-in catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

import click

from goodput.cli.flags import engine_images, files_option
from goodput.cli.output import emit, show, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from goodput.api import Model
    from goodput.domain.intent import GpuType, ModelIntent
    from goodput.resources.inputs import KubeObject
    from goodput.runtime.settings import Settings


@click.command()
@files_option(required=True)
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of objects that name none.")
@click.option("--replicas", type=click.IntRange(0), help="Replicas. Unset: what a new Model begins with.")
@engine_images
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
    from goodput.runtime.settings import Settings

    settings = Settings(prometheus_url="", engine_image=engine_image, router_image=router_image)
    objects = rendered(read_documents(files), namespace, settings, replicas)
    if output == "json":
        emit({"apiVersion": "v1", "kind": "List", "items": objects}, "json")
    elif output == "table":
        rows = [[item["kind"], item["metadata"]["namespace"], item["metadata"]["name"]] for item in objects]
        show(table(("kind", "namespace", "name"), rows))
    else:
        import yaml

        click.echo(yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True), nl=False)


def rendered(
    documents: Iterable[dict[str, Any]], namespace: str, settings: Settings, replicas: int | None
) -> list[KubeObject]:
    """Objects of every Model in `documents`, in the order of applying them.

    Raises:
        click.ClickException: an object is wrong, or a Model cannot be placed.
    """
    from goodput.cli.offline import read_offline

    world = read_offline(documents, namespace, settings)
    objects: list[KubeObject] = []
    for model, intent in world.models:
        objects += _objects(model, intent, world.gpu_types, settings, replicas)
    return objects


def _objects(
    model: Model, intent: ModelIntent, types: tuple[GpuType, ...], settings: Settings, replicas: int | None
) -> list[KubeObject]:
    from goodput.cli.placing import placed
    from goodput.resources.render import render_model
    from goodput.runtime.rendering import render_input, render_settings

    pool = placed(intent, types)
    render = render_input(
        model,
        intent,
        pool.placement,
        replicas=replicas if replicas is not None else pool.replicas,
        settings=render_settings(settings, pod_monitor=False),
    )
    return list(render_model(render, {}).objects)
