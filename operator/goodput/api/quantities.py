"""Durations, percentages and Kubernetes quantities: strings as users write them, exact numbers as laws need them.

Every parser is strict and raises ValueError with a sentence that says what a right value looks like.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from goodput.api.rules import VALIDATIONS, Rule, cel_string

_DURATION_UNITS_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
_DURATION = r"(?:[0-9]{1,6}(?:[.][0-9]{1,3})?(?:ms|s|m|h)){1,4}"
_DURATION_PART = re.compile(r"([0-9]+(?:[.][0-9]+)?)(ms|s|m|h)")
_DURATION_MIN_SECONDS = Decimal("0.001")
_DURATION_MAX_SECONDS = Decimal(86_400)
DURATION_MESSAGE = "a duration is a number with a unit, such as 500ms, 2s or 1m30s: at least 1ms, at most 24h"

_PERIOD_UNITS_HOURS = {"h": 1, "d": 24, "y": 8760}
_PERIOD = r"[1-9][0-9]{0,5}[hdy]"
_PERIOD_MAX_HOURS = 20 * 8760
PERIOD_MESSAGE = "a period is a whole number of hours, days or years of 365 days, such as 3y or 1000d: at most 20y"

_PERCENT = r"[1-9][0-9]?(?:[.][0-9]{1,3})?%"
PERCENT_MESSAGE = "a share of requests is a percentage with its sign, such as 95% or 99.9%: at least 1%, less than 100%"

_SUFFIXES = {
    "": Decimal(1),
    "n": Decimal(10) ** -9,
    "u": Decimal(10) ** -6,
    "m": Decimal(10) ** -3,
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}
_QUANTITY = r"[0-9]{1,15}(?:[.][0-9]{1,9})?(?:[numkMGTPE]|[KMGTPE]i)?"
_QUANTITY_PARTS = re.compile(r"([0-9]+(?:[.][0-9]+)?)([numkMGTPE]|[KMGTPE]i)?")
QUANTITY_MESSAGE = "a quantity is a number above 0 with an optional suffix, such as 79.2Gi, 3350G or 989T"
_QUANTITY_MAX_CHARACTERS = 32

_PRICE = r"[0-9]{1,9}(?:[.][0-9]{1,6})?"
PRICE_MESSAGE = 'a price is a decimal number above 0 in quotes, such as "6.88" (a bare whole number is fine too)'

_RATE = r"[0-9]{1,7}(?:[.][0-9]{1,6})?"
RATE_MESSAGE = 'a rate is a decimal number above 0 in quotes, such as "2.5" (a bare whole number is fine too)'


def parse_duration_seconds(text: str) -> float:
    """Seconds of `500ms`, `2s`, `1m30s`; ValueError outside 1 ms to 24 h."""
    if re.fullmatch(_DURATION, text) is None:
        raise ValueError(f"{text!r}: {DURATION_MESSAGE}")
    seconds = sum(
        (Decimal(number) * _DURATION_UNITS_SECONDS[unit] for number, unit in _DURATION_PART.findall(text)), Decimal(0)
    )
    if not _DURATION_MIN_SECONDS <= seconds <= _DURATION_MAX_SECONDS:
        raise ValueError(f"{text!r}: {DURATION_MESSAGE}")
    return float(seconds)


def parse_period_seconds(text: str) -> float:
    """Seconds of `3y`, `1000d` or `8760h`; ValueError beyond 20 years of 365 days."""
    hours = int(text[:-1]) * _PERIOD_UNITS_HOURS[text[-1]] if re.fullmatch(_PERIOD, text) else 0
    if not 0 < hours <= _PERIOD_MAX_HOURS:
        raise ValueError(f"{text!r}: {PERIOD_MESSAGE}")
    return hours * 3600.0


def parse_percent(text: str) -> float:
    """Share 0..1 of `95%` or `99.9%`; ValueError below 1% and from 100% up."""
    if re.fullmatch(_PERCENT, text) is None:
        raise ValueError(f"{text!r}: {PERCENT_MESSAGE}")
    return float(Decimal(text[:-1]) / 100)


def parse_quantity(value: str | int) -> Decimal:
    """Exact value of a Kubernetes quantity such as `79.2Gi` or `3350G`; ValueError unless it is a number above 0."""
    text = str(value)
    found = _QUANTITY_PARTS.fullmatch(text) if re.fullmatch(_QUANTITY, text) else None
    if found is None or (number := Decimal(found[1])) <= 0:
        raise ValueError(f"{text!r}: {QUANTITY_MESSAGE}")
    return number * _SUFFIXES[found[2] or ""]


def parse_price(value: str | int) -> float:
    """Currency units of `"6.88"` or `7`; ValueError for anything but a decimal number above 0."""
    text = str(value)
    try:
        price = Decimal(text) if re.fullmatch(_PRICE, text) else Decimal(0)
    except InvalidOperation:  # pragma: no cover - the expression above admits decimals only
        price = Decimal(0)
    if price <= 0:
        raise ValueError(f"{text!r}: {PRICE_MESSAGE}")
    return float(price)


def parse_rate(value: str | int) -> float:
    """Requests per second of `"2.5"` or `7`; ValueError for anything but a decimal number above 0."""
    text = str(value)
    if re.fullmatch(_RATE, text) is None or float(text) <= 0.0:
        raise ValueError(f"{text!r}: {RATE_MESSAGE}")
    return float(text)


def _parses(parser: Any) -> Any:
    def holds(value: Any) -> bool:
        try:
            parser(value)
        except ValueError:
            return False
        return True

    return holds


DURATION_RULE = Rule(
    cel=(
        f"self.matches({cel_string(f'^{_DURATION}$')}) && duration(self) >= duration('1ms')"
        " && duration(self) <= duration('24h')"
    ),
    message=DURATION_MESSAGE,
    holds=_parses(parse_duration_seconds),
)
PERCENT_RULE = Rule(
    cel=f"self.matches({cel_string(f'^{_PERCENT}$')})", message=PERCENT_MESSAGE, holds=_parses(parse_percent)
)
_PERIOD_HOURS = " : ".join(
    f"self.endsWith('{unit}') ? {hours}" for unit, hours in list(_PERIOD_UNITS_HOURS.items())[:-1]
)
PERIOD_RULE = Rule(
    cel=(
        f"self.matches({cel_string(f'^{_PERIOD}$')}) && int(self.substring(0, size(self) - 1))"
        f" * ({_PERIOD_HOURS} : {_PERIOD_UNITS_HOURS['y']}) <= {_PERIOD_MAX_HOURS}"
    ),
    message=PERIOD_MESSAGE,
    holds=_parses(parse_period_seconds),
)
QUANTITY_RULE = Rule(
    cel=(
        f"string(self).matches({cel_string(f'^{_QUANTITY}$')}) && quantity(string(self)).isGreaterThan(quantity('0'))"
    ),
    message=QUANTITY_MESSAGE,
    holds=_parses(parse_quantity),
)
PRICE_RULE = Rule(
    cel=f"string(self).matches({cel_string(f'^{_PRICE}$')}) && quantity(string(self)).isGreaterThan(quantity('0'))",
    message=PRICE_MESSAGE,
    holds=_parses(parse_price),
)
RATE_RULE = Rule(
    cel=f"string(self).matches({cel_string(f'^{_RATE}$')}) && quantity(string(self)).isGreaterThan(quantity('0'))",
    message=RATE_MESSAGE,
    holds=_parses(parse_rate),
)


def _integer_or_string(value: Any) -> Any:
    """As x-kubernetes-int-or-string reads it: no floats, no booleans. Kept as text, which loses nothing."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON has one kind of number
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise PydanticCustomError("int_or_string", "must be a string or a whole number; put decimals in quotes")
    return str(value)


def _int_or_string(rule: Rule) -> Any:
    schema = {
        "x-kubernetes-int-or-string": True,
        "maxLength": _QUANTITY_MAX_CHARACTERS,
        VALIDATIONS: [rule.as_validation()],
    }
    return Annotated[
        str,
        BeforeValidator(_integer_or_string),
        rule,
        Field(max_length=_QUANTITY_MAX_CHARACTERS),
        WithJsonSchema(schema),
    ]


def _text(rule: Rule, max_length: int) -> Any:
    """A text of which a bare number says nothing: 500 of what, 0.95 or 95 %? Its error says how it is written."""

    def check(value: Any) -> Any:
        if not isinstance(value, str):
            raise PydanticCustomError("rule", "{message}", {"message": f"{rule.message}, not {value!r}", "path": ""})
        return value

    return Annotated[str, BeforeValidator(check), Field(max_length=max_length), rule]


Duration = _text(DURATION_RULE, 32)
Period = _text(PERIOD_RULE, 8)
Percent = _text(PERCENT_RULE, 8)
KubeQuantity = _int_or_string(QUANTITY_RULE)
Price = _int_or_string(PRICE_RULE)
Rate = _int_or_string(RATE_RULE)
