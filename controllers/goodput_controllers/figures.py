"""Ten-minute figures for status: rounded, with their standard errors, and when they are worth a rewrite."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import floor, log10, sqrt

from goodput.domain.plan import Figures
from goodput.domain.usage import Usage

WINDOW_SECONDS = 600.0
# Below this much observation a rate says too little to be shown.
LEAST_SECONDS = 60.0
LEAST_CHANGE = 0.10
STANDARD_ERRORS = 3.0


def two_digits(value: float) -> str:
    """Two significant digits without an exponent: 0.034, 2.7, 41, 380."""
    if value == 0:
        return "0"
    rounded = round(value, 1 - floor(log10(abs(value))))
    return f"{rounded:.{max(0, 1 - floor(log10(abs(rounded))))}f}"


@dataclass(frozen=True, slots=True)
class Figure:
    """A value with its standard error (0: known exactly)."""

    value: float
    error: float = 0.0

    def differs(self, shown: float) -> bool:
        """Whether this is far enough from what is shown to be worth a write."""
        return abs(self.value - shown) > max(LEAST_CHANGE * abs(shown), STANDARD_ERRORS * self.error)


@dataclass(slots=True)
class FigureWindow:
    """Requests counted over the last ten minutes."""

    _samples: deque[tuple[float, float, float, float, Usage]] = field(default_factory=deque)
    _since: float | None = None

    def add(self, figures: Figures, now: float) -> None:
        """Take what was counted since the last tick.

        What began before the window is of a gap in looking: nobody knows when in it that happened, and all begins anew.
        """
        if self._since is None or figures.delta_seconds > now - self._since + LEAST_SECONDS:
            self._samples.clear()
            self._since = now
            return
        counted = (figures.offered_delta, figures.good_lower_delta, figures.good_upper_delta)
        self._samples.append((now, *counted, figures.usage))
        while self._samples and self._samples[0][0] <= now - WINDOW_SECONDS:
            self._since = self._samples.popleft()[0]

    def _rate(self, column: int, now: float) -> Figure | None:
        if self._since is None or now - self._since < LEAST_SECONDS:
            return None
        seconds = now - self._since
        total = sum(sample[1:4][column] for sample in self._samples)
        return Figure(total / seconds, sqrt(max(total, 1.0)) / seconds)

    def demand(self, now: float) -> Figure | None:
        """Requests per second offered."""
        return self._rate(0, now)

    def goodput(self, now: float) -> tuple[Figure, Figure] | None:
        """Requests per second that met the SLO, at least and at most."""
        lower, upper = self._rate(1, now), self._rate(2, now)
        return (lower, upper) if lower is not None and upper is not None else None

    def use(self, now: float) -> dict[str, Figure]:
        """Utilisations by name, of wall time and of busy time; those of which nothing is known are absent."""
        if self._since is None or now - self._since < LEAST_SECONDS:
            return {}
        total = Usage()
        for *_, used in self._samples:
            total = total.plus(used)
        # Work comes with requests, of which each differs about as much as it is.
        requests = sum(sample[1] for sample in self._samples)
        noise = sqrt(2.0 / max(1.0, requests))
        shares = {"mfu": total.mfu, "mbu": total.mbu, "busy mfu": total.busy_mfu, "busy mbu": total.busy_mbu}
        return {name: Figure(share, noise * share) for name, share in shares.items() if share is not None}


def attainment_figure(share: float, requests: int) -> Figure:
    """A share with the standard error of a binomial; that of one miss at least."""
    if requests <= 0:
        return Figure(share)
    return Figure(share, sqrt(max(share * (1.0 - share), 1.0 / requests) / requests))
