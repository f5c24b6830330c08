"""What becomes of a draft in a simulated engine: drawn from the sequence and its length, the same in every run."""

from __future__ import annotations

_MASK = (1 << 64) - 1
_DRAWS = float(1 << 53)


def _uniform(seed: int) -> float:
    """A number in 0..1 that looks random (splitmix64 of `seed`)."""
    value = (seed + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((value ^ (value >> 31)) >> 11) / _DRAWS


def accepted(serial: int, generated: int, tokens: int, acceptance: float, coverage: float) -> int | None:
    """How many of `tokens` drafted tokens are accepted, one after the other; None: there is no draft in this step."""
    seed = (serial << 32) + (generated << 6)
    if coverage < 1.0 and _uniform(seed) >= coverage:
        return None
    for position in range(tokens):
        if _uniform(seed + position + 1) >= acceptance:
            return position
    return tokens
