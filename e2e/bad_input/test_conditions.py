"""What a schema cannot know becomes a condition that names the field; a healthy Model beside it scales meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio
import yaml
from tests.data.bad_manifests.table import Row, rows

from bad_input.strict import assert_unshaken
from fleets import Fleet
from goodput_world.world import World

ROWS = rows("condition")
_TOLD_SECONDS = 30.0


def _namespace(row: Row) -> str:
    return f"bad-{row.name}"


def _placed(text: str, row: Row) -> list[dict[str, Any]]:
    """The objects of YAML text; those without a namespace are put into the row's own."""
    found = [each for each in yaml.safe_load_all(text) if each]
    for each in found:
        if each["kind"] != "GPUType":
            each["metadata"].setdefault("namespace", _namespace(row))
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def wrong(strict: World, healthy: Fleet) -> World:
    """The world with every row of the table applied, each in a namespace of its own."""
    names = [_namespace(row) for row in ROWS]
    await strict.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names])
    await strict.apply([each for row in ROWS for each in _placed(row.beside, row)])
    await strict.apply([each for row in ROWS for each in _placed(row.manifest, row)])
    return strict


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_it_becomes_a_condition_that_names_the_field(row: Row, wrong: World) -> None:
    """Type, status and reason are exact; the message names the field; it is told within half a minute."""
    wanted = tuple(row.expect[name] for name in ("type", "status", "reason"))
    manifest = row.object
    kind, name = f"{manifest['kind'].lower()}.goodput.dev", manifest["metadata"]["name"]
    where = None if manifest["kind"] == "GPUType" else _namespace(row)
    seen: list[dict[str, str]] = []

    async def told() -> dict[str, str] | None:
        found = await wrong.get(kind, name, namespace=where)
        seen[:] = found.get("status", {}).get("conditions", [])
        return next((each for each in seen if (each["type"], each["status"], each["reason"]) == wanted), None)

    try:
        condition = await wrong.wait_for(told, what=f"{row.name}: {wanted}", timeout_seconds=_TOLD_SECONDS)
    except Exception as error:
        raise AssertionError(f"{error}\n{yaml.safe_dump(seen)}") from error
    assert row.expect["field"] in condition["message"], condition


async def test_a_healthy_model_beside_them_scales_meanwhile(wrong: World, healthy: Fleet) -> None:
    """From one replica to two while every wrong object is there; the operator met nothing unforeseen."""
    before = await healthy.uids("serve")
    await healthy.patch({"scaling": {"minReplicas": 2}})
    await healthy.wait_serving(2, timeout_seconds=30)
    assert before < await healthy.uids("serve"), "the first replica stays"
    await assert_unshaken(wrong)


async def test_the_slo_column_shows_the_slo_of_another_namespace(wrong: World, healthy: Fleet) -> None:
    """`kubectl get models`: the SLO's name, with its namespace where that is another one."""
    column = ("-o", "custom-columns=SLO:.status.slo", "--no-headers")
    own = await wrong.kubectl("get", "models", "healthy", "-n", healthy.namespace, *column)
    other = await wrong.kubectl("get", "models", "wrong", "-n", "bad-slo-not-allowed", *column)
    assert (own.strip(), other.strip()) == ("chat", "default/closed")
