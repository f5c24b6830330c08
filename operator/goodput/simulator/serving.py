"""An engine that serves by itself, with nobody between its steps."""

from __future__ import annotations

from goodput.simulator.engine import Engine

# When an engine cannot begin anything that waits, it looks again after this time.
RETRY_SECONDS = 1e-3


def serve_next(engine: Engine, clock: float) -> float:
    """Do what an engine with requests does next, several steps at once where they only decode; returns the time after
    it."""
    start = engine.next_start(clock)
    assert start is not None  # there is a request
    stretch = engine.plan_decode(start)
    if stretch is not None:
        engine.decode(stretch, stretch.steps)
        return stretch.ends_at
    step = engine.step(start)
    return start + RETRY_SECONDS if step is None else step.ends_at
