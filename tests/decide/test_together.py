"""All Models are counted in one go: none may change what is counted for another."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.decide.builders import CHAT, START, counters, pod, pool, snapshot, telemetry, view

from goodput.decide import Policy, decide
from goodput.domain.identity import Key
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import ModelView, PodState

OBJECTIVES = (CHAT, replace(CHAT, e2e_seconds=20.0), replace(CHAT, ttft_seconds=None), None)


class Life:
    """One Model whose pods come, go, restart, fall silent and miss their objectives, as chance has it."""

    def __init__(self, name: str, draw: random.Random) -> None:
        self.key = Key("default", name)
        self.draw = draw
        self.pods: dict[str, dict[str, float]] = {
            f"{name}-{number}": self._new() for number in range(draw.randint(0, 4))
        }
        self.requests = 0.0
        self.objective = draw.choice(OBJECTIVES)

    def _new(self, at: float = START) -> dict[str, float]:
        zeros = dict.fromkeys(("first", "in_time", "finished", "fast", "running"), 0.0)
        return {**zeros, "created": at - self.draw.choice([10.0, 2000.0]), "scraped": at}

    def step(self, now: float) -> ModelView:
        """What a look finds at `now`."""
        draw = self.draw
        if draw.random() < 0.2:
            self.pods[f"{self.key.name}-{int(now)}"] = self._new(now)
        if self.pods and draw.random() < 0.1:
            del self.pods[draw.choice(sorted(self.pods))]
        if draw.random() < 0.1:
            self.objective = draw.choice(OBJECTIVES)
        self.requests += draw.randint(0, 60)
        rows = [self._scrape(name, now) for name in sorted(self.pods) if draw.random() < 0.9]
        there = [
            pod(name, PodState.READY, created_at=each["created"], ready_at=each["created"] + 5.0)
            for name, each in sorted(self.pods.items())
        ]
        seen = telemetry(*rows, requests=self.requests, at=now - 2.0)
        return view(pool(*there), seen if draw.random() < 0.95 else None, key=self.key, objective=self.objective)

    def _scrape(self, name: str, now: float) -> dict[str, Any]:
        draw, each = self.draw, self.pods[name]
        if draw.random() < 0.05:
            each.update(dict.fromkeys(("first", "in_time", "finished", "fast"), 0.0))
        if draw.random() < 0.8:
            each["scraped"] = now - 5.0 * draw.random()
            came, ended = draw.randint(0, 20), draw.randint(0, 20)
            ended = min(ended, int(each["first"] + came - each["finished"]))
            each["first"] += came
            each["in_time"] += came - min(came, draw.choice([0, 0, 3]))
            each["finished"] += ended
            each["fast"] += ended - min(ended, draw.choice([0, 0, 2]))
            each["running"] = each["first"] - each["finished"]
        return counters(
            name,
            each["scraped"],
            first_tokens=each["first"] if draw.random() < 0.97 else None,
            ttft_within=each["in_time"],
            finished=each["finished"],
            tpot_within=each["fast"],
            e2e_within=each["fast"],
            running=each["running"],
            unsure=draw.choice([0.0, 0.0, 2.0]),
        )


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), models=st.integers(2, 5))
def test_models_are_counted_together_as_each_alone(seed: int, models: int) -> None:
    """Plan and memory of each are those that it has by itself, whatever the pods of the others did."""
    draw = random.Random(seed)
    lives = [Life(f"m{number}", draw) for number in range(models)]
    together: dict[Key, LoopMemory] = {}
    now = START
    for _ in range(12):
        now += draw.choice([10.0, 10.0, 10.0, 60.0, 3000.0])
        views = [life.step(now) for life in lives]
        alone = [decide(snapshot(each, free=1000), together, Policy(), now).models[0] for each in views]
        plans = decide(snapshot(*views, free=1000), together, Policy(), now).models
        for plan, single in zip(plans, alone, strict=True):
            assert plan.memory == single.memory
            assert plan.figures == single.figures
            assert plan.conditions == single.conditions
        together = {plan.key: plan.memory for plan in plans}
