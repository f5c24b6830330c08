"""Where a growing function crosses zero, in few looks: each costs a whole evaluation of a replica."""

from __future__ import annotations

from collections.abc import Callable

_MOST_LOOKS = 60


def crossing(
    function: Callable[[float], float],
    low: float,
    high: float,
    *,
    at_low: float,
    at_high: float,
    tolerance: float = 1e-3,
) -> tuple[float, float]:
    """(argument where it is at most 0, argument where it is above), at most `tolerance` of the latter apart.

    Below a hundredth of `high` they may be so far apart as at it.

    False position by the rule of Illinois (Dowell and Jarratt 1971): where the same end moves twice in a row, the value
    at the other one is halved; where three looks did not halve the interval, it is halved. `at_low` <= 0 < `at_high`
    are the values at both ends, `low` >= 0.
    """
    moved, least, wide = 0, 0.01 * high, high - low
    for look in range(_MOST_LOOKS):
        apart = tolerance * max(high, least)
        if high - low <= apart:
            break
        # Never so close to an end that a look at it would not narrow the interval.
        margin = 0.25 * apart
        middle = low + (high - low) * at_low / (at_low - at_high)
        if look % 3 == 2:
            if high - low > 0.5 * wide:
                middle = 0.5 * (low + high)
            wide = high - low
        middle = min(max(middle, low + margin), high - margin)
        value = function(middle)
        if value <= 0.0:
            low, at_low = middle, value
            at_high *= 0.5 if moved < 0 else 1.0
            moved = -1
        else:
            high, at_high = middle, value
            at_low *= 0.5 if moved > 0 else 1.0
            moved = 1
    return low, high
