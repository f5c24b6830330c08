"""A slow factor on demand over one run: traffic is thinned where it is below 1 and doubled where it is above."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Envelope:
    """Piecewise linear factor over the run.

    `points` are (share of the run from 0 to 1, factor >= 0), the first at 0 and the last at 1, shares rising.
    Raises ValueError when they are not.
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        shares = [share for share, _ in self.points]
        if len(shares) < 2 or shares[0] != 0.0 or shares[-1] != 1.0:
            raise ValueError("an envelope needs a first point at share 0 and a last one at share 1")
        if any(later <= earlier for earlier, later in pairwise(shares)):
            raise ValueError("the shares of an envelope's points must rise")
        if any(not factor >= 0.0 for _, factor in self.points):
            raise ValueError("an envelope's factors must be 0 or more")

    def factor(self, share: float) -> float:
        """Factor at a share of the run; outside 0..1 the nearest end holds."""
        if share <= 0.0:
            return self.points[0][1]
        for (start, low), (end, high) in pairwise(self.points):
            if share <= end:
                return low + (high - low) * (share - start) / (end - start)
        return self.points[-1][1]

    def describe(self) -> str:
        """The points as words, for the screen: `x0.25 at 0 %, x2 at 50 %, x0.25 at 100 %`."""
        return ", ".join(f"x{factor:g} at {share * 100:g} %" for share, factor in self.points)


# Demand grows eightfold to the middle of the run and returns: a fleet has to follow it both ways.
DEMO_ENVELOPE = Envelope(((0.0, 0.25), (0.5, 2.0), (1.0, 0.25)))
FLAT_ENVELOPE = Envelope(((0.0, 1.0), (1.0, 1.0)))
