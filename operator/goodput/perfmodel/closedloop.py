"""A replica under a closed loop: a fixed number of requests in flight, each replaced by a new prompt when it ends.

That is how engines are benchmarked. Arrivals are spread over the loop once it has run for a while, but it starts with
a burst of all at once; what that adds to the mean TTFT is told apart, for no open-loop load has it.
"""

from __future__ import annotations

from math import ceil, exp, sqrt

from goodput.domain.values import Value
from goodput.perfmodel.roofline import StepTimes

# Requests sent for each one in flight; the first of these waves is the burst.
WAVES = 10
# Beyond this share of its time a queue has no useful average.
_BUSIEST = 0.95
# Each solves for TPOT exactly, given what a step and a prompt cost at the batch of the one before; that hardly moves.
_ITERATIONS = 4


class Loop(Value, frozen=True, kw_only=True):
    """Mean times of a request in seconds, and what is in flight."""

    ttft_seconds: float  # without what the burst at the start adds
    burst_seconds: float  # what the burst adds to the mean TTFT
    tpot_seconds: float
    step_seconds: float  # a step without prompt tokens
    running: float  # sequences that hold KV cache
    decoding: float  # of these, on average, past their first token
    requests_per_second: float  # that end


def closed_loop(
    times: StepTimes,
    concurrency: float,
    input_tokens: float,
    output_tokens: float,
    chunk_tokens: int,
    *,
    most_running: float = float("inf"),
    waves: int = WAVES,
    stages: int = 1,
) -> Loop:
    """Steady state of `concurrency` requests of these mean lengths; `most_running` of them fit the KV cache.

    In a round of T seconds each of n requests is on its way and waits, takes in one prompt and decodes g gaps, so a gap
    is a step and its share of what the prompts of the others add to steps: t = step + (n - 1) * extra * t / T,
    T = apart + g * t.
    """
    running = min(concurrency, most_running) / stages
    others = max(0.0, running - 1.0)
    gaps = max(1.0, output_tokens - 1.0)
    context = input_tokens + 0.5 * output_tokens
    outside = times.request + input_tokens * times.request_token
    step = tpot = times.decode(running, context)
    decoding, own, waiting = running, 0.0, 0.0
    for _ in range(_ITERATIONS):
        arrivals = running * tpot / (outside + waiting + own + gaps * tpot)
        own, extra = _prompt(times, decoding, context, input_tokens, chunk_tokens, arrivals=arrivals)
        step = times.decode(decoding, context)
        apart = outside + waiting + own
        # The positive root of g*t^2 + (apart - g*step - (n-1)*extra)*t - step*apart = 0.
        middle = apart - gaps * step - others * extra
        tpot = (sqrt(middle * middle + 4.0 * gaps * step * apart) - middle) / (2.0 * gaps)
        round_seconds = apart + gaps * tpot
        decoding = max(min(1.0, running), running * gaps * tpot / round_seconds)
        busy = min(_BUSIEST, others * extra / round_seconds)
        # A new prompt meets a running step half way, and the prompts of others as in a queue with fixed service time.
        waiting = 0.5 * tpot * min(1.0, others) + 0.5 * busy / (1.0 - busy) * extra
    round_seconds = outside + waiting + own + gaps * tpot
    queued = max(0.0, concurrency / stages / running - 1.0) * round_seconds
    burst = _burst(times, concurrency / stages, input_tokens, chunk_tokens) / waves
    return Loop(
        ttft_seconds=outside + own + waiting + queued,
        burst_seconds=burst,
        tpot_seconds=tpot,
        step_seconds=step,
        running=running * stages,
        decoding=decoding * stages,
        requests_per_second=running * stages / round_seconds,
    )


def _prompt(
    times: StepTimes, batch: float, context: float, input_tokens: float, chunk_tokens: int, *, arrivals: float
) -> tuple[float, float]:
    """(seconds of the steps that take in one prompt, seconds that it adds to plain steps of `batch`).

    `arrivals` is the mean number of prompts that come during one step: those of one step are taken in together.
    """
    together = arrivals / (1.0 - exp(-arrivals)) if arrivals > 1e-6 else 1.0
    tokens = together * input_tokens
    steps = max(1.0, tokens / chunk_tokens)
    attention = together * times.prompt_attention(input_tokens)
    plain = times.decode(batch, context)
    mixed = times.mixed(batch, context, tokens / steps, attention / steps)
    extra = steps * (mixed - plain) / together
    return max(1.0, ceil(input_tokens / chunk_tokens), steps) * mixed, max(0.0, extra)


def _burst(times: StepTimes, concurrency: float, input_tokens: float, chunk_tokens: int) -> float:
    """Mean wait of `concurrency` prompts that come at once, behind those before them."""
    others = concurrency - 1.0
    if others <= 0.0:
        return 0.0
    tokens = others * input_tokens
    steps = max(1.0, tokens / chunk_tokens)
    attention = others * times.prompt_attention(input_tokens)
    return 0.5 * steps * times.mixed(0.0, 0.0, tokens / steps, attention / steps)
