"""Status of SLOs and GPUTypes: one that cannot be written holds up none of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from goodput.adapters.kinds import GPU_TYPES, SLOS, Resource
from goodput.adapters.kube_errors import KubeError, Refused, Unavailable
from goodput.domain.identity import Key
from goodput_controllers import side_status


def failing_for(name: str, error: KubeError, asked: list[str]) -> Callable[[str, Resource, str], None]:
    def fault(verb: str, resource: Resource, of: str) -> None:
        if verb == "apply-status" and resource in (SLOS, GPU_TYPES):
            asked.append(of)
            if of == name:
                raise error

    return fault


@pytest.mark.parametrize(
    "error", [Refused("denied by policy", 403), Unavailable("the webhook did not answer", 500)], ids=["no", "later"]
)
async def test_a_status_that_is_refused_holds_up_no_other(bench: Any, error: KubeError) -> None:
    """What sorts later is written in the same pass; the refused one is tried at growing distances, and mends."""
    for name in ("a", "b"):
        bench.apply({"kind": "SLO", "metadata": {"name": name, "namespace": "a"}, "spec": {"ttft": "1s"}})
    bench.api.put(GPU_TYPES, {"metadata": {"name": "l40s"}, "spec": {}})
    asked: list[str] = []
    bench.api.fault = failing_for("a", error, asked)
    await bench.tick()
    assert bench.api.objects[SLOS.plural][Key("a", "b")]["status"]["conditions"]
    assert bench.api.objects[GPU_TYPES.plural][Key("", "l40s")]["status"]["conditions"]
    assert "status" not in bench.api.objects[SLOS.plural][Key("a", "a")]

    await bench.tick(100, seconds=3.0)
    assert asked.count("a") < 12
    asked.clear()
    await bench.tick(2, seconds=side_status.LAST_BACKOFF_SECONDS)
    assert asked.count("a") >= 1

    bench.api.fault = None
    await bench.tick()
    assert bench.api.objects[SLOS.plural][Key("a", "a")]["status"]["conditions"]
