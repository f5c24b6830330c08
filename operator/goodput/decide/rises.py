"""What of the load rises faster than replicas start, and the replicas that hold it all the same.

Following a load spoils what comes between a rise and the replicas that it calls for. How much that is, the last hour
tells: what came in each interval, and what the law would have had ready by then, had it followed. Where that is more
than the objective lets be missed, no scaling can follow: so many replicas are held that it is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from struct import Struct

import numpy as np

from goodput.decide.demand import Intervals
from goodput.decide.policy import Policy
from goodput.domain.percent import percent
from goodput.domain.values import Value

# (Unix seconds, requests/s that came since the row before, load that was provided for then), newest last. They are kept
# packed: an hour of them, for each of a thousand Models.
Row = tuple[float, float, float]
_ROW = Struct("<3d")
_MOST_LEVELS = 64


class Rises(Value, frozen=True):
    """Replicas to hold (0: the load can be followed), and the share of requests that following it spoils."""

    hold: int = 0
    share: float = 0.0
    requests: float = 0.0  # that it is a share of
    lead_seconds: float = 0.0  # from the load that calls for a replica until it serves

    def advice(self, fewest: int, most: int | None) -> str:
        """What a person is to know and do, who asks for `fewest` to `most` replicas; '' where there is nothing."""
        if self.hold <= fewest or fewest == most:
            return ""
        what = f"minReplicas to {self.hold}"
        if self.hold >= _MOST_LEVELS:
            what = f"minReplicas to {self.hold} or more"
        if most is not None and most < self.hold:
            what += f", and maxReplicas, which is {most}, to no less"
        return (
            f"load rises faster than replicas start, which takes {self.lead_seconds:.0f} s: "
            f"{percent(self.share, 1)} of {self.requests:.0f} requests came in such rises. No scaling can follow it: "
            f"set spec.scaling.{what}, or make replicas start faster"
        )


NO_RISES = Rises()


def packed(rows: Iterable[Row]) -> bytes:
    """Rows as they are remembered."""
    return b"".join([_ROW.pack(*row) for row in rows])


def unpacked(watched: bytes) -> list[Row]:
    """Rows of what is remembered."""
    return list(_ROW.iter_unpack(watched))


def watch(watched: bytes, seen: Intervals, end: float, load_rps: float, policy: Policy) -> bytes:
    """`watched` with what came since its last row up to `end` (Unix seconds), once that is a scrape interval."""
    width = policy.scrape_seconds
    since = end - _ROW.unpack_from(watched, len(watched) - _ROW.size)[0] if watched else width
    if since < width - 1e-6 or not seen.counts:
        return watched
    newest = seen.counts[: max(1, round(since / width))]
    row = (round(end, 3), round(sum(newest) / (len(newest) * width), 4), round(load_rps, 4))
    first = 0
    while first < len(watched) and _ROW.unpack_from(watched, first)[0] < end - policy.rises_seconds:
        first += _ROW.size
    return watched[first:] + _ROW.pack(*row)


def rises(
    watched: bytes, capacity_rps: float, lead: float, window: float, *, allowed: float, wait: float, policy: Policy
) -> Rises:
    """What following spoils if replicas serve `lead` seconds after the load that calls for them, and go when none of a
    `window` did. `allowed` is the share of requests that may be spoiled, `wait` the seconds that one may wait.

    A burst spoils what it is too much for the replicas, unless that is noise or can wait.
    """
    if len(watched) < 2 * _ROW.size or capacity_rps <= 0.0:
        return NO_RISES
    at, came, provided = np.frombuffer(watched).reshape(-1, 3).T
    # A gap in looking is none in the load, but when it rose in it nobody knows.
    spans = np.minimum(np.diff(at, prepend=at[0] - policy.scrape_seconds), 2.0 * policy.scrape_seconds)
    first, last = at.searchsorted(at - lead - window), at.searchsorted(at - lead, side="right")
    known = last > first
    if not known.any():
        return NO_RISES
    had = [provided[start:stop].max() for start, stop in zip(first[known], last[known], strict=True)]
    at, spans, came = at[known], spans[known], came[known]
    total = float(spans @ came)
    if total <= 0.0:
        return NO_RISES
    followed = np.ceil(np.array(had) / (1.0 + policy.up_tolerance) / capacity_rps - 1e-9)
    most = min(_MOST_LEVELS, ceil(float(came.max()) / capacity_rps))
    held = np.maximum(np.arange(most + 1)[:, None], followed) * capacity_rps
    excess = (came - held) * spans
    bearable = held * wait + policy.rises_sigmas * np.sqrt(np.maximum(1.0, held * spans))
    late = excess > bearable
    # One jump is no way of a load to be: it has to come again, after replicas could have started and gone.
    again = at[late[0]]
    if not len(again) or again[-1] - again[0] <= lead + window:
        return NO_RISES
    spoiled = np.where(late, excess, 0.0).sum(axis=1)
    few = np.flatnonzero(spoiled <= allowed * total)
    return Rises(int(few[0]) if len(few) else most, float(spoiled[0]) / total, total, lead)
