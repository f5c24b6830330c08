"""Kubernetes quantities as numbers: `512Gi`, `1500m`, `2e3`."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

_SUFFIXES = {
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
}


def parse_quantity(text: str | int | float) -> Decimal:
    """The exact value of a quantity. Raises ValueError with the text when it is none."""
    written = str(text).strip()
    suffix = next((suffix for suffix in _SUFFIXES if written.endswith(suffix)), "")
    number = written.removesuffix(suffix)
    try:
        return Decimal(number) * (_SUFFIXES[suffix] if suffix else Decimal(1))
    except InvalidOperation:
        raise ValueError(f"not a Kubernetes quantity: {written!r}") from None


def whole(text: str | int | float) -> int:
    """A quantity rounded up to a whole number, as Kubernetes rounds counts and bytes."""
    value = parse_quantity(text)
    return int(value.to_integral_value(rounding="ROUND_CEILING"))
