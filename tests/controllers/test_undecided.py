"""What status says of a Model that the laws stumble over, and of one that cannot be read, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from goodput.adapters.kube_errors import Unavailable


async def served(bench: Any) -> None:
    bench.apply(bench.model())
    await bench.tick()
    bench.play_kubelet()
    await bench.tick(2)


async def test_a_served_model_that_cannot_be_decided_serves_on(bench: Any) -> None:
    """Broken, sound, broken again: Ready stays True all the while, Stalled comes, goes and comes."""
    await served(bench)
    before = bench.status()
    for _ in range(2):
        bench.law.broken = {"llama"}
        await bench.tick(2)
        assert bench.condition("Stalled") == ("True", "InternalError")
        assert bench.condition("Ready") == ("True", "Serving")
        assert bench.condition("Reconciling")[0] == "False"
        rest = [{**s, "conditions": [], "observedGeneration": 0} for s in (bench.status(), before)]
        assert rest[0] == rest[1]

        bench.law.broken = set()
        await bench.tick(2)
        assert bench.condition("Stalled") == ("False", "NotStalled")
        assert bench.condition("Ready") == ("True", "Serving")


async def test_a_new_model_that_cannot_be_decided(bench: Any) -> None:
    """Nothing is known of it but that; once it can be, it is served."""
    bench.law.broken = {"llama"}
    bench.apply(bench.model())
    await bench.tick()
    assert bench.condition("Stalled") == ("True", "InternalError")
    assert bench.condition("Ready") == ("Unknown", "FirstSeen")
    assert bench.condition("Reconciling")[0] == "False"
    bench.law.broken = set()
    await bench.tick(2)
    assert bench.condition("Stalled") == ("False", "NotStalled")


@pytest.mark.parametrize("kind", ["invalid", "undecided"])
@pytest.mark.parametrize("why", ["stands by", "away"])
async def test_what_could_not_be_told_is_told_in_the_next_pass(
    bench: Any, make_model: Callable[..., dict[str, Any]], kind: str, why: str
) -> None:
    """A write that did not happen does not count as one."""
    bench.law.broken = {"undecided"}
    bounds = {"minReplicas": 5, "maxReplicas": 2} if kind == "invalid" else {}
    bench.apply(make_model(kind, scaling=bounds))
    statuses = bench.operator.reconciler.statuses
    leading = statuses.leading
    if why == "away":
        bench.api.fault = lambda verb, *_: _away(verb)
    else:
        statuses.leading = lambda: False
    await bench.tick()
    assert not bench.status(kind)
    bench.api.fault = None
    statuses.leading = leading
    await bench.tick()
    assert bench.condition("Stalled", kind)[0] == "True"


def _away(verb: str) -> None:
    if verb == "apply-status":
        raise Unavailable("503", 503)
