"""The last hours of a Model as its ledger has them: who was served well, what it cost, and how true decisions came."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from msgspec.structs import replace

from goodput.decide import history, scoring
from goodput.domain.decision import Action
from goodput.domain.identity import Key
from goodput.domain.intent import Objective, RoutingMode
from goodput.domain.ledger import Asked, Looked, Read
from goodput.domain.samples import Sample, Samples
from goodput.simulator import rebuilt

# Lines that lie further apart leave a time in which nobody watched.
_GAP_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Day:
    """What was recorded of one Model; `asked` is what it asked for last, `changes` how often that changed."""

    asked: Asked
    looks: tuple[Looked, ...]
    changes: int

    @property
    def begin(self) -> float:
        """Unix seconds."""
        return self.looks[0].at - self.looks[0].seconds

    @property
    def end(self) -> float:
        """Unix seconds."""
        return self.looks[-1].at

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    @property
    def watched_seconds(self) -> float:
        """Of them, those in which somebody watched."""
        return sum(look.seconds for look in self.looks)

    @property
    def routed(self) -> bool:
        """Whether routers counted what users offered."""
        return self.asked.intent.routing is RoutingMode.ROUTER

    @cached_property
    def samples(self) -> list[Sample]:
        """What was counted, in order."""
        return rebuilt.ordered((each for look in self.looks for each in look.samples), self.begin)

    @property
    def attainment(self) -> history.Attainment:
        """Bounds of the share of requests that were good."""
        return _attained(self.samples, routed=self.routed)

    @property
    def requests(self) -> float:
        return sum(each.offered for each in self.samples)

    @property
    def replicas(self) -> float:
        """Decided on, on average."""
        return sum(look.desired * look.seconds for look in self.looks) / max(1e-9, self.watched_seconds)

    @property
    def cost(self) -> float | None:
        costs = [look.cost for look in self.looks]
        return None if None in costs else sum(each for each in costs if each is not None)

    def moves(self, *actions: Action) -> int:
        """How often it was decided so."""
        return sum(1 for look in self.looks for each in look.decisions if each.action in actions)


def days(read: Read, hours: float) -> dict[Key, Day]:
    """The last hours of each Model, up to the newest line of all. Models that were not told of are left out."""
    looks: dict[Key, list[Looked]] = {}
    asked: dict[Key, list[Asked]] = {}
    for line in sorted(read.lines, key=lambda line: line.at):
        if isinstance(line, Asked):
            asked.setdefault(line.key, []).append(line)
        else:
            looks.setdefault(line.key, []).append(line)
    newest = max((line.at for line in read.lines), default=0.0)
    found = {}
    for key, lines in sorted(looks.items()):
        kept = tuple(_apart(look for look in lines if look.at - look.seconds >= newest - hours * 3600.0 - 1.0))
        if not kept or key not in asked:
            continue
        told = asked[key]
        within = [each for each in told if each.at > kept[0].at]
        wanted = [replace(each, at=0.0) for each in (within or told)]
        changes = sum(1 for before, after in pairwise(wanted) if before != after)
        found[key] = Day(asked=told[-1], looks=kept, changes=changes)
    return found


def _apart(looks: Iterable[Looked]) -> Iterable[Looked]:
    """Without what a second writer told of the same time."""
    end = float("-inf")
    for look in looks:
        if look.at - look.seconds >= end - 1.0:
            yield look
            end = look.at


def predictions(day: Day, objective: Objective) -> scoring.Score:
    """How true the decisions of a day came."""
    score, end = scoring.Score(), day.begin
    for look in day.looks:
        if look.at - look.seconds > end + _GAP_SECONDS:
            # What came in a time in which nobody watched, nobody knows.
            score = replace(score, waiting=())
        end = look.at
        if look.samples:
            score = scoring.saw(score, _seen(look, day.routed), objective)
        if look.forecast_rps and look.horizon_seconds:
            holds = look.capacity_rps is not None and look.forecast_rps <= look.capacity_rps * look.desired
            until = look.at + look.horizon_seconds
            expected = scoring.Expected(at=look.at, until=until, rps=look.forecast_rps, holds=holds)
            score = scoring.expects(score, expected)
    return score


def _seen(look: Looked, routed: bool) -> scoring.Seen:
    """Scrapes do not end with minutes: what came is counted as at their rate."""
    counted = sum(each.seconds for each in look.samples)
    offered = sum(each.offered for each in look.samples)
    seen = _attained(look.samples, routed=routed)
    return scoring.Seen(
        at=look.at,
        seconds=look.seconds,
        offered=offered * look.seconds / counted if counted > 0.0 else offered,
        ended=seen.requests,
        good_lower=seen.good_lower,
        good_upper=max(seen.good_lower, seen.good_upper),
    )


def _attained(samples: Iterable[Sample], *, routed: bool) -> history.Attainment:
    return history.attainment(history.totals([Samples.of(samples)], [0.0])[0], 1.0, routed)
