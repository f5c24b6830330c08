"""The shape of a rival law: a frozen value of its parameters with a pure step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from math import ceil, floor
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from goodput.simulator.rivals.view import PoolView

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

State = TypeVar("State")
Tunable = TypeVar("Tunable", bound="DataclassInstance")

# Binary fractions must not turn an exact quotient into one replica more or fewer.
_EXACT = 1e-9


class Law(Protocol[State]):
    """A law is stepped every `interval_seconds` with a view of the last `window_seconds`.

    `step` returns the replicas to ask for, within the view's bounds, and the state for the next step; it expects that
    what it asked for is what the next view holds. `grid` are the variants that a benchmark may tune among, itself
    not always included.
    """

    @property
    def name(self) -> str:
        """The policy's name on the command line and in tables."""
        ...

    @property
    def interval_seconds(self) -> float:
        """Time between steps."""
        ...

    @property
    def window_seconds(self) -> float:
        """What "the last window" of a view means to this law."""
        ...

    def start(self) -> State:
        """The state before the first step."""
        ...

    def step(self, view: PoolView, state: State, now: float) -> tuple[int, State]:
        """Replicas to ask for at `now` seconds, and the state for the next step."""
        ...

    def grid(self) -> tuple[Law[State], ...]:
        """At least 20 variants of it."""
        ...


def variants(law: Tunable, **choices: Iterable[Any]) -> tuple[Tunable, ...]:
    """`law` with every combination of the named fields' values."""

    def each() -> Iterator[Tunable]:
        for values in product(*choices.values()):
            yield replace(law, **dict(zip(choices, values, strict=True)))

    return tuple(each())


def up(value: float) -> int:
    """The ceiling, blind to rounding errors."""
    return ceil(value - _EXACT)


def down(value: float) -> int:
    """The floor, blind to rounding errors."""
    return floor(value + _EXACT)
