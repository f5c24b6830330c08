"""Money and energy: the figures of every textbook, precedence of prices, and a law of power that was fitted."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from goodput.domain.intent import Purchase
from goodput.perfmodel.cost import (
    HOURS_PER_YEAR,
    beyond_reading,
    cost,
    kilowatt_hours,
    per_million_tokens,
    per_thousand_requests,
    power,
    price_per_hour,
    priced,
    purchase_per_hour,
    saved_prefill_tokens_per_day,
    watts,
)
from goodput.perfmodel.gpus import gpu_type

YEAR_SECONDS = HOURS_PER_YEAR * 3600.0
BOUGHT = Purchase(price=8760, amortisation_seconds=YEAR_SECONDS)
shares = st.floats(0.0, 1.0)


def _h100():
    found = gpu_type("h100-sxm")
    assert found is not None
    return found


def test_two_dollars_an_hour_at_100_tokens_a_second():
    """A million output tokens cost $5.556; 1,000 requests of 200 of them $1.11, their prefill $0.33, together $1.44."""
    per_million = per_million_tokens(2.0, 100.0)
    assert per_million == pytest.approx(5.556, abs=5e-4)
    decode = per_million * 200 * 1000 / 1e6
    assert decode == pytest.approx(1.11, abs=5e-3)
    prefill = per_thousand_requests(2.0, 100.0 / 60.0)
    assert prefill == pytest.approx(0.33, abs=5e-3)
    assert decode + prefill == pytest.approx(1.44, abs=5e-3)


def test_an_h100_at_its_tdp_all_year_draws_6132_kwh():
    """700 W for 8,760 hours."""
    assert _h100().tdp_watts == 700
    assert kilowatt_hours(700, YEAR_SECONDS) == pytest.approx(6132)


def test_a_bought_gpu_costs_its_write_off_and_its_energy():
    """$30,000 over four years is $0.856/h; at TDP and $0.15 a kWh energy adds $0.105."""
    bought = Purchase(price=30_000, amortisation_seconds=4 * YEAR_SECONDS, power_price_per_kwh=0.15)
    assert purchase_per_hour(bought, 700) == pytest.approx(0.8562 + 0.105, abs=1e-4)
    assert purchase_per_hour(replace(bought, power_price_per_kwh=None), 700) == pytest.approx(0.8562, abs=1e-4)
    assert purchase_per_hour(bought, None) == pytest.approx(0.8562, abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "spot", "want", "assumed"),
    [
        pytest.param({}, False, 6.88, True, id="rented: the built-in list price"),
        pytest.param({}, True, 6.326, True, id="spot nodes: the built-in spot price"),
        pytest.param({"spot_price_per_hour": None}, True, 6.88, True, id="spot nodes, no spot price: the rent"),
        pytest.param(
            {"purchase": Purchase(price=8760, amortisation_seconds=YEAR_SECONDS)}, True, 1.0, False, id="bought"
        ),
        pytest.param({"price_per_hour": None}, False, None, True, id="nobody knows"),
    ],
)
def test_the_price_that_counts(changes, spot, want, assumed):
    """Purchase before spot before rent; nothing known is None, not 0."""
    found = priced(replace(_h100(), **changes), spot=spot)
    assert found.price_per_hour == (None if want is None else pytest.approx(want))
    assert found.price_assumed is assumed
    assert price_per_hour(found) == found.price_per_hour


def test_energy_of_a_bought_gpu_follows_what_it_draws():
    """Decode at half of the bandwidth draws two thirds of TDP, and costs that much power."""
    bought = Purchase(price=8760, amortisation_seconds=YEAR_SECONDS, power_price_per_kwh=1.0)
    gpu = priced(replace(_h100(), purchase=bought), spot=False)
    assert gpu.price_per_hour == pytest.approx(1.0 + 0.7)
    drawn = watts(gpu, mfu=0.01, mbu=0.5)
    assert drawn == pytest.approx(0.67 * 700, rel=0.03)
    found = cost(gpu, gpus=2, requests_per_second=1, output_tokens_per_second=1000, mfu=0.01, mbu=0.5)
    assert found.per_hour == pytest.approx(2 * (1.0 + drawn / 1000))
    assert found.watts == pytest.approx(2 * drawn)
    assert found.kwh_per_million_output_tokens == pytest.approx(2 * drawn / 3.6e6 * 1000)


def test_what_is_unknown_stays_unknown():
    """Without TDP no watts, without a price no money, without load no cost of a token."""
    tpu = gpu_type("tpu-v5e")
    assert tpu is not None
    assert watts(tpu, mfu=0.1, mbu=0.1) is None
    b100 = gpu_type("b100")
    assert b100 is not None
    none = cost(b100, gpus=1, requests_per_second=1, output_tokens_per_second=100)
    assert (none.per_hour, none.per_thousand_requests, none.per_million_output_tokens, none.watts) == (None,) * 4
    idle = cost(_h100(), gpus=1, requests_per_second=0, output_tokens_per_second=0, mfu=0, mbu=0)
    assert idle.per_hour == 6.88
    assert idle.watts == pytest.approx(700 * power().idle)
    assert (idle.per_thousand_requests, idle.per_million_output_tokens) == (None, None)
    assert idle.kwh_per_million_output_tokens is None


def test_prefill_draws_tdp_and_decode_less():
    """A prompt phase at 60 % of peak FLOP/s draws all of it, decode of one sequence on two A100 74 %, as measured."""
    a100 = gpu_type("a100-80g-sxm")
    assert a100 is not None
    assert watts(a100, mfu=0.6, mbu=0.05) == a100.tdp_watts
    assert watts(a100, mfu=0.004, mbu=0.62) == pytest.approx(0.74 * 400, rel=0.03)
    assert watts(a100, mfu=0.001, mbu=0.19) == pytest.approx(0.435 * 400, rel=0.03)


@given(shares, shares, shares)
def test_power_grows_with_work_and_ends_at_tdp(mfu, mbu, more):
    """Never over TDP, never below idle, never less for more work."""
    gpu = _h100()
    drawn = watts(gpu, mfu=mfu, mbu=mbu)
    assert 700 * power().idle <= drawn <= 700
    assert watts(gpu, mfu=mfu + more, mbu=mbu) >= drawn
    assert watts(gpu, mfu=mfu, mbu=mbu + more) >= drawn


def test_the_fit_says_how_wrong_it_is_and_what_it_left_out():
    """Mean power within 5 % on what it saw, 15 % on degrees of parallelism that it did not."""
    fitted = json.loads(files("goodput.perfmodel").joinpath("data", "power.json").read_text())
    assert fitted["mean_power_error"] < 0.05
    assert max(fitted["mean_power_error_held_out"].values()) < 0.15
    assert sum(fitted["rows_left_out"].values()) == 780
    assert fitted["configurations"] == 27


@pytest.mark.parametrize(
    ("tpot_ms", "said"),
    [(10, "12.0 times"), (50, "2.4 times"), (60, "2.0 times"), (61, ""), (120, ""), (200, ""), (0, "")],
)
def test_a_chat_far_under_reading_speed_is_told(tpot_ms, said):
    """People read a token in about 120 ms: faster than twice that pays for what nobody sees."""
    text = beyond_reading(tpot_ms / 1e3)
    assert (said in text) if said else text == ""


def test_a_system_prompt_that_all_share_saves_its_prefill_each_time():
    """1,000 tokens at 1M calls a day: 1B tokens of prefill saved a day."""
    assert saved_prefill_tokens_per_day(1000.0, 1e6 / 86_400.0) == pytest.approx(1e9)
