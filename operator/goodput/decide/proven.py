"""The highest load of one replica at which the objective held: what it holds, whatever the model of it says.

A load says nothing of longer requests, so the proof is kept with the lengths that it was given at.
"""

from __future__ import annotations

from goodput.domain.memory import LoopMemory
from goodput.domain.values import Value
from goodput.perfmodel import Lengths

# Of a load that held, so much is believed: it was the highest of many that were counted, and noise is in it.
_BELIEVED = 0.8
# Requests longer than at the proof by more than this share are others.
_LONGER = 0.25


class Proven(Value, frozen=True):
    """Requests/s of one replica, at mean lengths of so many tokens."""

    rps: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0

    @classmethod
    def of(cls, memory: LoopMemory) -> Proven:
        return cls(memory.proven_rps, memory.proven_input_tokens, memory.proven_output_tokens)

    def covers(self, lengths: Lengths) -> bool:
        """Whether requests of these lengths are no more work than those of the proof."""
        longest = 1.0 + _LONGER
        return lengths.input_mean <= longest * self.input_tokens and lengths.output_mean <= longest * self.output_tokens

    def floor_rps(self, lengths: Lengths) -> float:
        """What a replica holds at least."""
        return _BELIEVED * self.rps if self.covers(lengths) else 0.0

    def held(self, rps: float, lengths: Lengths) -> Proven:
        """After the objective held at a load."""
        if rps > self.rps or not self.covers(lengths):
            return Proven(round(rps, 4), round(lengths.input_mean, 1), round(lengths.output_mean, 1))
        return self

    def missed(self, rps: float) -> Proven:
        """After it was certainly missed at a load, for lack of replicas."""
        return self if rps >= self.rps else Proven(round(rps, 4), self.input_tokens, self.output_tokens)


UNPROVEN = Proven()
