"""Hundreds of new Models at once: no step keeps the Lease from being renewed, and work in hand stays bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from goodput.adapters.kinds import DEPLOYMENTS
from goodput.resources.render import render_model
from goodput_controllers import applying


async def test_new_models_are_rendered_a_few_at_a_time(
    bench: Any, make_model: Callable[..., dict[str, Any]], monkeypatch: Any
) -> None:
    """Never are more Models rendered and unwritten than the limit; in the end each has its Deployment."""
    limit, count = 4, 12
    bench.operator.reconciler.slots = asyncio.Semaphore(limit)
    open_now: set[str] = set()
    most = 0

    def watched(render: Any, existing: Any) -> Any:
        nonlocal most
        open_now.add(render.intent.key.name)
        written = {key.name.removesuffix("-serve") for key in bench.api.objects[DEPLOYMENTS.plural]}
        most = max(most, len(open_now - written))
        return render_model(render, existing)

    monkeypatch.setattr(applying, "render_model", watched)
    bench.apply(*(make_model(f"m{number}", servedName=f"m{number}") for number in range(count)))
    await bench.tick(2)
    engines = [key for key in bench.api.objects[DEPLOYMENTS.plural] if key.name.endswith("-serve")]
    assert len(engines) >= count
    assert 1 < most <= limit
