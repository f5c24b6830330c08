"""Values of a trace's fields: each function returns the value or raises `ValueError` saying what is wrong with it."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

_SEPARATORS = re.compile(r"[\s;,|]+")


def seconds(value: object, name: str) -> float:
    """A finite number."""
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name}: {value!r} is no number of seconds")
    return number


def milliseconds(value: object, name: str) -> float:
    """A finite number of milliseconds, in seconds."""
    try:
        return seconds(value, name) / 1000.0
    except ValueError:
        raise ValueError(f"{name}: {value!r} is no number of milliseconds") from None


def timestamp(value: object, name: str) -> float:
    """Seconds of the epoch of an ISO 8601 time; UTC where it names no zone."""
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError:
        raise ValueError(f"{name}: {value!r} is no time like 2023-11-16 18:17:03.9799600") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def tokens(value: object, name: str) -> int:
    """A whole number of at least 1; `12.0` is one too."""
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or number != int(number) or number < 1:
        raise ValueError(f"{name}: {value!r} is no whole number of at least 1")
    return int(number)


def block_hashes(value: object, name: str) -> tuple[int, ...]:
    """Whole numbers, as a list or as text with spaces, semicolons, bars or commas between them."""
    parts: list[object]
    if isinstance(value, str):
        parts = [part for part in _SEPARATORS.split(value.strip().strip("[]").strip()) if part]
    elif isinstance(value, list):
        parts = value
    else:
        raise ValueError(f"{name}: {value!r} is no list of hashes")
    return tuple(_whole(part, name) for part in parts)


def _whole(value: object, name: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return int(value) if isinstance(value, str) else _no_hash(value, name)
    except ValueError:
        return _no_hash(value, name)


def _no_hash(value: object, name: str) -> int:
    raise ValueError(f"{name}: {value!r} is no whole number")
