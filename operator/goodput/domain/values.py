"""The base of values that a tick makes by the ten thousand."""

from __future__ import annotations

import msgspec


class Value(msgspec.Struct, frozen=True, gc=False):
    """A frozen value, made in a twentieth of a dataclass's time, that the garbage collector need not walk.

    For values that hold no reference to what may hold them: numbers, texts and tuples of those.
    """
