"""The load of a ledger: requests that come as often as was counted, with lengths drawn from the means that were.

Counters tell how many requests came between two looks and what their tokens add up to. When each came in between, and
how long each was, nobody knows: arrivals are spread by chance, lengths are log-normal with the recorded means. What the
prefix cache supplied is supplied again by prefixes that many requests share.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt

from goodput.decide import history
from goodput.decide.policy import Policy
from goodput.domain.samples import Sample, Samples
from goodput.perfmodel.lengths import Lengths
from goodput.simulator.fleet.requests import Ask
from goodput.simulator.traces.curves import POISSON, Phase, filled

# Tokens are counted when a request begins and when it ends: shorter stretches would divide those of some by others.
STRETCH_SECONDS = 600.0
# Of fewer requests a mean says less than that of all.
_LEAST_REQUESTS = 20.0
_HASH_TOKENS = 16
# Prefixes that requests share: enough for routers to spread them, few enough that each is soon in the caches.
_PREFIXES, _REQUESTS_A_PREFIX = 64, 20


@dataclass(frozen=True, slots=True)
class Means:
    """Mean tokens of a request, and the share of its prompt that a cache supplied."""

    input_tokens: float
    output_tokens: float
    cached_share: float


def load(samples: Sequence[Sample], begin: float, *, expected: Lengths, most_tokens: int, seed: int) -> tuple[Ask, ...]:
    """The requests that `samples` counted from `begin` (Unix seconds) on, in seconds after it.

    Lengths that were not counted are `expected`; prompt and answer have `most_tokens` together at most.
    """
    kept = ordered(samples, begin)
    if not kept:
        return ()
    whole = means(kept, Means(expected.input_mean, expected.output_mean, 0.0), least=1.0)
    variation = history.lengths(history.totals([Samples.of(kept)], [begin])[0], expected, Policy())[0]
    stretches = _stretches(kept, begin, whole)
    curve = list(_curve(kept, begin))
    times = filled(curve, [POISSON] * len(curve), random.Random(f"{seed}/arrivals"))
    draw = random.Random(f"{seed}/lengths")
    prefixes = _Prefixes(max(1, min(_PREFIXES, len(times) // _REQUESTS_A_PREFIX)))
    asks = []
    for at in times:
        mean = stretches.get(int(at // STRETCH_SECONDS), whole)
        given = min(_draw(mean.input_tokens, variation.input_variation, draw), most_tokens - 1)
        made = min(_draw(mean.output_tokens, variation.output_variation, draw), most_tokens - given)
        prefix = draw.randrange(prefixes.number)
        hashes = prefixes.first(prefix, round(mean.cached_share * given / _HASH_TOKENS))
        asks.append(Ask(at, given, made, hashes, _HASH_TOKENS))
    return tuple(asks)


def ordered(samples: Iterable[Sample], begin: float) -> list[Sample]:
    """Samples that ended after `begin`, each instant once: two processes may have written the same one."""
    return [each for _, each in sorted({each.at: each for each in samples if each.at > begin}.items())]


def means(samples: Iterable[Sample], otherwise: Means, *, least: float = _LEAST_REQUESTS) -> Means:
    """Means over samples; of what fewer than `least` requests tell, those of `otherwise`."""
    prompts = prompt_tokens = cached = finished = generated = 0.0
    for each in samples:
        if each.prompt_tokens > 0.0:
            prompts, prompt_tokens = prompts + each.first_tokens, prompt_tokens + each.prompt_tokens
            cached += each.cached_tokens
        if each.generation_tokens > 0.0:
            finished, generated = finished + each.finished, generated + each.generation_tokens
    return Means(
        prompt_tokens / prompts if prompts >= least else otherwise.input_tokens,
        generated / finished if finished >= least else otherwise.output_tokens,
        min(1.0, cached / prompt_tokens) if prompts >= least and prompt_tokens else otherwise.cached_share,
    )


def _stretches(samples: Sequence[Sample], begin: float, whole: Means) -> dict[int, Means]:
    """Means of each stretch, by its number."""
    parts: dict[int, list[Sample]] = {}
    for each in samples:
        parts.setdefault(int((each.at - begin) // STRETCH_SECONDS), []).append(each)
    return {number: means(part, whole) for number, part in parts.items()}


def _curve(samples: Sequence[Sample], begin: float) -> Iterable[Phase]:
    """Rates between the ends of samples; nothing is known to have come where nobody looked."""
    end = begin
    for each in samples:
        start = max(end, each.at - each.seconds)
        if start > end:
            yield Phase(start - end, 0.0)
        if each.at > start:
            # Of a sample that overlaps the one before, all requests come in the rest of its time.
            yield Phase(each.at - start, each.offered / (each.at - start))
        end = max(end, each.at)


def _draw(mean: float, variation: float, draw: random.Random) -> int:
    """A log-normal number of tokens, 1 at least."""
    square = log(1.0 + variation * variation)
    return max(1, round(mean * exp(sqrt(square) * draw.gauss(0.0, 1.0) - square / 2.0)))


class _Prefixes:
    """Chains of hashes, the first blocks of which are made once."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._made: dict[tuple[int, int], tuple[int, ...]] = {}

    def first(self, prefix: int, blocks: int) -> tuple[int, ...]:
        """The first `blocks` hashes of a prefix."""
        found = self._made.get((prefix, blocks))
        if found is None:
            found = self._made[prefix, blocks] = tuple(hash((prefix, block)) for block in range(blocks))
        return found
