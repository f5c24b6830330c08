"""Quantities of Kubernetes."""

from __future__ import annotations

from decimal import Decimal

import pytest

from goodput_world.agent.quantity import parse_quantity, whole


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("512Gi", Decimal(512 * 2**30)),
        ("1500m", Decimal("1.5")),
        ("2e3", Decimal(2000)),
        ("1E", Decimal(10**18)),
        ("3M", Decimal(3_000_000)),
        (8, Decimal(8)),
        ("0", Decimal(0)),
    ],
)
def test_a_quantity_has_its_exact_value(text: str | int, want: Decimal) -> None:
    """Binary, decimal and exponent forms are read exactly; `E` is exa, `2e3` an exponent."""
    assert parse_quantity(text) == want


@pytest.mark.parametrize("text", ["", "Gi", "12 GB", "abc"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    """The error carries the text."""
    with pytest.raises(ValueError, match="not a Kubernetes quantity"):
        parse_quantity(text)


def test_counts_round_up() -> None:
    """Half a GPU is a whole one, as in Kubernetes."""
    assert whole("500m") == 1
