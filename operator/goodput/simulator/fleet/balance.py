"""How a router chooses an engine. It knows the requests that it forwarded itself, and nothing of other routers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from goodput.simulator.fleet.pods import Pod
from goodput.simulator.fleet.requests import Ask
from goodput.simulator.fleet.settings import RouterSettings


@dataclass(slots=True, eq=False)
class Worker:
    """An engine as one router sees it.

    `blocks` are the prompt blocks that the router sent it and their tokens, the oldest use first; `loose_tokens` are
    prompt tokens that no other prompt can share, `tree_tokens` all that is in its tree.
    """

    pod: Pod
    in_flight: int = 0
    healthy: bool = True
    failures: int = 0  # attempts in a row that failed
    closed_until: float = 0.0  # its circuit is open so long
    blocks: dict[int, int] = field(default_factory=dict)
    loose_tokens: int = 0
    tree_tokens: int = 0

    def matched(self, hashes: tuple[int, ...]) -> int:
        """Leading blocks of a prompt that it was sent before."""
        count = 0
        for each in hashes:
            if each not in self.blocks:
                break
            count += 1
        return count

    def remember(self, ask: Ask, most_tokens: int) -> None:
        """Put a prompt in the tree, and what was not used for longest out of it."""
        for each in ask.block_hashes:
            self.tree_tokens += ask.hash_tokens - self.blocks.pop(each, 0)
            self.blocks[each] = ask.hash_tokens
        loose = max(0, ask.input_tokens - len(ask.block_hashes) * ask.hash_tokens)
        self.loose_tokens += loose
        self.tree_tokens += loose
        surplus = min(self.loose_tokens, max(0, self.tree_tokens - most_tokens))
        self.loose_tokens -= surplus
        self.tree_tokens -= surplus
        while self.tree_tokens > most_tokens:
            self.tree_tokens -= self.blocks.pop(next(iter(self.blocks)))


@dataclass(frozen=True, slots=True)
class Choice:
    """What a choice may look at: workers that can be used (in order of their making), what is asked, where the prompt
    was tried already, and how many requests the router saw before."""

    workers: list[Worker]
    ask: Ask
    tried: list[Worker]
    serial: int
    settings: RouterSettings


def round_robin(choice: Choice) -> Worker:
    """One after the other."""
    return choice.workers[choice.serial % len(choice.workers)]


def least_in_flight(choice: Choice) -> Worker:
    """The one with fewest requests of this router, of those that were not tried yet if there are any."""
    fresh = [each for each in choice.workers if each not in choice.tried] or choice.workers
    return min(fresh, key=lambda worker: worker.in_flight)


def cache_aware(choice: Choice) -> Worker:
    """Where the prompt's start was sent before; unknown prompts to the smallest tree; the least loaded of unequal ones.

    A prompt that was refused is in the tree of who refused it: it goes there again unless loads are unequal.
    """
    settings, ask, workers = choice.settings, choice.ask, choice.workers
    loads = [each.in_flight for each in workers]
    most, least = max(loads), min(loads)
    if most - least > settings.abs_threshold and most > settings.rel_threshold * least:
        chosen = workers[loads.index(least)]
    elif choice.tried and choice.tried[-1] in workers:
        chosen = choice.tried[-1]
    else:
        matches = [each.matched(ask.block_hashes) for each in workers] if ask.block_hashes else [0]
        best = max(matches)
        if best * ask.hash_tokens > settings.cache_threshold * ask.input_tokens:
            chosen = workers[matches.index(best)]
        else:
            chosen = min(workers, key=lambda worker: worker.tree_tokens)
    chosen.remember(ask, settings.tree_tokens)
    return chosen


BALANCES: dict[str, Callable[[Choice], Worker]] = {
    "cache_aware": cache_aware,
    "round_robin": round_robin,
    "least_in_flight": least_in_flight,
}
