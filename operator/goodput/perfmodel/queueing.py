"""Latency of a replica at a rate: distributions of TTFT and TPOT over requests, and the shares that miss an objective.

TTFT is what is left of the running step (longer than half a step: the inspection paradox, E[S^2]/(2 E[S])), one step
with the prompts that arrived meanwhile and the own one, further steps of a long prompt, and the wait behind long
prompts of others (Pollaczek-Khinchine) and for a free sequence slot (M/G/c by Erlang C). TPOT varies with the prompts
that arrive while a request decodes (compound Poisson) and with the batch.
"""

from __future__ import annotations

from math import erfc, exp, lgamma, log, pi, sqrt

from goodput.domain.intent import Objective
from goodput.domain.values import Value
from goodput.perfmodel.distribution import RARE, Mixture, Part
from goodput.perfmodel.load import Load
from goodput.perfmodel.replica import Replica

NEVER_SECONDS = 1e6
_NEVER = Mixture((Part(1.0, NEVER_SECONDS, 0.0, 0.0),))


class Latency(Value, frozen=True, kw_only=True):
    """Latency of a replica at one rate; times in seconds, misses as shares of requests (0..1)."""

    rps: float
    step_seconds: float  # without prompts; per emitted token where the replica speculates
    batch: float  # sequences that decode together
    sequences: float  # in flight: decoding, being taken in, waiting
    ttft_mean_seconds: float
    tpot_mean_seconds: float
    prefill_share: float  # of the replica's time
    ttft: Mixture
    tpot: Mixture
    ttft_misses: float
    tpot_misses: float
    e2e_misses: float
    slot_misses: float  # of the TTFT objective, for want of KV cache or max-num-seqs

    @property
    def good(self) -> float:
        """Share of requests that meet every objective, misses taken as independent."""
        return (1.0 - self.ttft_misses) * (1.0 - self.tpot_misses) * (1.0 - self.e2e_misses)

    def e2e_seconds(self, output_tokens: float) -> float:
        """Mean time of a request of `output_tokens`: the first comes with the prompt."""
        return self.ttft_mean_seconds + self.tpot_mean_seconds * max(0.0, output_tokens - 1.0)


def latency_of(replica: Replica, load: Load | None, objective: Objective) -> Latency:
    """Latency at `load` (None: beyond what the replica keeps up with)."""
    if load is None:
        return _overloaded(objective)
    ttft, in_flight, own = _ttft(replica, load)
    tpot = _tpot(replica, load, own)
    ttft_limit = objective.ttft_seconds
    ttft_misses = 0.0 if ttft_limit is None else ttft.above(ttft_limit)
    unslotted = ttft_misses if ttft.late_share <= RARE else Mixture(ttft.parts).above(ttft_limit or NEVER_SECONDS)
    ttft_mean = ttft.mean
    return Latency(
        rps=load.rps,
        step_seconds=load.plain_seconds / replica.tokens_per_step,
        batch=load.batch,
        sequences=in_flight,
        ttft_mean_seconds=ttft_mean,
        tpot_mean_seconds=load.step_seconds / replica.tokens_per_step,
        prefill_share=min(1.0, load.rps * replica.alone_mean),
        ttft=ttft,
        tpot=tpot,
        ttft_misses=ttft_misses,
        tpot_misses=0.0 if objective.tpot_seconds is None else tpot.above(objective.tpot_seconds),
        e2e_misses=_e2e_misses(replica, tpot, ttft, objective.e2e_seconds),
        slot_misses=ttft_misses - unslotted,
    )


def _overloaded(objective: Objective) -> Latency:
    return Latency(
        rps=0.0,
        step_seconds=NEVER_SECONDS,
        batch=NEVER_SECONDS,
        sequences=NEVER_SECONDS,
        ttft_mean_seconds=NEVER_SECONDS,
        tpot_mean_seconds=NEVER_SECONDS,
        prefill_share=1.0,
        ttft=_NEVER,
        tpot=_NEVER,
        ttft_misses=float(objective.ttft_seconds is not None),
        tpot_misses=float(objective.tpot_seconds is not None),
        e2e_misses=float(objective.e2e_seconds is not None),
        slot_misses=0.0,
    )


