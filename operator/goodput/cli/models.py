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
from goodput.perfmodel.catalogue import plain_name

_CLOSE = 0.5


def named(model_id: str, otherwise: str = "Any other model: give its config.json with -f") -> Architecture:
    """Architecture of a hub id; `otherwise` says what to do where there is none.

    Raises:
        click.ClickException: the catalogue lacks it; names what is close, and what to do.
    """
    try:
        found = architecture(model_id)
    except InvalidObject as error:
        raise click.ClickException(str(error)) from error
    if found is not None:
        return found
    close = _alike(model_id)
    meant = f" Did you mean {' or '.join(close)}?" if close else ""
    raise click.ClickException(f"{model_id} is not in the built-in catalogue.{meant} {otherwise}")


def _alike(model_id: str) -> list[str]:
    """Hub ids that are close; whoever gives a name alone means the model of that name, whoever publishes it."""
    plain = {plain_name(each): each for each in model_ids()}
    if "/" not in model_id:
        plain = {name.rpartition("/")[2]: each for name, each in plain.items()}
    close = difflib.get_close_matches(plain_name(model_id).lstrip("/"), plain, n=3, cutoff=_CLOSE)
    return [plain[name] for name in close]


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
        except RecursionError as error:
            raise click.ClickException(f"{Path(name).name} is nested too deeply") from error
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
