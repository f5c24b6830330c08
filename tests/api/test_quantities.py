"""Durations, percentages, quantities and prices."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput.api.quantities import (
    parse_duration_seconds,
    parse_percent,
    parse_period_seconds,
    parse_price,
    parse_quantity,
)
from goodput.domain.percent import MOST_DECIMALS, percent


@pytest.mark.parametrize(
    ("text", "want_seconds"),
    [("500ms", 0.5), ("2s", 2.0), ("1m30s", 90.0), ("1.5s", 1.5), ("1h", 3600.0), ("1ms", 0.001), ("24h", 86_400.0)],
)
def test_durations_are_read_to_the_millisecond(text: str, want_seconds: float) -> None:
    """Each spelling is worth exactly what it says."""
    assert parse_duration_seconds(text) == want_seconds


@pytest.mark.parametrize(
    "text",
    ["", "500", "0s", "0ms", "-1s", "25h", "24h1ms", "0.5ms", "500 ms", "500MS", "1d", "ms", "1s\n", "٣s", "1e3s"],
)
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    """The error quotes the value and shows a right one."""
    with pytest.raises(ValueError, match="500ms") as refused:
        parse_duration_seconds(text)
    assert repr(text) in str(refused.value)


@given(st.integers(min_value=1, max_value=86_400_000))
def test_every_whole_number_of_milliseconds_is_read_exactly(milliseconds: int) -> None:
    """As people spell it: hours, minutes, seconds and milliseconds, those of them that there are."""
    left, text = milliseconds, ""
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, left = divmod(left, size)
        text += f"{count}{unit}" if count else ""
    assert parse_duration_seconds(text) == milliseconds / 1000


@pytest.mark.parametrize(
    ("text", "want_hours"),
    [("1h", 1), ("8760h", 8760), ("1d", 24), ("1000d", 24_000), ("4y", 35_040), ("20y", 175_200)],
)
def test_periods_are_whole_hours_days_or_years(text: str, want_hours: int) -> None:
    """A year has 365 days: what a bookkeeper and a price list mean by it."""
    assert parse_period_seconds(text) == want_hours * 3600.0


@pytest.mark.parametrize(
    "text", ["", "4", "0y", "-1y", "21y", "175201h", "1.5y", "4 y", "4Y", "90m", "1w", "4y\n", "٣y"]
)
def test_what_is_no_period_is_refused_with_an_example(text: str) -> None:
    """The error quotes the value and shows a right one."""
    with pytest.raises(ValueError, match="such as 3y") as refused:
        parse_period_seconds(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(("text", "want"), [("95%", 0.95), ("99.9%", 0.999), ("1%", 0.01), ("99.999%", 0.99999)])
def test_percentages_become_shares(text: str, want: float) -> None:
    """95% is 0.95, exactly."""
    assert parse_percent(text) == want


@pytest.mark.parametrize(
    "text", ["95", "0.95", "0%", "0.5%", "100%", "150%", "-5%", "95 %", "95%%", "", "95%\n", "99.9999%"]
)
def test_what_is_no_percentage_is_refused(text: str) -> None:
    """A share without its sign could mean two things, so it means none."""
    with pytest.raises(ValueError, match="95%"):
        parse_percent(text)


@given(st.integers(min_value=1000, max_value=99_999))
def test_every_percentage_survives_being_written_and_read(thousandths: int) -> None:
    """What is told of an objective is, read again, the same share."""
    share = float(Decimal(thousandths) / 100_000)
    assert parse_percent(percent(share, MOST_DECIMALS)) == share


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ("79.2Gi", Decimal("79.2") * 2**30),
        ("3350G", Decimal(3_350_000_000_000)),
        ("989T", Decimal(989) * 10**12),
        ("500m", Decimal("0.5")),
        ("16", Decimal(16)),
        (16, Decimal(16)),
    ],
)
def test_quantities_are_exact(value: str | int, want: Decimal) -> None:
    """No float is between the text and the number."""
    assert parse_quantity(value) == want


@pytest.mark.parametrize(
    "value", ["0", 0, -1, "-1Gi", "79.2GB", "1 Gi", "", ".5Gi", "Gi", "1e3", "nan", "inf", "1Gi\n"]
)
def test_what_is_no_quantity_is_refused(value: str | int) -> None:
    """Zero is refused too: no field of ours may be nothing."""
    with pytest.raises(ValueError, match="quantity"):
        parse_quantity(value)


@given(st.integers(min_value=1, max_value=10**12), st.sampled_from(["", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"]))
def test_a_suffix_multiplies(number: int, suffix: str) -> None:
    """`nX` is n times `1X`."""
    assert parse_quantity(f"{number}{suffix}") == number * parse_quantity(f"1{suffix}")


@pytest.mark.parametrize(("value", "want"), [("6.88", 6.88), ("7", 7.0), (7, 7.0), ("0.000001", 1e-6)])
def test_prices_are_decimals(value: str | int, want: float) -> None:
    """Text or a whole number."""
    assert parse_price(value) == want


@pytest.mark.parametrize("value", ["0", "-1", "free", "$6.88", "6,88", "1e3", "", "6.88\n"])
def test_what_is_no_price_is_refused(value: str) -> None:
    """Nothing is free, and currencies are not part of a price."""
    with pytest.raises(ValueError, match="price"):
        parse_price(value)
