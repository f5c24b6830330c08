"""Speculative decoding: tokens per step, time per token, and where it cannot help.

A step drafts K tokens for each sequence and verifies them at once, so it computes K + 1 tokens a sequence and emits, of
drafts that are accepted with probability a each,

  E = (1 - a^(K+1)) / (1 - a)        (Leviathan et al. 2023, arXiv 2211.17192, equation 1), or live 1 + accepted/drafts;
  TPOT = (T_target(B * (K + 1) tokens) + K * T_draft(B)) / E.

An n-gram lookup finds a draft in a share of steps only (`coverage`); the other steps are plain ones of one token.
"""

from __future__ import annotations

from typing import Protocol

from goodput.domain.speculation import DraftMethod
from goodput.domain.values import Value

# Beyond this many sequences nobody decodes at once.
_MOST_BATCH = 4096.0
_ALWAYS_ACCEPTED = 1.0 - 1e-9
_HALVINGS = 40
# A further token of a step that costs more than this share of a whole plain step: computing binds.
_COMPUTE_BOUND = 0.5


class DecodeTimes(Protocol):
    """What is asked of step times; all in seconds."""

    def decode(self, batch: float, context_tokens: float, tokens: float = 1.0) -> float: ...
    def prefill(self, tokens: float, chunk_tokens: int) -> tuple[float, float]: ...
    def reads(self, tokens: float) -> float: ...
    @property
    def fixed(self) -> float: ...
    @property
    def kv_token(self) -> float: ...


class Prior(Value, frozen=True, kw_only=True):
    """What is believed of a method until its counters speak; sources in docs/speculation.md."""

    acceptance: float
    coverage: float = 1.0


# Chains in vLLM, mixed chat questions unless said otherwise.
_PRIORS: dict[DraftMethod, Prior] = {
    # Edits of code that is in the prompt; free chat has next to nothing to look up. Who allows it says that output
    # repeats input.
    DraftMethod.NGRAM: Prior(acceptance=0.89, coverage=0.55),
    DraftMethod.DRAFT: Prior(acceptance=0.65),
    DraftMethod.EAGLE: Prior(acceptance=0.55),
    DraftMethod.EAGLE3: Prior(acceptance=0.69),
    DraftMethod.MTP: Prior(acceptance=0.70),
}
# A head for the next-but-one token is asked for exactly what it was trained on; later tokens come from its own output.
_MTP_FIRST_ACCEPTANCE = 0.85


def prior(method: DraftMethod, tokens: int) -> Prior:
    """Acceptance of drafts of `tokens` tokens, per position, before anything was measured."""
    if method is DraftMethod.MTP and tokens == 1:
        return Prior(acceptance=_MTP_FIRST_ACCEPTANCE)
    return _PRIORS[method]


def expected_tokens(acceptance: float, tokens: int) -> float:
    """Tokens that a step with a draft of `tokens` emits: the accepted ones, and one of the target's own."""
    if acceptance >= _ALWAYS_ACCEPTED:
        return tokens + 1.0
    return (1.0 - acceptance ** (tokens + 1)) / (1.0 - acceptance)


class Drafts(Value, frozen=True, kw_only=True):
    """Drafts of `tokens` tokens, of which each is accepted with `acceptance` (0..1) if those before it were."""

    method: DraftMethod
    tokens: int
    acceptance: float
    coverage: float = 1.0  # share of a sequence's steps that have a draft
    # Accepted tokens of a mean draft (0..tokens), as counted; None: not measured, `acceptance` is believed.
    accepted_per_draft: float | None = None

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a sequence gains in a step, E."""
        if self.accepted_per_draft is not None:
            gained = min(float(self.tokens), max(0.0, self.accepted_per_draft))
        else:
            gained = expected_tokens(self.acceptance, self.tokens) - 1.0
        return 1.0 + self.coverage * gained

    @property
    def verified_per_step(self) -> float:
        """Tokens that the target computes for a sequence in a step."""
        return 1.0 + self.coverage * self.tokens


def drafts_of(
    method: DraftMethod,
    tokens: int,
    acceptance: float | None = None,
    *,
    accepted_per_draft: float | None = None,
    coverage: float | None = None,
) -> Drafts:
    """Drafts with what is not given taken from the prior of the method."""
    believed = prior(method, tokens)
    return Drafts(
        method=method,
        tokens=tokens,
        acceptance=believed.acceptance if acceptance is None else acceptance,
        coverage=believed.coverage if coverage is None else min(1.0, max(0.0, coverage)),
        accepted_per_draft=accepted_per_draft,
    )


class SpeculativeTimes(Value, frozen=True, kw_only=True):
    """Step times of a replica that speculates, in the terms of one that does not: `decode` is per emitted token."""

    target: DecodeTimes
    draft: DecodeTimes | None  # None: a lookup, whose time is none of the GPU's
    drafts: Drafts

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a sequence gains in a decode step."""
        return self.drafts.tokens_per_step

    @property
    def fixed(self) -> float:
        """What every step pays, whatever its batch."""
        return self.target.fixed + (self.drafts.tokens * self.draft.fixed if self.draft is not None else 0.0)

    @property
    def kv_token(self) -> float:
        """Reading one token of context, per emitted token."""
        seconds = self.target.kv_token + (self.drafts.tokens * self.draft.kv_token if self.draft is not None else 0.0)
        return seconds / self.tokens_per_step

    def step(self, batch: float, context_tokens: float) -> float:
        """One engine step for `batch` sequences: the drafts, one token after the other, and their verification."""
        seconds = self.target.decode(batch, context_tokens, self.drafts.verified_per_step)
        if self.draft is not None:
            seconds += self.drafts.tokens * self.draft.decode(batch, context_tokens)
        return seconds

    def decode(self, batch: float, context_tokens: float) -> float:
        """Seconds per token that each of `batch` sequences emits."""
        return self.step(batch, context_tokens) / self.drafts.tokens_per_step

    def prefill(self, tokens: float, chunk_tokens: int) -> tuple[float, float]:
        """(busy, extra) of a prompt: who drafts with a model of its own takes the prompt in too."""
        busy, extra = self.target.prefill(tokens, chunk_tokens)
        if self.draft is not None:
            own = self.draft.prefill(tokens, chunk_tokens)
            busy, extra = busy + own[0], extra + own[1]
        return busy, extra

    def reads(self, tokens: float) -> float:
        """Weight reads of a step that verifies drafts of `tokens` sequences."""
        seconds = self.target.reads(tokens * self.drafts.verified_per_step)
        return seconds + (self.drafts.tokens * self.draft.reads(tokens) if self.draft is not None else 0.0)


