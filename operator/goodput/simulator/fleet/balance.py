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

    `blocks` are the prompt blocks that the router sent it, the oldest use first, `loose_tokens` the prompt tokens that
    no other prompt can share.
    """

    pod: Pod
    in_flight: int = 0
    healthy: bool = True
    failures: int = 0  # attempts in a row that failed
    closed_until: float = 0.0  # its circuit is open so long
    blocks: dict[int, None] = field(default_factory=dict)
    loose_tokens: int = 0

    def tree_tokens(self, block_size: int) -> int:
        """Prompt tokens in the router's tree for it."""
        return len(self.blocks) * block_size + self.loose_tokens

    def matched(self, hashes: tuple[int, ...]) -> int:
        """Leading blocks of a prompt that it was sent before."""
        count = 0
        for each in hashes:
            if each not in self.blocks:
                break
            count += 1
        return count

    def remember(self, ask: Ask, block_size: int, most_tokens: int) -> None:
        """Put a prompt in the tree, and what was not used for longest out of it."""
        for each in ask.block_hashes:
            self.blocks.pop(each, None)
            self.blocks[each] = None
        self.loose_tokens += max(0, ask.input_tokens - len(ask.block_hashes) * block_size)
        surplus = self.tree_tokens(block_size) - most_tokens
        if surplus > 0:
            loose = min(surplus, self.loose_tokens)
            self.loose_tokens -= loose
            for each in list(self.blocks)[: -(-(surplus - loose) // block_size)]:
                del self.blocks[each]


@dataclass(frozen=True, slots=True)
class Choice:
    """What a choice may look at: workers that can be used (in order of their making), what is asked, where the prompt
    was tried already, and how many requests the router saw before."""

    workers: list[Worker]
    ask: Ask
    tried: list[Worker]
    serial: int
    block_size: int
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
        if best * choice.block_size > settings.cache_threshold * ask.input_tokens:
            chosen = workers[matches.index(best)]
        else:
            chosen = min(workers, key=lambda worker: worker.tree_tokens(choice.block_size))
    chosen.remember(ask, choice.block_size, settings.tree_tokens)
    return chosen


BALANCES: dict[str, Callable[[Choice], Worker]] = {
    "cache_aware": cache_aware,
    "round_robin": round_robin,
    "least_in_flight": least_in_flight,
}
