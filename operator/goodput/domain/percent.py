"""Shares in words."""

from __future__ import annotations

from functools import lru_cache
from math import ceil, floor, log10

from goodput.domain.remembered import for_each_model

MOST_DECIMALS = 3


# The same shares are told again and again: objectives, and what holds all of the time.
@lru_cache(maxsize=for_each_model(4))
def percent(share: float, decimals: int = 0) -> str:
    """A share as a percentage, rounded down: 100% is said of what is whole, and of nothing else.

    With up to `decimals` decimals, and as many more as a small share, or the small rest of a large one, needs to be
    seen, up to three: 50%, 97%, 99.5%, 99.96%.
    """
    value = 100.0 * share
    small = min(value, 100.0 - value)
    if 0.0 < small < 1.0:
        decimals = max(decimals, min(MOST_DECIMALS, ceil(-log10(small))))
    steps_each = 10**decimals
    # A number such as 0.9996 is stored a hair too small.
    steps = floor(value * steps_each + 1e-6)
    if share < 1.0:
        steps = min(steps, 100 * steps_each - 1)
    return f"{steps / steps_each:g}%"
