"""What a policy sees: counters that agree with what happened, through scrapes and histograms."""

from itertools import pairwise

import pytest
from tests.simulator.fleet.fleets import CHAT, poisson, settings, steady

from goodput.simulator.fleet.clients import OpenLoop
from goodput.simulator.fleet.counters import within
from goodput.simulator.fleet.faults import Crash
from goodput.simulator.fleet.requests import End
from goodput.simulator.fleet.settings import Edges, ScrapeSettings
from goodput.simulator.fleet.simulation import simulate


def test_the_counters_of_all_engines_are_what_happened():
    """At the end: first tokens, finished requests, tokens, and how many were in time."""
    script = steady(2)
    # Nothing arrives in the last minute, so that the last scrapes have seen everything.
    found = simulate(settings(240.0, replicas=2), OpenLoop(poisson(5.0, 180.0)), script)
    view = script.at(240.0)
    scrapes = list(view.latest.values())
    assert sum(each.finished for each in scrapes) == found.requests
    assert sum(each.first_tokens for each in scrapes) == found.requests
    assert sum(each.prompt_tokens for each in scrapes) == 600 * found.requests
    assert sum(each.generation_tokens for each in scrapes) == 60 * found.requests
    assert sum(each.itl_count for each in scrapes) == 59 * found.requests
    assert CHAT.ttft_seconds is not None
    timely = sum(1 for each in found.records if (each.ttft_seconds or 9.0) <= CHAT.ttft_seconds)
    assert sum(within(each.ttft, view.edges.ttft, CHAT.ttft_seconds) for each in scrapes) == timely
    assert sum(each[-1].requests for each in view.routers.values()) == found.requests
    assert sum(each[-1].errors for each in view.routers.values()) == 0
    # Half way, the routers have what the engines have, but for what came and went between their scrapes.
    middle = script.at(120.0)
    assert sum(each[-1].in_flight for each in middle.routers.values()) == pytest.approx(
        sum(each.running + each.waiting for each in middle.serving), abs=8
    )
    assert (middle.ready, middle.provisioned) == (2, 2)


def test_rates_and_quantiles_are_those_of_the_last_while():
    """Over five minutes of steady load: requests a second, output tokens a second, p90 between its edges."""
    script = steady(2)
    found = simulate(settings(400.0, replicas=2), OpenLoop(poisson(4.0, 400.0)), script)
    view = script.at(400.0)
    recent = [each for each in found.records if each.ask.seconds >= 100.0]
    assert view.offered_rps(300.0) == pytest.approx(len(recent) / 300.0, rel=0.05)
    assert view.rate(lambda scrape: scrape.generation_tokens, 300.0) == pytest.approx(60 * len(recent) / 300, rel=0.05)
    assert view.increase(lambda scrape: scrape.finished, 300.0) == pytest.approx(len(recent), rel=0.1)
    exact = sorted(each.ttft_seconds or 9.0 for each in recent)[int(0.9 * len(recent))]
    read = view.quantile("ttft", 0.9, 300.0)
    edges = view.edges.ttft
    assert read is not None
    bucket = next(number for number, edge in enumerate(edges) if exact <= edge)
    assert edges[bucket - 1] <= read <= edges[bucket]
    assert 0 < view.histogram("e2e", 300.0, pod="serve-0001").count < view.histogram("e2e", 300.0).count


def test_nothing_counted_has_no_quantile():
    script = steady(1)
    simulate(settings(60.0), OpenLoop([]), script)
    assert script.at(60.0).quantile("ttft", 0.9, 60.0) is None


def test_scrapes_are_every_15_s_at_phases_of_their_own_and_seen_after_their_delay():
    script = steady(3)
    scrape = ScrapeSettings(delay_seconds=5.0)
    simulate(settings(120.0, replicas=3, scrape=scrape), OpenLoop(poisson(1.0, 120.0)), script)
    view = script.at(120.0)
    phases = set()
    for scrapes in view.scrapes.values():
        gaps = [after.at - before.at for before, after in pairwise(scrapes)]
        assert gaps == pytest.approx([15.0] * len(gaps))
        assert 115.0 - 15.0 < scrapes[-1].at <= 115.0
        phases.add(round(scrapes[-1].at % 15.0, 6))
    assert len(phases) == 3


def test_a_lost_scrape_leaves_a_gap():
    script = steady(1)
    simulate(settings(900.0, scrape=ScrapeSettings(lost_share=0.3)), OpenLoop([]), script)
    (scrapes,) = script.at(899.0).scrapes.values()
    assert len(scrapes) == pytest.approx(0.7 * 60, abs=10)


def test_a_pod_that_does_not_answer_is_not_in_the_latest_scrapes():
    """Dead from 100 s on: gone with the first scrape that fails, back with the first that does not."""
    script = steady(2)
    fleet = settings(250.0, replicas=2, faults=(Crash(100.0, 1),))
    simulate(fleet, OpenLoop(poisson(1.0, 250.0)), script)
    assert set(script.at(90.0).latest) == {"serve-0001", "serve-0002"}
    assert set(script.at(120.0).latest) == {"serve-0002"}
    assert set(script.at(240.0).latest) == {"serve-0001", "serve-0002"}


def test_a_restart_is_no_negative_rate():
    """Counters begin anew with the engine: what was counted after a crash adds to what was before."""
    script = steady(1)
    fleet = settings(300.0, startup_seconds=20.0, faults=(Crash(150.0, 1),))
    found = simulate(fleet, OpenLoop(poisson(2.0, 300.0)), script)
    finished = sum(1 for each in found.records if each.end is End.FINISHED)
    grown = script.at(300.0).increase(lambda scrape: scrape.finished, 400.0)
    assert 0.8 * finished <= grown <= finished


def test_edges_hold_the_bounds_of_the_objective():
    assert 0.05 in Edges().with_bounds(CHAT).tpot
    assert Edges(ttft=(0.1, 1.0)).with_bounds(CHAT).ttft == (0.1, 0.5, 1.0)
