# ruff: noqa: F811 - fixtures come by import
"""What the API server does with wrong and with right manifests, by the schemas and rules of our CRDs alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.data.bad_manifests.table import Row, rows

from goodput.api.kinds import KINDS
from goodput_world.cluster import REPOSITORY
from schema_server import Server, any_cluster, server  # noqa: F401 - fixtures

_KINDS = {kind.kind: kind for kind in KINDS}
_EXAMPLES = sorted((REPOSITORY / "examples").glob("*.yaml"))


def _causes(answer: dict[str, Any]) -> list[dict[str, str]]:
    causes: list[dict[str, str]] = answer.get("details", {}).get("causes", [])
    return causes


@pytest.mark.parametrize("row", rows("apiserver"), ids=lambda row: row.name)
async def test_the_api_server_refuses_it(row: Row, server: Server) -> None:
    """The HTTP status is exact, the field is named, and the message says what a right value looks like."""
    status, answer = await asyncio.to_thread(server.create, row.manifest)
    assert status == row.expect["status"], answer
    field, message = row.expect["field"], row.expect["message"]
    if status == 400:  # strict decoding names fields in its message only
        assert f'unknown field "{field}"' in answer["message"]
        return
    named = [cause["message"] for cause in _causes(answer) if cause.get("field") == field]
    assert any(message in text for text in named), _causes(answer)


@pytest.mark.parametrize("path", _EXAMPLES, ids=lambda path: path.stem)
async def test_examples_are_accepted(path: Path, server: Server) -> None:
    """Every example is taken as it is, and reads back in Python with the defaults that the API server filled in."""
    raw = yaml.safe_load(path.read_text())
    raw["metadata"]["name"] = "example-under-another-name"  # the cluster may have the example itself
    status, answer = await asyncio.to_thread(server.create, yaml.safe_dump(raw))
    assert status == 201, answer
    model = _KINDS[raw["kind"]].model
    assert model.parse(answer).spec == model.parse(raw).spec  # type: ignore[attr-defined]


@pytest.mark.parametrize("row", rows("condition"), ids=lambda row: row.name)
async def test_what_a_schema_cannot_know_is_accepted(row: Row, server: Server) -> None:
    """A mistake that only the operator can see passes the API server: its condition is asserted elsewhere."""
    for manifest in [row.manifest, *[text for text in row.beside.split("---\n") if "goodput.dev" in text]]:
        status, answer = await asyncio.to_thread(server.create, manifest)
        assert status == 201, answer
