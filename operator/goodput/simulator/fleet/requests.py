"""What clients ask for, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from goodput.domain.intent import Objective


@dataclass(frozen=True, slots=True)
class Ask:
    """One request as a client sends it, `seconds` after the start of the run.

    `block_hashes` name the blocks of `hash_tokens` tokens of the prompt, each chained to its parent; the last one may
    be shorter. The client goes away `abort_after_seconds` after it asked, if the answer is not complete by then.
    `client` says whose it is, `tries` how often the same was asked before: to the fleet a repeated request is a request
    like any other.
    """

    seconds: float
    input_tokens: int
    output_tokens: int
    block_hashes: tuple[int, ...] = ()
    hash_tokens: int = 16
    abort_after_seconds: float | None = None
    client: int = 0
    tries: int = 0


def engine_hashes(ask: Ask, block_size: int) -> tuple[int, ...]:
    """Hashes of the full blocks of an engine's own size, which divides that of the ask."""
    if ask.hash_tokens == block_size:
        return ask.block_hashes[: ask.input_tokens // block_size]
    pieces = range(ask.hash_tokens // block_size)
    return tuple(hash((each, piece)) for each in ask.block_hashes for piece in pieces)[: ask.input_tokens // block_size]


class End(StrEnum):
    """How a request ended."""

    FINISHED = "Finished"
    REFUSED = "Refused"  # 503: every attempt met a full engine, or there was none
    FAILED = "Failed"  # 500, or a stream that was cut
    INVALID = "Invalid"  # 400: no engine can ever serve it
    ABORTED = "Aborted"  # the client went away
    UNFINISHED = "Unfinished"  # still under way when the run ended


@dataclass(slots=True)
class Record:
    """One request and its times, seconds of the run; None: did not happen."""

    ask: Ask
    end: End | None = None
    ended_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    generated: int = 0
    attempts: int = 0
    pod: str = ""  # that served it last

    @property
    def ttft_seconds(self) -> float | None:
        """Time to the first token, as the client sees it."""
        return None if self.first_token_at is None else self.first_token_at - self.ask.seconds

    @property
    def tpot_seconds(self) -> float | None:
        """Mean time per output token after the first; None below two tokens."""
        if self.first_token_at is None or self.last_token_at is None or self.generated < 2:
            return None
        return (self.last_token_at - self.first_token_at) / (self.generated - 1)

    @property
    def e2e_seconds(self) -> float | None:
        """Time to the last token of a finished request."""
        if self.end is not End.FINISHED or self.last_token_at is None:
            return None
        return self.last_token_at - self.ask.seconds


def in_time(seconds: float | None, limit: float | None) -> bool:
    """Whether a time keeps a limit; what has no limit or does not exist keeps it."""
    return seconds is None or limit is None or seconds <= limit


def good(record: Record, objective: Objective) -> bool:
    """Whether a request finished and met every bound."""
    return (
        record.end is End.FINISHED
        and in_time(record.ttft_seconds, objective.ttft_seconds)
        and in_time(record.tpot_seconds, objective.tpot_seconds)
        and in_time(record.e2e_seconds, objective.e2e_seconds)
    )


def counts(record: Record, objective: Objective) -> bool:
    """Whether a request is one that could be good: a client that left after a timely first token proves nothing."""
    if record.end is not End.ABORTED or record.ttft_seconds is None:
        return True
    return not in_time(record.ttft_seconds, objective.ttft_seconds)
