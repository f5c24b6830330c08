"""What its author expects of the load: believed until metrics speak."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from goodput.api.base import ApiModel, Int
from goodput.api.quantities import Rate, parse_rate
from goodput.api.rules import Rule

_Tokens = Annotated[Int, Field(ge=1, le=10_000_000)]
# Of a log-normal length: beyond exp(1.645^2 / 2) = 3.87 times the mean no spread has such a percentile.
_MOST_P95 = 3.8


def _spread_rules(mean: str, p95: str, name: str) -> tuple[Rule, Rule]:
    """That a percentile comes with its mean, and is one that lengths with this mean can have."""
    return (
        Rule(
            cel=f"!has(self.{p95}) || has(self.{mean})",
            message=f"{p95} needs {mean}, the mean",
            holds=lambda load: getattr(load, f"{name}_p95") is None or getattr(load, name) is not None,
            path=f".{p95}",
        ),
        Rule(
            cel=(
                f"!has(self.{p95}) || !has(self.{mean}) || (self.{p95} >= self.{mean}"
                f" && self.{p95} * 10 <= self.{mean} * {round(10 * _MOST_P95)})"
            ),
            message=f"{p95} is at least {mean}, the mean, and at most {_MOST_P95} times that",
            holds=lambda load: (
                getattr(load, f"{name}_p95") is None
                or getattr(load, name) is None
                or getattr(load, name) <= getattr(load, f"{name}_p95") <= getattr(load, name) * _MOST_P95
            ),
            path=f".{p95}",
        ),
    )


class Workload(ApiModel):
    """The expected load. The first placement and the first replicas are chosen for it; metrics then replace it."""

    requests_per_second: Rate | None = None
    """Expected requests per second of the whole Model, such as `"2.5"`: the first placement is the cheapest for it,
    with as many replicas as it needs. Unset: minReplicas of the cheapest replica."""
    input_tokens: _Tokens | None = None
    """Mean tokens of a prompt. Unset: 1155, the mean of a public conversation trace."""
    input_tokens_p95: _Tokens | None = Field(default=None, alias="inputTokensP95")
    """Tokens that 95 % of prompts do not exceed. Unset: a spread like that of public conversations."""
    output_tokens: _Tokens | None = None
    """Mean tokens of a visible answer. Unset: 211, the mean of a public conversation trace."""
    output_tokens_p95: _Tokens | None = Field(default=None, alias="outputTokensP95")
    """Tokens that 95 % of visible answers do not exceed. Unset: a spread like that of public conversations."""
    reasoning_tokens: Annotated[Int, Field(ge=0, le=10_000_000)] = 0
    """Mean tokens of reasoning before an answer: they are generated like output, and a user waits for them before the
    first visible token. Default 0."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        *_spread_rules("inputTokens", "inputTokensP95", "input_tokens"),
        *_spread_rules("outputTokens", "outputTokensP95", "output_tokens"),
    )

    @property
    def rate(self) -> float | None:
        """Requests per second."""
        return None if self.requests_per_second is None else parse_rate(self.requests_per_second)