def _ttft(replica: Replica, load: Load) -> tuple[Mixture, float, float]:
    """(TTFT, requests in flight, mean seconds of the steps that take in a prompt)."""
    mean, variance = load.step_seconds, load.variance
    # The step that an arrival meets is chosen by its length; third moment as of a gamma-distributed excess.
    met = mean + variance / mean
    excess = mean - load.plain_seconds
    third = mean**3 + 3.0 * mean * variance + (2.0 * variance * variance / excess if excess > 0.0 else 0.0)
    left = 0.5 * met
    left_square = third / (3.0 * mean)
    # Prompts of others that arrive during the same step are taken in with one's own.
    number = load.rps * met
    others = number * replica.compute_mean
    share = load.rps * replica.compute_mean
    # Where the batch alone makes steps vary, the third moment is too rough for a variance.
    met_variance = max(0.0, third / mean - met * met)
    beside_variance = number * replica.compute_square + (share * share + share) * met_variance
    long_mean, long_variance = _behind_long_prompts(replica, load)
    over_mean, over_variance = _overflow(replica, load, number, met_variance)
    long_mean, long_variance = long_mean + over_mean, long_variance + over_variance
    running = load.batch + load.rps * replica.alone_mean
    busy = 1.0 - exp(-running)
    parts = []
    waiting_mean = own_mean = 0.0
    for prompt in replica.prompts:
        full, per_chunk, rest = load.chunks(prompt)
        with_decode = load.plain_seconds * (full + 1) + full * load.added(per_chunk, prompt.hideable)
        with_decode += load.added(rest, prompt.hideable)
        own = busy * with_decode + (1.0 - busy) * prompt.alone_seconds
        spare = max(0.0, load.slack_seconds - rest * prompt.hideable)
        beside = others - spare + spare * exp(-others / spare) if spare > 0.0 else others
        wait = left + beside
        waiting = busy * wait + long_mean
        # Of arithmetic that hides in the slack nobody feels how much there is.
        felt = 1.0 if spare <= 0.0 else beside / others if others > 0.0 else 0.0
        square = busy * (left_square - left * left + felt * felt * beside_variance + wait * wait)
        # The class itself is spread: taken to two deviations below its mean, as the least that can be.
        spread = (
            prompt.compute_deviation if prompt.compute_seconds > load.slack_seconds else felt * prompt.compute_deviation
        )
        least = min(2.0 * spread, own)
        parts.append(
            Part(
                prompt.share,
                prompt.request_seconds + own - least,
                waiting + least,
                square - (busy * wait) ** 2 + long_variance + spread * spread,
            )
        )
        waiting_mean += prompt.share * waiting
        own_mean += prompt.share * (with_decode + beside)
    late_share, late_seconds = _slot_wait(replica, load, running)
    in_flight = running + load.rps * (waiting_mean + late_share * late_seconds)
    return Mixture(tuple(parts), late_share, late_seconds), in_flight, own_mean


def _behind_long_prompts(replica: Replica, load: Load) -> tuple[float, float]:
    """(mean, variance) of the wait behind prompts that fill whole steps, beyond the step that an arrival meets."""
    work = square = longest = 0.0
    for prompt in replica.prompts:
        full, per_chunk, _ = load.chunks(prompt)
        if full:
            one = load.plain_seconds + load.added(per_chunk, prompt.hideable)
            work += prompt.share * full * one
            square += prompt.share * (full * one) ** 2
            longest = max(longest, one)
    busy = load.rps * work
    if busy <= 0.0:
        return 0.0, 0.0
    if busy >= 0.99:
        return NEVER_SECONDS, 0.0
    conditional = max(0.0, 0.5 * square / work - 0.5 * longest) / (1.0 - busy)
    return busy * conditional, busy * (2.0 - busy) * conditional * conditional


def _overflow(replica: Replica, load: Load, number: float, met_variance: float) -> tuple[float, float]:
    """(mean, variance) of the wait of prompts for which a step has no tokens left, where `number` arrive during one."""
    mean = square = 0.0
    for prompt in replica.prompts:
        rest = prompt.tokens % load.room_tokens
        mean += prompt.share * rest
        square += prompt.share * rest * rest
    tokens = number * mean
    if tokens <= 0.0:
        return 0.0, 0.0
    # E[(T - room)+] of normally distributed tokens T.
    deviation = sqrt(number * square + (load.rps * mean) ** 2 * met_variance)
    z = (load.room_tokens - mean - tokens) / deviation
    beyond = deviation * (exp(-0.5 * z * z) / sqrt(2.0 * pi) - z * 0.5 * erfc(z / sqrt(2.0)))
    late = min(0.9, beyond / tokens)
    step = load.plain_seconds + load.added(load.room_tokens * replica.token_seconds)
    # Each further step may overflow as well.
    return step * late / (1.0 - late), step * step * late / (1.0 - late) ** 2


