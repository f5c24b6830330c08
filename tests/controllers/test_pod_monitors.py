"""PodMonitors follow the settings: a Prometheus selects them by labels that an administrator chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from goodput.adapters.kinds import POD_MONITORS
from goodput.domain.identity import Key

TEAM = (("release", "stack"), ("team", "ml"))


@pytest.mark.parametrize("labels", [TEAM[:1], (), (("release", "other"), ("team", "ml"))], ids=str)
async def test_labels_follow_the_settings(
    bench: Any, new_bench: Callable[..., Any], labels: tuple[tuple[str, str], ...]
) -> None:
    """One that is no longer wanted goes as soon as the operator has its new settings; somebody else's stays."""
    key = Key("a", "llama-serve")
    bench.apply(bench.model())
    for given in (TEAM, labels):
        made = new_bench(bench.api, pod_monitor_labels=given)
        made.now = bench.now
        await made.start()
        await made.tick(2)
        await made.stop()
        found = bench.api.objects[POD_MONITORS.plural][key]
        theirs = {"somebody": "else"} if given is labels else {}
        ours = {name: value for name, value in found["metadata"]["labels"].items() if "/" not in name}
        assert ours == {**dict(given), **theirs}
        added = {**found["metadata"], "labels": {**found["metadata"]["labels"], "somebody": "else"}}
        bench.api.put(POD_MONITORS, {**found, "metadata": added})
        bench.now = made.now
    rest = new_bench(bench.api, pod_monitor_labels=labels)
    rest.now = bench.now
    await rest.start()
    bench.api.writes.clear()
    await rest.tick(3)
    await rest.stop()
    assert [write for write in bench.api.writes if write[1] == POD_MONITORS.kind] == []
