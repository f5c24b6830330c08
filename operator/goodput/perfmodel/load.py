"""The steps of one replica under an open load: how long they take when prompts and decoding share them.

Requests arrive as a Poisson process. Those that arrive during a step wait for its end and are taken in together by the
next, up to max-num-batched-tokens (a gated queue). With `a` arrivals per step, `a * (output - 1)` sequences decode
together (Little's law: each takes part in output - 1 steps), whatever a step costs. So everything follows from `a`:
  step = decode(batch) + what the prompts of a step add,   requests/s = a / step.
A prompt adds the arithmetic that does not hide behind the memory reads of the step.
"""

from __future__ import annotations

from math import exp

from goodput.domain.values import Value
from goodput.perfmodel.replica import Prompt, Replica
from goodput.perfmodel.search import crossing

_MOST_FEEDBACK = 0.97
_ITERATIONS = 3
# Share of its arrivals to which a load is found for a rate.
_RATE_TOLERANCE = 2e-4
# Rates so close to the highest are it, and the least growth of the arrivals at which the next look is taken.
_HIGHEST_TOLERANCE = 1e-3
_LEAST_STRIDE = 1.3
# A prompt so short that its arithmetic hides, yet it wakes most experts.
_FEW_TOKENS = 32.0


class Load(Value, frozen=True, kw_only=True):
    """A replica at a constant rate; times in seconds."""

    arrivals: float  # requests per step
    rps: float
    batch: float  # sequences that decode, on average over time
    batch_variance: float
    relaxing: float  # share of a deviation of the batch that a step takes back
    sequence_seconds: float  # that one more sequence adds to the steps it decodes in
    plain_seconds: float  # a step without prompts
    step_seconds: float  # mean step
    variance: float  # of single steps
    # What one more prompt adds to the steps that take it in, beside those that are there: mean and second moment.
    added_mean: float
    added_square: float
    lasting_square: float  # of the second moment, what a router that evens out arrivals leaves over many steps
    room_tokens: float  # of the budget, for prompts
    slack_seconds: float  # arithmetic of prompts that hides behind the reads of a step
    jump_seconds: float  # more reads of a step that takes in any prompt (experts)

    @property
    def prompt_share(self) -> float:
        """Share (0..1) of the time of steps that prompts add."""
        return 1.0 - self.plain_seconds / self.step_seconds

    @property
    def prompt_noise(self) -> float:
        """Long-run variance a step of what prompts add, in square seconds: longer steps see more of them."""
        free = 1.0 - self.feedback
        return self.arrivals * self.lasting_square / (free * free)

    @property
    def feedback(self) -> float:
        """Seconds that the arrivals of one more second add to the steps to come (below 1)."""
        return min(_MOST_FEEDBACK, self.rps * self.added_mean)

    def chunks(self, prompt: Prompt) -> tuple[int, float, float]:
        """(steps that the prompt fills alone, arithmetic of each, arithmetic of the rest), in seconds."""
        full = int(prompt.tokens / self.room_tokens)
        per_chunk = prompt.compute_seconds * self.room_tokens / prompt.tokens
        return full, per_chunk, prompt.compute_seconds - full * per_chunk

    def added(self, compute_seconds: float, hideable: float = 1.0) -> float:
        """What arithmetic, of which the share `hideable` may hide, adds to a step that decodes."""
        return self.jump_seconds + compute_seconds - min(self.slack_seconds, compute_seconds * hideable)


class _Prompts(Value, frozen=True, kw_only=True):
    """Means over prompts, in seconds.

    `most` is what a prompt adds where no slack is left, `spared` what the slack of one step takes off that. Prompts
    that are larger than a step fill `chunks` of them alone, which add `filling`; `rest` is the arithmetic beyond them.
    """

    chunks: float
    filling: float
    rest: float
    most: float
    spared: float
    most_square: float
    cross: float  # of most and spared
    spared_square: float
    largest: float  # that one step of a large prompt adds


