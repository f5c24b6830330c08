"""What one replica of the simulated engine can do, measured: the yardstick for the fixed fleet that the demo is held
against.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from goodput.simulator.capacity import Objective, engine_config, max_rate
from goodput.simulator.plant import Plant
from goodput_world.demo.objects import DemoObjects
from goodput_world.demo.summary import StaticPeak
from goodput_world.replay.schedule import Request, busiest_minute_rps

_TRIAL_SECONDS = 600.0


def static_peak(plant_file: Path, requests: Sequence[Request], objects: DemoObjects) -> StaticPeak:
    """The fixed fleet for these requests: its replica is measured with their lengths, Poisson arrivals and the demo's
    SLO.

    Takes seconds: some ten runs of `_TRIAL_SECONDS` are simulated. Raises PlantError for an unusable plant, ValueError
    when one replica cannot hold the SLO at any rate.
    """
    plant = Plant.from_mapping(json.loads(plant_file.read_text(encoding="utf-8")))
    slo = objects.objectives
    objective = Objective(slo.ttft_seconds, slo.tpot_seconds, slo.e2e_seconds, objects.attainment)
    lengths = [(request.input_tokens, request.output_tokens) for request in requests]
    rate_rps = max_rate(plant, engine_config(plant), lengths, objective, seconds=_TRIAL_SECONDS)
    if rate_rps <= 0.0:
        raise ValueError(f"{plant_file.name}: one replica of this plant cannot hold the SLO at any rate")
    return StaticPeak(busiest_minute_rps(requests), rate_rps, plant.gpus)
