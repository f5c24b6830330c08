"""How many results are remembered of what is worked out for each Model.

Models are looked at in turn. A cache of fewer results than one pass asks for forgets each just before it is needed
again, and hits nothing at all: sizes follow the fleet.
"""

from __future__ import annotations

# Twice as many Models as one operator is measured with.
FLEET_MODELS = 2048


def for_each_model(results: int) -> int:
    """Size of a cache that one pass asks for so many different `results` of each Model."""
    return results * FLEET_MODELS