def _prompts(replica: Replica, room: float, slack: float, jump: float) -> _Prompts:
    chunks = filling = rests = most = spared = most_square = cross = spared_square = largest = 0.0
    for prompt in replica.prompts:
        share, rest, whole = prompt.share, prompt.compute_seconds, 0.0
        full = int(prompt.tokens / room)
        if full:
            per_chunk = prompt.compute_seconds * room / prompt.tokens
            rest -= full * per_chunk
            one = jump + per_chunk - min(slack, per_chunk * prompt.hideable)
            whole = full * one
            chunks += share * full
            filling += share * whole
            largest = max(largest, one)
        hidden = min(slack, rest * prompt.hideable)
        whole += rest
        rests += share * rest
        most += share * whole
        spared += share * hidden
        most_square += share * (whole * whole + prompt.compute_deviation * prompt.compute_deviation)
        cross += share * whole * hidden
        spared_square += share * hidden * hidden
    return _Prompts(
        chunks=chunks,
        filling=filling,
        rest=rests,
        most=most,
        spared=spared,
        most_square=most_square,
        cross=cross,
        spared_square=spared_square,
        largest=largest,
    )


def _jump_and_slack(replica: Replica, seen: float, plain: float) -> tuple[float, float]:
    """(what any prompt adds to a step, arithmetic of prompts that hides behind what the step does anyway), in seconds.

    Together `jump + max(0, x - slack)` for arithmetic x: experts that prompts wake and the least time of a step with a
    prompt are added at once, and further arithmetic hides behind them too.
    """
    products, unit, many = replica.prompt_times.products, replica.token_seconds, float(replica.batched_tokens)
    base = products(seen)
    woken = max(0.0, products(seen, _FEW_TOKENS) - base - _FEW_TOKENS * unit)
    slack = woken + many * unit - (products(seen, many) - base) + seen * replica.hiding_seconds
    floor = max(0.0, replica.prompt_times.prompt_step - plain - woken)
    return woken + floor, max(1e-9, slack + floor)


def load(replica: Replica, arrivals: float) -> Load:
    """The replica at `arrivals` requests per step."""
    batch = arrivals * replica.decode_steps
    steps = max(1.0, replica.decode_steps)
    most_seen = max(1.0, replica.slots)
    seen = min(1.0 + batch, most_seen)
    plain = replica.times.step(seen, replica.context)
    slope = max(0.0, replica.times.step(seen + 1.0, replica.context) - plain)
    jump, slack = _jump_and_slack(replica, seen, plain)
    room = max(1.0, replica.batched_tokens - batch)
    prompts = _prompts(replica, room, slack, jump)
    full_share = min(0.99, arrivals * prompts.chunks)
    others = arrivals / (1.0 - full_share)
    step, variance, batch_variance, relaxing = plain, 0.0, batch, 1.0 / steps
    added_mean = added_square = lasting_square = 0.0
    for _ in range(_ITERATIONS):
        # Long steps see more arrivals than short ones: a gamma mixture of Poisson numbers.
        dispersion = variance / (step * step)
        # E[(X - s)+] of the arithmetic X of a step's prompts is E[X] - s + E[(s - X)+], and each prompt leaves the mean
        # share of the slack s that it would leave alone.
        taken = prompts.spared / slack
        left = _generating(others * taken, dispersion)
        rest = max(0.0, others * prompts.rest - slack * (1.0 - left))
        rest += jump * (1.0 - _generating(others, dispersion))
        step = plain + arrivals * prompts.filling + (1.0 - full_share) * rest
        # What one more prompt adds where it comes: among those that arrived during a step chosen by its length.
        left = _generating(others * taken * (1.0 + dispersion), dispersion)
        added_mean = max(0.0, prompts.most - left * prompts.spared)
        added_square = prompts.most_square - 2.0 * left * prompts.cross + left * left * prompts.spared_square
        feedback = min(_MOST_FEEDBACK, arrivals / step * added_mean)
        single = min(added_square, added_mean * prompts.largest) if prompts.largest > 0.0 else added_square
        # Arrivals during a long step make the next one long: v = v0 + feedback^2 * v.
        variance = arrivals * single / (1.0 - feedback * feedback)
        # The batch is a linear noise (Ornstein-Uhlenbeck) process: longer steps see more arrivals, which holds back
        # what departures would restore.
        relaxing = max(0.05, 1.0 - arrivals / step * slope * steps / (1.0 - feedback)) / steps
        lasting_square = added_square - (1.0 - replica.dispersion) * added_mean * added_mean
        noise = _batch_noise(arrivals, arrivals / step, feedback, lasting_square, replica.dispersion)
        batch_variance = noise / (2.0 * relaxing)
        # A token sees the batch by its size: mean and variance over mean (Poisson: itself beside the others).
        seen = min(batch + max(1.0, batch_variance / batch), most_seen) if batch > 0.0 else 1.0
        plain = replica.times.step(seen, replica.context)
    return Load(
        arrivals=arrivals,
        rps=arrivals / step,
        batch=batch,
        batch_variance=batch_variance,
        relaxing=relaxing,
        sequence_seconds=slope / (1.0 - feedback),
        plain_seconds=plain,
        step_seconds=step,
        variance=variance,
        added_mean=added_mean,
        added_square=added_square,
        lasting_square=lasting_square,
        room_tokens=room,
        slack_seconds=slack,
        jump_seconds=jump,
    )


