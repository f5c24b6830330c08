"""Replicas whose step times make them queues of textbooks, the loads for them, and what closed forms say.

A replica serves tokens. If each step takes a fixed time, each sequence is served as if alone: with `max_num_seqs` c it
is a queue with c servers. If a step takes time in proportion to its sequences, they share one processor evenly.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from goodput.simulator.fleet.pods import Flight, Pod
from goodput.simulator.fleet.requests import Ask, Record
from goodput.simulator.fleet.settings import Edges
from goodput.simulator.plant import Plant
from goodput.simulator.sequences import EngineConfig

TOKEN_SECONDS = 0.01
_NOTHING = 1e-12


def plant(*, shared: bool = False) -> Plant:
    """A token of each sequence in `TOKEN_SECONDS`; `shared`: in that time for each of them."""
    return Plant(
        weights_bytes=_NOTHING,
        flops_per_token=_NOTHING,
        kv_bytes_per_token=_NOTHING,
        bandwidth_bytes_per_second=1.0,
        peak_flops_per_second=1.0,
        mbu=1.0,
        mfu=1.0,
        step_overhead_seconds=0.0 if shared else TOKEN_SECONDS,
        per_sequence_overhead_seconds=TOKEN_SECONDS if shared else 0.0,
        kv_pool_tokens=1_000_000,
        startup_seconds=0.0,
        host_memory_bytes=0.0,
        request_overhead_seconds=0.0,
    )


def config(servers: int) -> EngineConfig:
    """At most `servers` sequences at once."""
    return EngineConfig(kv_blocks=62_500, max_model_len=100_000, max_num_seqs=servers, enable_prefix_caching=False)


def replica(servers: int, *, shared: bool = False) -> Pod:
    """One that serves."""
    pod = Pod(1, 0.0, plant(shared=shared), config(servers), Edges())
    pod.up = True
    return pod


@dataclass(frozen=True)
class Served:
    """One request, in seconds: when it came, how many were there, how long it needs alone, waited, stayed and left."""

    arrived: float
    met: int
    alone: float
    wait: float
    left: float

    @property
    def stay(self) -> float:
        return self.left - self.arrived


def serve(pod: Pod, load: Sequence[tuple[float, int]], *, shared: bool = False) -> list[Served]:
    """Put (time, output tokens) through a replica. Prompts of one token cost a step of their own, or nothing."""
    records, met = [], []
    for number, (at, tokens) in enumerate(load):
        pod.advance(at)
        record = Record(Ask(at, 1, tokens))
        records.append(record)
        met.append(pod.in_flight)
        pod.submit(Flight(str(number), record, 0), at)
    pod.advance(1e12)
    own = 0.0 if shared else TOKEN_SECONDS
    found = []
    for (at, tokens), record, seen in zip(load, records, met, strict=True):
        assert record.first_token_at is not None
        assert record.last_token_at is not None
        alone = (tokens - 1) * TOKEN_SECONDS + own
        found.append(Served(at, seen, alone, record.first_token_at - own - at, record.last_token_at))
    return found


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# A mixture of exponentials of mean 1 and variance 4: few long ones among many short ones.
_LONG_SHARE = (1.0 - math.sqrt(0.6)) / 2.0


def _tokens(kind: str, average: float, draw: random.Random) -> int:
    if kind == "equal":
        return round(average)
    if kind == "mixed":
        average /= 2.0 * (_LONG_SHARE if draw.random() < _LONG_SHARE else 1.0 - _LONG_SHARE)
    return max(2, round(draw.expovariate(1.0 / average)))


def poisson(rps: float, kind: str, tokens: float, count: int, seed: int = 1) -> list[tuple[float, int]]:
    """(time, output tokens) of Poisson arrivals; `kind` of lengths: equal, exponential, mixed."""
    draw, now, load = random.Random(seed), 0.0, []
    for _ in range(count):
        now += draw.expovariate(rps)
        load.append((now, _tokens(kind, tokens, draw)))
    return load


# ---------------------------------------------------------------- the same requests, served by theory
def fifo_waits(found: Sequence[Served], servers: int) -> list[float]:
    """Waits for the first of `servers` that is free, one after the other (Lindley; Kiefer and Wolfowitz)."""
    free, waits = [0.0] * servers, []
    for each in found:
        begins = max(each.arrived, free[0])
        waits.append(begins - each.arrived)
        heapq.heapreplace(free, begins + each.alone)
    return waits


def shared_stays(found: Sequence[Served]) -> list[float]:
    """Stays at a processor that is shared evenly at each instant."""
    stays = [0.0] * len(found)
    left: list[tuple[float, int]] = []  # what each had been given when it is done, on the clock of `given`
    given = now = 0.0
    for number, each in enumerate((*found, None)):
        until = math.inf if each is None else each.arrived
        while left and (left[0][0] - given) * len(left) <= until - now:
            done, who = heapq.heappop(left)
            now += (done - given) * (len(left) + 1)
            given = done
            stays[who] = now - found[who].arrived
        if each is not None:
            given += (until - now) / len(left) if left else 0.0
            now = until
            heapq.heappush(left, (given + each.alone, number))
    return stays


# ---------------------------------------------------------------- closed forms
def mg1_wait(rps: float, services: Sequence[float]) -> float:
    """Mean wait at one server, first come first served (Pollaczek and Khinchine)."""
    busy = rps * mean(services)
    return rps * mean([each * each for each in services]) / (2.0 * (1.0 - busy))


def mmc_wait(rps: float, service: float, servers: int) -> float:
    """Mean wait at `servers` servers with exponential services (Erlang C)."""
    offered = rps * service
    top = offered**servers / math.factorial(servers) / (1.0 - offered / servers)
    some = top / (sum(offered**each / math.factorial(each) for each in range(servers)) + top)
    return some * service / (servers - offered)


def mdc_wait(rps: float, service: float, servers: int) -> float:
    """Mean wait at `servers` servers with equal services (Crommelin)."""
    offered = rps * service
    total = 0.0
    for turn in range(1, 400):
        work = turn * offered

        def poisson_tail(least: int, work: float = work) -> float:
            terms = (math.exp(each * math.log(work) - work - math.lgamma(each + 1)) for each in range(least))
            return 1.0 - sum(terms)

        term = poisson_tail(turn * servers) - servers / offered * poisson_tail(turn * servers + 1)
        total += term
        if abs(term) < 1e-9:
            break
    return service * total
