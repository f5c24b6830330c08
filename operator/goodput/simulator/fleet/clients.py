"""Who asks: clients that do not wait for answers, and clients that do."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from goodput.simulator.fleet.requests import Ask, End, Record
from goodput.simulator.traces.request import BLOCK_TOKENS, TraceRequest


def asks_of(trace: Iterable[TraceRequest]) -> list[Ask]:
    """The requests of a trace, as clients send them."""
    return [
        Ask(each.offset_seconds, each.input_tokens, each.output_tokens, each.blocks, BLOCK_TOKENS) for each in trace
    ]


class Clients(Protocol):
    """A source of requests. `reactive`: what is asked depends on when answers come."""

    reactive: bool

    def start(self) -> Iterator[Ask]:
        """Requests that come whatever the answers are, by time."""

    def after(self, record: Record, now: float) -> Ask | None:
        """What the client asks because this request ended at `now`, if anything; not before `now`."""


class OpenLoop:
    """Requests at given times, whatever becomes of those before.

    A client whose request is refused or fails asks again after `retry_seconds`, up to `retries` times. A share
    `abort_share` of clients goes away `abort_after_seconds` after asking.
    """

    def __init__(
        self,
        asks: Iterable[Ask],
        *,
        retries: int = 0,
        retry_seconds: float = 1.0,
        abort_share: float = 0.0,
        abort_after_seconds: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.reactive = retries > 0
        self._asks = sorted(asks, key=lambda ask: ask.seconds)
        self._retries = retries
        self._retry_seconds = retry_seconds
        self._abort_share = abort_share
        self._abort_after_seconds = abort_after_seconds
        self._seed = seed

    def start(self) -> Iterator[Ask]:
        draw = random.Random(f"{self._seed}/aborts")
        for number, ask in enumerate(self._asks):
            leaves = self._abort_share > 0.0 and draw.random() < self._abort_share
            after = self._abort_after_seconds if leaves else ask.abort_after_seconds
            yield replace(ask, client=number, abort_after_seconds=after)

    def after(self, record: Record, now: float) -> Ask | None:
        ask = record.ask
        if record.end not in (End.REFUSED, End.FAILED) or ask.tries >= self._retries:
            return None
        return replace(ask, seconds=now + self._retry_seconds, tries=ask.tries + 1)


class ClosedLoop:
    """`clients` that each ask, wait for the end of the answer, think and ask again, until `until_seconds`.

    Times to think are exponential with mean `think_seconds`; the first request of each comes after one of them.
    Lengths (input, output tokens) are drawn from `lengths`.
    """

    reactive = True

    def __init__(
        self,
        clients: int,
        lengths: Sequence[tuple[int, int]],
        *,
        think_seconds: float,
        until_seconds: float,
        seed: int = 0,
    ) -> None:
        self._lengths = lengths
        self._think_seconds = think_seconds
        self._until_seconds = until_seconds
        self._clients = clients
        self._seed = seed
        self._draws: list[random.Random] = []

    def start(self) -> Iterator[Ask]:
        self._draws = [random.Random(f"{self._seed}/client/{number}") for number in range(self._clients)]
        first = [ask for number in range(self._clients) if (ask := self._next(number, 0.0)) is not None]
        return iter(sorted(first, key=lambda ask: (ask.seconds, ask.client)))

    def after(self, record: Record, now: float) -> Ask | None:
        return self._next(record.ask.client, now)

    def _next(self, client: int, now: float) -> Ask | None:
        draw = self._draws[client]
        think = draw.expovariate(1.0 / self._think_seconds) if self._think_seconds > 0.0 else 0.0
        prompt, output = self._lengths[draw.randrange(len(self._lengths))]
        at = now + think
        return Ask(at, prompt, output, client=client) if at < self._until_seconds else None
