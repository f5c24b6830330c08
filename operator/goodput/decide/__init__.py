"""The laws: pure functions from what was seen to what should be. No I/O, no clock, no randomness."""

from goodput.decide.loop import decide
from goodput.decide.policy import Policy

__all__ = ["Policy", "decide"]