def _slot_wait(replica: Replica, load: Load, running: float) -> tuple[float, float]:
    """(share of requests that wait for a sequence slot, their mean wait in seconds).

    M/G/c as M/M/c with its waits scaled by the variation of service; sequences that come in swarms and differ in size
    are as many fewer, larger ones (Hayward: servers and load divided by variance over mean).
    """
    slots = replica.slots
    peak = max(1.0, load.batch_variance / load.batch) if load.batch > 0.0 else 1.0
    if replica.kv_sequences < replica.sequences_limit:
        peak *= 1.0 + replica.context_variation**2
        # The next in line waits for room for all of it: about one sequence of the pool stays empty.
        slots = max(1.0, slots - 1.0)
    use = running / slots
    if use >= 1.0:
        return 1.0, NEVER_SECONDS
    if load.rps <= 0.0:
        return 0.0, 0.0
    servers = max(1.0, slots / peak)
    square = sum(each.share * (each.tokens**2 + each.deviation**2) for each in replica.outputs)
    variation = max(0.0, square / (replica.output_mean * replica.output_mean) - 1.0)
    share = _waiting_share(servers, use)
    return share, 0.5 * (1.0 + variation) * running / load.rps / (servers * (1.0 - use))


def _waiting_share(servers: float, use: float) -> float:
    """Share of arrivals that wait in M/M/c (Erlang C) for any real number of servers.

    Erlang B is the Poisson probability of exactly `servers` over that of at most so many; the latter by Wilson and
    Hilferty's cube root of a gamma distribution.
    """
    offered = servers * use
    exactly = exp(servers * log(offered) - offered - lgamma(servers + 1.0))
    ninth = 1.0 / (9.0 * (servers + 1.0))
    z = ((offered / (servers + 1.0)) ** (1.0 / 3.0) - 1.0 + ninth) / sqrt(ninth)
    blocked = min(1.0, exactly / max(1e-12, 0.5 * erfc(z / sqrt(2.0))))
    return blocked / (1.0 - use * (1.0 - blocked))


def _tpot(replica: Replica, load: Load, own: float) -> Mixture:
    """Mean step over the steps that a request decodes in; `own` seconds were those that took in its prompt.

    Over k steps its variance is that of the prompts that arrive (each adds for a step), of the batch (each arrival adds
    KV reads for as long as it decodes), and of both together.
    """
    mean, share = load.step_seconds, load.feedback
    free, gained = 1.0 - share, replica.tokens_per_step
    relaxing, slope, prompts = load.relaxing, load.sequence_seconds, load.prompt_noise
    together = load.rps * prompts + load.arrivals * replica.dispersion * load.added_mean / free
    parts = []
    for output in replica.outputs:
        if output.tokens < 1.5:
            parts.append(Part(output.share, 0.0, 0.0, 0.0))
            continue
        steps = max(1.0, (output.tokens - 1.0) / gained)
        # Of correlated steps a short decode sees less than the long-run variance.
        decay = share**steps
        seen = max(0.0, 1.0 - 2.0 * share * (1.0 - decay) / (steps * (1.0 - share * share)))
        x = relaxing * steps
        settled = 1.0 - (1.0 - exp(-x)) / x
        drift = slope * slope * load.batch_variance * 2.0 * settled / x
        variance = drift + (prompts * seen + 2.0 * slope * together * settled / relaxing) / steps
        # Who arrives during the own prompt's steps is taken in by the next ones.
        own_longer = max(0.0, own - mean)
        after = (1.0 - decay) / (free * steps)
        variance += load.rps * own_longer * load.added_square * after * after
        least = max(0.0, load.plain_seconds - 2.0 * sqrt(drift))
        longer = mean + own_longer * share * after
        parts.append(Part(output.share, least / gained, (longer - least) / gained, variance / (gained * gained)))
    return Mixture(tuple(parts))


def _e2e_misses(replica: Replica, tpot: Mixture, ttft: Mixture, limit: float | None) -> float:
    if limit is None:
        return 0.0
    first = ttft.mean
    variance = sum(part.share * (part.variance + (part.shift + part.mean - first) ** 2) for part in ttft.parts)
    variance += ttft.late_share * (2.0 - ttft.late_share) * ttft.late_seconds**2
    misses = 0.0
    for output, part in zip(replica.outputs, tpot.parts, strict=True):
        steps = max(0.0, output.tokens - 1.0)
        spread = output.deviation * (part.shift + part.mean)
        whole_variance = variance + steps * steps * part.variance + spread * spread
        whole = Part(1.0, 0.0, first + steps * (part.shift + part.mean), whole_variance)
        misses += output.share * whole.above(limit)
    return misses
