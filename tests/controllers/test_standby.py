"""An operator that stands by keeps nothing of what is gone."""

from __future__ import annotations

from typing import Any

from goodput.adapters.kinds import DEPLOYMENTS, GPU_TYPES, SLOS
from goodput.domain.identity import Key

LATE = {"kind": "SLO", "metadata": {"name": "late", "namespace": "a"}, "spec": {"ttft": "500ms", "tpot": "50ms"}}


async def test_a_model_is_not_placed_by_what_went_before_it_came(bench: Any) -> None:
    """SLO and GPUType come and go while another one leads; the Model that names them comes later."""
    bench.operator.loop.leading = lambda: False
    bench.apply(LATE)
    bench.api.put(GPU_TYPES, {"metadata": {"name": "mine"}, "spec": {"nodeSelector": {"gpu": "mine"}}})
    await bench.tick()
    bench.api.remove(SLOS, Key("a", "late"))
    bench.api.remove(GPU_TYPES, Key("", "mine"))
    await bench.tick()
    bench.apply(bench.model(slo="late"))
    await bench.tick()
    assert bench.operator.world.gpu_types.deleted_keys() == []

    bench.operator.loop.leading = lambda: True
    await bench.tick()
    assert bench.condition("Stalled") == ("True", "SLONotFound")
    assert not bench.api.objects[DEPLOYMENTS.plural]


async def test_what_a_model_uses_is_kept_while_standing_by(bench: Any) -> None:
    """The SLO of a Model and the type that it runs on stay as they were last seen."""
    bench.apply(LATE, bench.model(slo="late"))
    bench.api.put(GPU_TYPES, {"metadata": {"name": "l40s"}, "spec": {"nodeSelector": {"gpu": "mine"}}})
    await bench.tick()
    bench.operator.loop.leading = lambda: False
    bench.api.remove(SLOS, Key("a", "late"))
    bench.api.remove(GPU_TYPES, Key("", "l40s"))
    await bench.tick(2)
    assert bench.operator.world.slos.deleted_keys() == [Key("a", "late")]
    assert bench.operator.world.gpu_types.deleted_keys() == [Key("", "l40s")]