def _batch_noise(arrivals: float, rps: float, feedback: float, lasting_square: float, dispersion: float) -> float:
    """Variance a step of arrivals (more of them in long steps) and departures."""
    free = 1.0 - feedback
    arriving = arrivals * dispersion * (1.0 + 2.0 * feedback / free)
    arriving += rps * rps * arrivals * lasting_square / (free * free)
    return arriving + arrivals


def _generating(rate: float, dispersion: float) -> float:
    """E[z^N] for `rate` = mean * (1 - z), N Poisson with a gamma-distributed mean of this squared variation."""
    return exp(-rate) if dispersion < 1e-6 else (1.0 + rate * dispersion) ** (-1.0 / dispersion)


def load_at(replica: Replica, rps: float, most: float | None = None) -> Load | None:
    """The replica at `rps` requests/s; None where it cannot keep up, or has no room for the sequences.

    Where steps grow as fast as the arrivals in them, several of these have one rate: a replica that was idle before
    settles at the least. At `most` arrivals a step, if given, it is known to carry that rate.
    """
    low = load(replica, 0.0)
    if rps <= 0.0:
        return low
    if most is not None:
        return _between(replica, rps, low, load(replica, most))
    most = replica.most_arrivals
    if replica.decode_steps > 0.0:
        most = min(most, replica.slots / replica.decode_steps)
    # A step is no shorter than an idle one, so it takes as many arrivals at least.
    arrivals, fastest = min(rps * low.step_seconds, most), low
    while True:
        high = load(replica, arrivals)
        if high.rps >= rps:
            return _between(replica, rps, low, high)
        fastest = max(fastest, high, key=lambda each: each.rps)
        if arrivals >= most:
            return fastest if fastest.rps >= (1.0 - _HIGHEST_TOLERANCE) * rps else None
        low, arrivals = high, min(arrivals * max(_LEAST_STRIDE, rps / high.rps), most)


def _between(replica: Replica, rps: float, low: Load, high: Load) -> Load:
    """The load at `rps`, which `low` does not reach; `high` does, or comes as close as rounding lets it."""
    if high.rps <= rps:
        return high
    least, _ = crossing(
        lambda arrivals: load(replica, arrivals).rps - rps,
        low.arrivals,
        high.arrivals,
        at_low=low.rps - rps,
        at_high=high.rps - rps,
        tolerance=_RATE_TOLERANCE,
    )
    return load(replica, least)
