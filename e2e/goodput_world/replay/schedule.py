"""From a trace to the requests of one run: when each is sent and how long it is. Pure and seeded."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from goodput_world.replay.envelope import Envelope
from goodput_world.replay.traces import TraceRequest

# A copy of a doubled request comes up to this much later, so that doubling adds arrivals and not pairs.
COPY_DELAY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Request:
    """A request to send `offset_seconds` after the start of the replay.

    `id` names its place in the trace (`17`), its copy (`17+1`) and, once the trace wrapped around, its lap (`2.17`).
    """

    offset_seconds: float
    input_tokens: int
    output_tokens: int
    id: str
    blocks: tuple[int, ...] = ()


def _endless(trace: Sequence[TraceRequest]) -> Iterator[tuple[str, float, TraceRequest]]:
    """The trace over and over; the seam is as wide as its mean gap, so that it makes neither a pause nor a burst."""
    span_seconds = trace[-1].offset_seconds - trace[0].offset_seconds
    lap_seconds = span_seconds * len(trace) / (len(trace) - 1) if len(trace) > 1 else 0.0
    lap = 0
    while True:
        for index, request in enumerate(trace):
            name = f"{index}" if lap == 0 else f"{lap + 1}.{index}"
            yield name, lap * lap_seconds + request.offset_seconds - trace[0].offset_seconds, request
        if lap_seconds <= 0.0:
            return
        lap += 1


def schedule(trace: Sequence[TraceRequest], seconds: float, envelope: Envelope, seed: int) -> list[Request]:
    """The requests of a run of `seconds`, in order of sending.

    Arrivals and lengths are the trace's own; a longer run wraps around. Where the envelope's factor f is below 1 a
    request is kept with probability f, above 1 it is sent once and again for the rest of f, each copy up to
    `COPY_DELAY_SECONDS` later. The same arguments give the same list. Raises ValueError for an empty trace or a run
    that is not longer than 0 s.
    """
    if not trace:
        raise ValueError("the trace holds no request")
    if not seconds > 0.0:
        raise ValueError(f"the run must be longer than 0 s, not {seconds}")
    rng = random.Random(seed)
    requests = []
    for name, offset_seconds, request in _endless(trace):
        if offset_seconds >= seconds:
            break
        factor = envelope.factor(offset_seconds / seconds)
        whole = math.floor(factor)
        copies = whole + (rng.random() < factor - whole)
        for copy in range(copies):
            at_seconds = offset_seconds + (rng.random() * COPY_DELAY_SECONDS if copy else 0.0)
            if at_seconds < seconds:
                requests.append(
                    Request(
                        offset_seconds=round(at_seconds, 6),
                        input_tokens=max(1, request.input_tokens),
                        output_tokens=max(1, request.output_tokens),
                        id=f"{name}+{copy}" if copy else name,
                        blocks=request.blocks,
                    )
                )
    requests.sort(key=lambda each: (each.offset_seconds, each.id))
    return requests


def busiest_minute_rps(requests: Sequence[Request]) -> float:
    """Requests per second of the busiest whole minute counted from the start of the run; 0 for no request.

    Minutes are those of the clock of the run, not the best 60 s window in it: the smaller of the two possible readings.
    """
    per_minute = Counter(int(request.offset_seconds // 60) for request in requests)
    return max(per_minute.values(), default=0) / 60


def write_schedule(path: Path, requests: Sequence[Request], seconds: float, seed: int) -> None:
    """Write JSON lines: first the run (`seconds`, `seed`), then one request each."""
    lines = [json.dumps({"seconds": seconds, "seed": seed})]
    lines += [json.dumps(asdict(request)) for request in requests]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_schedule(path: Path) -> tuple[list[Request], float, int]:
    """Read what `write_schedule` wrote: requests, seconds of the run, seed."""
    with path.open(encoding="utf-8") as stream:
        head = json.loads(stream.readline())
        requests = [Request(**{**row, "blocks": tuple(row["blocks"])}) for row in map(json.loads, stream)]
    return requests, float(head["seconds"]), int(head["seed"])
