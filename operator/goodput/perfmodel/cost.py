"""What serving costs: money and energy, per hour, per 1,000 requests and per million output tokens.

An hour of a GPU costs the first of these that is known (`priced`):

1. `purchase`: price / amortisation, plus energy where the price of power is known;
2. on spot nodes, the spot price;
3. the rental price.

Power is a share of TDP that follows what binds: idle + bandwidth * MBU + compute * MFU, at most 1. scripts/fit-power
fits the three shares to measured runs and writes data/power.json with its errors: prefill draws TDP, decode less.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

from msgspec.structs import replace

from goodput.domain.intent import GpuType, Purchase
from goodput.domain.values import Value

HOURS_PER_YEAR = 8760.0
# A quick reader takes in about 375 words a minute, 500 tokens.
READING_SECONDS_PER_TOKEN = 0.120
# Below this share of reading speed a chat is fast beyond use. Half: people skim, and tokens do not come evenly.
FAR_UNDER_READING = 0.5

_SECONDS_PER_HOUR = 3600.0
_SECONDS_PER_DAY = 24.0 * _SECONDS_PER_HOUR
_JOULE_PER_KWH = 3.6e6
_MILLION = 1e6


class Power(Value, frozen=True, kw_only=True):
    """Shares of TDP that a GPU at work draws: always, at full memory bandwidth, and at full compute beside it."""

    idle: float
    bandwidth: float
    compute: float


class Cost(Value, frozen=True, kw_only=True):
    """Of one replica under a load; None: unknown (no price, no TDP, no tokens). Money is in the prices' currency."""

    per_hour: float | None
    per_thousand_requests: float | None
    per_million_output_tokens: float | None
    watts: float | None
    kwh_per_million_output_tokens: float | None


@cache
def power() -> Power:
    """The fitted law of power."""
    text = files("goodput.perfmodel").joinpath("data", "power.json").read_text(encoding="utf-8")
    fitted = json.loads(text)
    return Power(idle=fitted["idle"], bandwidth=fitted["bandwidth"], compute=fitted["compute"])


def watts(gpu: GpuType, *, mfu: float, mbu: float) -> float | None:
    """Watts that one GPU draws at these utilisations of wall time (0..1); None where its TDP is unknown.

    The law is linear below TDP, so the mean utilisations of a replica give its mean power. One that waits draws less
    than `idle`: what comes out is an upper bound for it.
    """
    if gpu.tdp_watts is None:
        return None
    law = power()
    return gpu.tdp_watts * min(1.0, law.idle + law.bandwidth * mbu + law.compute * mfu)


def kilowatt_hours(power_watts: float, seconds: float) -> float:
    """Energy of a steady power."""
    return power_watts * seconds / _JOULE_PER_KWH


def purchase_per_hour(purchase: Purchase, power_watts: float | None) -> float:
    """What an hour of a bought GPU costs; energy is left out where its price or the power is unknown."""
    written_off = purchase.price * _SECONDS_PER_HOUR / purchase.amortisation_seconds
    if purchase.power_price_per_kwh is None or power_watts is None:
        return written_off
    return written_off + kilowatt_hours(power_watts, _SECONDS_PER_HOUR) * purchase.power_price_per_kwh


def price_per_hour(gpu: GpuType, power_watts: float | None = None) -> float | None:
    """What an hour of one GPU of a type costs that `priced` made. `power_watts` (None: TDP) is what it draws."""
    if gpu.purchase is None:
        return gpu.price_per_hour
    return purchase_per_hour(gpu.purchase, gpu.tdp_watts if power_watts is None else power_watts)


def priced(gpu: GpuType, *, spot: bool) -> GpuType:
    """The type with the price that counts: of its purchase at TDP, else of spot where its nodes are, else its rent."""
    if gpu.purchase is not None:
        price = purchase_per_hour(gpu.purchase, gpu.tdp_watts)
        return replace(gpu, price_per_hour=price, price_assumed=False, price_source="spec.purchase, at TDP")
    if spot and gpu.spot_price_per_hour is not None:
        return replace(
            gpu,
            price_per_hour=gpu.spot_price_per_hour,
            price_assumed=gpu.spot_price_assumed,
            price_source=gpu.spot_price_source,
        )
    return gpu


def per_million_tokens(per_hour: float, tokens_per_second: float) -> float | None:
    """Money for a million tokens at a steady rate; None without tokens."""
    if tokens_per_second <= 0.0:
        return None
    return per_hour * _MILLION / (tokens_per_second * _SECONDS_PER_HOUR)


def per_thousand_requests(per_hour: float, requests_per_second: float) -> float | None:
    """Money for a thousand requests at a steady rate; None without requests."""
    return None if requests_per_second <= 0.0 else per_hour * 1000.0 / (requests_per_second * _SECONDS_PER_HOUR)


def saved_prefill_tokens_per_day(shared_tokens: float, requests_per_second: float) -> float:
    """Prompt tokens a day that need not be computed where each request finds `shared_tokens` of its own in a cache."""
    return shared_tokens * requests_per_second * _SECONDS_PER_DAY


def cost(
    gpu: GpuType,
    *,
    gpus: int,
    requests_per_second: float,
    output_tokens_per_second: float,
    mfu: float | None = None,
    mbu: float | None = None,
) -> Cost:
    """Cost of one replica of `gpus` GPUs that serves these rates. `mfu` and `mbu` are of wall time.

    Unknown utilisations: power is unknown, and the energy of a bought GPU is counted at TDP.
    """
    drawn = watts(gpu, mfu=mfu, mbu=mbu) if mfu is not None and mbu is not None else None
    price = price_per_hour(gpu, drawn)
    per_hour = None if price is None else price * gpus
    power_watts = None if drawn is None else drawn * gpus
    tokens = output_tokens_per_second
    return Cost(
        per_hour=per_hour,
        per_thousand_requests=None if per_hour is None else per_thousand_requests(per_hour, requests_per_second),
        per_million_output_tokens=None if per_hour is None else per_million_tokens(per_hour, tokens),
        watts=power_watts,
        kwh_per_million_output_tokens=(
            None if power_watts is None or tokens <= 0.0 else kilowatt_hours(power_watts, _MILLION / tokens)
        ),
    )


def beyond_reading(tpot_seconds: float) -> str:
    """What to say where a chat's time per output token is far under reading speed; '' where it is not."""
    if not 0.0 < tpot_seconds <= FAR_UNDER_READING * READING_SECONDS_PER_TOKEN:
        return ""
    times = READING_SECONDS_PER_TOKEN / tpot_seconds
    return (
        f"people read a token in about {READING_SECONDS_PER_TOKEN * 1e3:.0f} ms: {tpot_seconds * 1e3:.0f} ms is "
        f"{times:.1f} times as fast"
    )
