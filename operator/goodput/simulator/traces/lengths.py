"""Lengths of requests: drawn from normal distributions, or from those of a trace scaled to other means."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from goodput.simulator.traces.request import TraceRequest

# Draws input and output tokens of a request.
Lengths = Callable[[random.Random], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Normal:
    """Tokens of a normal distribution, rounded, at least 1."""

    mean: float
    deviation: float

    def draw(self, draw: random.Random) -> int:
        """One of them."""
        return max(1, round(draw.gauss(self.mean, self.deviation)))


def normal(input_tokens: Normal, output_tokens: Normal) -> Lengths:
    """Input and output drawn apart."""
    return lambda draw: (input_tokens.draw(draw), output_tokens.draw(draw))


@dataclass(frozen=True, slots=True)
class Empirical:
    """Pairs of input and output tokens as a trace had them, with their means."""

    pairs: tuple[tuple[int, int], ...]
    mean_input: float
    mean_output: float

    @classmethod
    def of(cls, requests: Iterable[TraceRequest]) -> Empirical:
        """The lengths of `requests`. Raises `ValueError` without any."""
        pairs = tuple((request.input_tokens, request.output_tokens) for request in requests)
        if not pairs:
            raise ValueError("lengths: no request to take them from")
        return cls(pairs, _mean([given for given, _ in pairs]), _mean([made for _, made in pairs]))

    def scaled(self, mean_input: float, mean_output: float) -> Lengths:
        """Pairs stretched so that their means are these (rounded, at least 1: short means end up a little higher)."""
        more_input, more_output = mean_input / self.mean_input, mean_output / self.mean_output

        def lengths(draw: random.Random) -> tuple[int, int]:
            given, made = draw.choice(self.pairs)
            return max(1, round(given * more_input)), max(1, round(made * more_output))

        return lengths

    def as_seen(self) -> Lengths:
        """Pairs as they are."""
        return lambda draw: draw.choice(self.pairs)


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)