def speculative_tpot(
    times: DecodeTimes, draft: DecodeTimes | None, drafts: Drafts, batch: float, context_tokens: float
) -> float:
    """Seconds per output token of `batch` sequences of `context_tokens` that speculate."""
    return SpeculativeTimes(target=times, draft=draft, drafts=drafts).decode(batch, context_tokens)


def speedup(times: SpeculativeTimes, batch: float, context_tokens: float) -> float:
    """Plain over speculative time per output token; above 1 speculation helps."""
    return times.target.decode(batch, context_tokens) / times.decode(batch, context_tokens)


def break_even_acceptance(times: SpeculativeTimes, batch: float, context_tokens: float) -> float | None:
    """Acceptance per position at which both take equally long; None where even full acceptance is slower."""
    drafts = times.drafts
    needed = times.step(batch, context_tokens) / times.target.decode(batch, context_tokens)
    gain = (needed - 1.0) / drafts.coverage if drafts.coverage > 0.0 else float("inf")
    if gain > drafts.tokens:
        return None
    if gain <= 0.0:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if expected_tokens(middle, drafts.tokens) - 1.0 < gain else (low, middle)
    return high


def helps_up_to(times: SpeculativeTimes, context_tokens: float) -> float:
    """The largest batch (sequences) at which it is faster; 0: at none.

    It need not be faster at all smaller ones: few drafts may wake many experts that single tokens leave alone.
    """
    last = 0.0
    batch = 1.0
    while batch <= _MOST_BATCH:
        if speedup(times, batch, context_tokens) > 1.0:
            last = batch
        batch *= 1.25
    if last == 0.0 or last * 1.25 > _MOST_BATCH:
        return last
    low, high = last, last * 1.25
    for _ in range(12):
        middle = (low + high) / 2.0
        low, high = (middle, high) if speedup(times, middle, context_tokens) > 1.0 else (low, middle)
    return low


def best_tokens(
    target: DecodeTimes,
    draft: DecodeTimes | None,
    method: DraftMethod,
    *,
    batch: float,
    context_tokens: float,
    acceptance: float | None = None,
    most: int = 8,
) -> int:
    """Drafted tokens K of 1..`most` with the least time per output token at this batch."""
    return min(
        range(1, most + 1),
        key=lambda tokens: speculative_tpot(
            target, draft, drafts_of(method, tokens, acceptance), batch, context_tokens
        ),
    )


class Verdict(Value, frozen=True, kw_only=True):
    """Whether to speculate at one batch, and why, in words. Times are seconds per output token."""

    helps: bool
    speedup: float
    plain_tpot_seconds: float
    tpot_seconds: float
    break_even_acceptance: float | None
    helps_up_to_batch: float
    message: str


def judge(times: SpeculativeTimes, batch: float, context_tokens: float) -> Verdict:
    """Speculation against plain decoding at `batch` sequences of `context_tokens`."""
    plain = times.target.decode(batch, context_tokens)
    own = times.decode(batch, context_tokens)
    break_even = break_even_acceptance(times, batch, context_tokens)
    most = helps_up_to(times, context_tokens)
    return Verdict(
        helps=own < plain,
        speedup=plain / own,
        plain_tpot_seconds=plain,
        tpot_seconds=own,
        break_even_acceptance=break_even,
        helps_up_to_batch=most,
        message=_words(times, batch, context_tokens, break_even, most),
    )


def _words(times: SpeculativeTimes, batch: float, context_tokens: float, break_even: float | None, most: float) -> str:
    drafts = times.drafts
    plain = times.target.decode(batch, context_tokens)
    ratio = plain / times.decode(batch, context_tokens)
    what = f"{drafts.method.value} with {drafts.tokens} tokens"
    at = f"at a batch of {batch:.0f}"
    if ratio > 1.0:
        until = "at any larger one too" if most >= _MOST_BATCH / 1.25 else f"up to a batch of {most:.0f}"
        return f"{what}: {ratio:.2f} x faster {at} ({drafts.tokens_per_step:.2f} tokens a step), {until}"
    needed = "not even if every drafted token were accepted"
    if break_even is not None:
        needed = f"of drafted tokens {break_even:.0%} would have to be accepted, each if those before it were"
    elsewhere = f"; it helps up to a batch of {most:.0f}" if most >= 1.0 else ""
    verified = drafts.verified_per_step
    checking = times.target.decode(batch, context_tokens, verified) / plain
    if checking - 1.0 > _COMPUTE_BOUND * (verified - 1.0):
        return (
            f"{what} cannot help {at}: computing binds there, not reading weights, so that checking {verified:.1f} "
            f"tokens of a sequence takes {checking:.1f} x a plain step ({needed}){elsewhere}"
        )
    return f"{what} does not help {at}: {drafts.tokens_per_step:.2f} tokens a step are too few ({needed}){elsewhere}"
