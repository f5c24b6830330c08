"""A model named on the command line: a hub id of the catalogue, a config.json, or a Model in a manifest."""

from __future__ import annotations

import difflib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import click

from goodput.domain.architecture import Architecture
from goodput.domain.errors import InvalidObject
from goodput.perfmodel import architecture, architecture_from_config, model_ids

_CLOSE = 0.5


def named(model_id: str) -> Architecture:
    """Architecture of a hub id.

    Raises:
        click.ClickException: the catalogue lacks it; names what is close, and what to do.
    """
    try:
        found = architecture(model_id)
    except InvalidObject as error:
        raise click.ClickException(str(error)) from error
    if found is not None:
        return found
    names = {name.lower(): name for name in model_ids()}
    close = [names[name] for name in difflib.get_close_matches(model_id.lower(), names, n=3, cutoff=_CLOSE)]
    meant = f" Did you mean {' or '.join(close)}?" if close else ""
    raise click.ClickException(
        f"{model_id} is not in the built-in catalogue.{meant} Any other model: give its config.json with -f"
    )


def read(files: Sequence[TextIO]) -> list[Architecture]:
    """Architectures of config.json files, and of the Models in manifests.

    Raises:
        click.ClickException: a file is neither, or describes what cannot be sized; names the field.
    """
    found: list[Architecture] = []
    for file in files:
        name = getattr(file, "name", "standard input")
        try:
            text = file.read()
        except UnicodeDecodeError as error:
            raise click.ClickException(f"{Path(name).name} is no text: {error}") from error
        try:
            config = json.loads(text)
        except ValueError:
            config = None
        if isinstance(config, dict) and "kind" not in config:
            found.append(of_config(str(config.get("_name_or_path") or Path(name).stem), config))
        else:
            found += _of_manifests(text, name)
    return found


def of_config(name: str, config: Mapping[str, Any]) -> Architecture:
    """Architecture of a config.json.

    Raises:
        click.ClickException: names the field that is wrong or not supported.
    """
    try:
        return architecture_from_config(name, config)
    except InvalidObject as error:
        field = error.field.removeprefix("spec.architecture.")
        raise click.ClickException(f"{name}: {field}: {error.message}") from error


def _of_manifests(text: str, name: str) -> list[Architecture]:
    from goodput.cli.documents import read_documents
    from goodput.cli.offline import read_offline
    from goodput.runtime.settings import Settings

    stream = io.StringIO(text)
    stream.name = name
    world = read_offline(read_documents([stream]), "default", Settings(prometheus_url=""), slo_needed=False)
    return [intent.architecture for _, intent in world.models if intent.architecture is not None]
