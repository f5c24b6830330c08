"""Settings of the laws. One set for every Model; the chart sets the few that differ between clusters."""

from __future__ import annotations

from goodput.domain.values import Value
from goodput.perfmodel.lengths import PRIOR_INPUT_TOKENS, PRIOR_OUTPUT_TOKENS


class Policy(Value, frozen=True, kw_only=True):
    """Constants of the control laws. Times are seconds, shares 0..1."""

    tick_seconds: float = 10.0  # between two decisions
    scrape_seconds: float = 15.0  # between two scrapes of one pod
    # The shortest average of demand, in scrape intervals, and the longest: as long as the load is seen not to move.
    slow_intervals: int = 5
    level_intervals: int = 40
    # Averages agree as long as they differ by less than this many standard errors of each (Poisson).
    level_sigmas: float = 1.75
    block_sigmas: float = 2.5  # and what is older than an average belongs to it if it differs by less than these
    trend_intervals: int = 8  # intervals to which a trend is fitted
    # The fast estimate acts alone only when it exceeds what went before by this many standard errors (Poisson).
    fast_sigmas: float = 3.7
    # A trend counts when its slope exceeds this many standard errors: it moves the forecast over a whole horizon.
    trend_sigmas: float = 3.0
    moved_sigmas: float = 3.0  # and when what came of late differs by this many from what came before
    # After a replica was added under a load that did not move, replicas fall for so long only to what the highest
    # estimates need that counting makes of that load: so many standard errors of the shortest average (one an hour).
    steady_seconds: float = 3600.0
    steady_sigmas: float = 3.5
    relieved: float = 0.95  # and to no more than this share of the load of each when the last one was added
    # Clients ask again for what engines refused, so many times: as often as the common client libraries do.
    repeats: int = 2
    refused_most: float = 2.0  # what is refused counts for no more load than makes it this many times what is served
    # What the load did in so long says whether replicas can follow it; beyond so many standard errors it is no noise.
    rises_seconds: float = 3600.0
    rises_sigmas: float = 2.0
    rises_share: float = 0.8  # of what the objective lets be missed may be for rises that replicas cannot follow
    attainment_window_seconds: float = 600.0
    memory_window_seconds: float = 1800.0  # longest history of samples
    cooldown_seconds: float = 120.0  # least time for which load must leave room before replicas fall
    # ... and in which a replica holds so many requests, as long as that takes no longer than the seconds below.
    down_requests: float = 130.0
    down_requests_seconds: float = 600.0
    headroom: float = 0.10  # share of the load kept free when replicas fall
    # ... together with this many standard errors of its estimate (p95).
    down_sigmas: float = 1.65
    # A forecast must exceed what runs by this share to call for more: hysteresis against its own noise.
    up_tolerance: float = 0.03
    # Demand may grow by this share over one minute, before experience says otherwise; growth goes with the square root
    # of the horizon. (On a public conversation trace p90 is 0.13; p75 is enough where a start-up is short and replicas
    # come in whole numbers.)
    prior_growth_per_minute: float = 0.08
    trend_damping: float = 0.7  # share of the horizon over which a trend is believed to go on
    trend_most: float = 3.0  # no line lasts until the load is this many times what it is now
    jump_most: float = 1.8  # after a jump the load is expected to rise to this many times the new one, at most
    prior_horizons: int = 20  # horizons seen until the prior has no weight
    max_ratio_quantile: float = 0.9
    # Batch: work is planned to be done within this share of its deadline, and what is late within that one more.
    deadline_share: float = 0.8
    late_share: float = 0.1
    scheduling_seconds: float = 3.0  # from the patched Deployment to a bound pod
    startup_prior_seconds: float = 60.0  # start-up of a small model before one was seen
    # Weights load at about this rate (store to GPU), for the start-up prior of large models.
    load_bytes_per_second: float = 1.0e9
    startup_timeout_seconds: float = 1800.0  # an engine that takes longer to its first answer is given up
    drain_prior_seconds: float = 30.0  # p95 of the drain of a replica before requests were seen
    stale_scrapes: float = (
        3.0  # a scrape older than this many intervals is stale, unless nobody could have read another
    )
    reading_seconds: float = 5.0  # what a slow Prometheus takes to answer, and a pass to begin
    miss_window_seconds: float = 90.0  # window in which certain misses act; longer, up to that of attainment, until
    least_requests: int = 20  # so many requests ended in it
    trim_seconds: float = 120.0  # least time between two steps of the slow trim
    budget_halflife_seconds: float = 1800.0  # after which a miss counts half of what a new one does
    # Below this share of believed capacity, misses are not for lack of replicas.
    explained_utilisation: float = 0.35
    correction_min: float = 0.5
    correction_max: float = 2.0
    correction_halflife_seconds: float = 120.0
    # Prefill is seen through requests that finished: later, and fewer of them than tokens.
    prefill_halflife_seconds: float = 240.0
    acceptance_halflife_seconds: float = 300.0
    # A pod is slow below this share of the speed of the others, and known to be after it was for so long.
    slow_share: float = 0.75
    slow_seconds: float = 300.0
    slow_halflife_seconds: float = 60.0
    slow_replace_seconds: float = 3600.0  # least time between two replacements of slow pods
    warmup_seconds: float = 30.0  # after a pod turned ready, residuals do not count
    # Lengths assumed until metrics speak: the means of a public conversation trace, worth this many requests.
    prior_input_tokens: float = PRIOR_INPUT_TOKENS
    prior_output_tokens: float = PRIOR_OUTPUT_TOKENS
    prior_requests: float = 50.0
    # Chart-wide limits per namespace; None: none.
    max_gpus_per_namespace: int | None = None
    max_cost_per_hour_per_namespace: float | None = None

    @property
    def stale_seconds(self) -> float:
        """Age of a scrape at which it is stale: passes between two ticks see what was read at the last one, and one
        scrape may fail."""
        return max(
            self.stale_scrapes * self.scrape_seconds,
            self.tick_seconds + self.reading_seconds + 2.0 * self.scrape_seconds,
        )

    @property
    def settled_seconds(self) -> float:
        """Time after which a ready pod must have been scraped, and the scrape read."""
        return max(2.0 * self.scrape_seconds, self.tick_seconds + self.reading_seconds + self.scrape_seconds)
