"""CRDs that are not those of this operator are told at its start, and stop nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from goodput.adapters.fakes import FakeKube
from goodput.adapters.kinds import CRDS
from goodput.adapters.kube_errors import Refused
from goodput.api.schema import HASH_ANNOTATION
from goodput_controllers.crds import compare_crds

FILES = Path(__file__).resolve().parents[2] / "crds"


@pytest.fixture
def api() -> FakeKube:
    """A cluster with the CRDs of this repository."""
    made = FakeKube()
    for file in sorted(FILES.glob("*.yaml")):
        made.put(CRDS, yaml.safe_load(file.read_text()))
    return made


async def test_our_own_crds_are_ours(api: FakeKube) -> None:
    """What crds/ holds is what the operator was built with."""
    assert len(api.objects[CRDS.plural]) == 3
    assert await compare_crds(api) == []


@pytest.mark.parametrize("annotations", [None, {}, {HASH_ANNOTATION: "0123456789abcdef"}])
async def test_an_old_crd_is_told(api: FakeKube, caplog: pytest.LogCaptureFixture, annotations: Any) -> None:
    """Of another release, or without a hash: one warning that names it and what to do."""
    key, found = next(iter(api.objects[CRDS.plural].items()))
    found["metadata"]["annotations"] = annotations
    assert await compare_crds(api) == [key.name]
    (told,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert key.name in told
    assert "apply crds/" in told


async def test_whoever_may_not_look_starts_all_the_same(api: FakeKube) -> None:
    """Without the right to read CRDs nothing is said to be wrong."""

    def forbid(verb: str, *_: object) -> None:
        raise Refused("forbidden", 403)

    api.fault = forbid
    assert await compare_crds(api) == []


async def test_an_operator_compares_at_its_start(
    api: FakeKube, caplog: pytest.LogCaptureFixture, new_bench: Callable[..., Any]
) -> None:
    """The process itself warns, and then runs."""
    for found in api.objects[CRDS.plural].values():
        found["metadata"]["annotations"] = {}
    bench = new_bench(api)
    running = asyncio.create_task(bench.operator.run())
    async with asyncio.timeout(20):
        while bench.operator.problem or bench.operator.unsynced():
            await asyncio.sleep(0.01)
    bench.operator.stop.set()
    await running
    warned = [record.getMessage() for record in caplog.records if "this operator was built with" in record.getMessage()]
    assert len(warned) == 3
