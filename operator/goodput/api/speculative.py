"""Speculative decoding: whether a Model may have it, and who drafts."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from goodput.api.base import ApiModel, Int
from goodput.api.quantities import Percent, parse_percent
from goodput.api.rules import Rule, matches

WITH_MODEL = ("draft", "eagle", "eagle3")
_MODES = ("Auto", "Always", "Off")


def _off(value: Any) -> Any:
    return "Off" if value is False else value


class Speculative(ApiModel):
    """Tokens are drafted cheaply and verified several at a time: the same output with less time per token, where the
    GPU waits for memory and drafts are accepted."""

    method: Literal["ngram", "draft", "eagle", "eagle3", "mtp"]
    """Who drafts. `ngram`: what followed the same words earlier, for output that repeats its input (reviews and edits
    of code, summaries that quote). `draft`: a small model with the same vocabulary. `eagle`, `eagle3`: a head trained
    for this model. `mtp`: layers for multi-token prediction that the checkpoint brings."""
    mode: Annotated[
        Literal["Auto", "Always", "Off"],
        BeforeValidator(_off),
        # YAML reads a bare Off as false, so false is Off.
        WithJsonSchema({"x-kubernetes-preserve-unknown-fields": True, "enum": [*_MODES, False]}),
    ] = "Auto"
    """`Auto`: where it is believed to be faster at the load at which the SLO is just met. `Always`: whatever is
    believed. `Off`: never. Default Auto."""
    model: (
        Annotated[
            str,
            Field(min_length=3, max_length=512),
            matches(
                "[A-Za-z0-9][-A-Za-z0-9._]*/[A-Za-z0-9][-A-Za-z0-9._]*",
                "the model that drafts is a Hugging Face id (organisation/name)",
            ),
        ]
        | None
    ) = None
    """Hugging Face id of the draft model or the head, for `draft`, `eagle` and `eagle3` only; a draft model is one of
    the built-in catalogue. Unset: the method has none."""
    tokens: Annotated[Int, Field(ge=1, le=16)] | None = None
    """Tokens drafted at a time. Unset: the number that is best at the load at which the SLO is just met."""
    acceptance: Percent | None = None
    """Chance that a drafted token is accepted if those before it were, such as `70%`: believed until the engine counts.
    Unset: a published one of the method."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"(self.method in [{', '.join(repr(method) for method in WITH_MODEL)}]) == has(self.model)",
            message=f"{', '.join(WITH_MODEL)} need a model that drafts; ngram and mtp have none",
            holds=lambda spec: (spec.method in WITH_MODEL) == (spec.model is not None),
            path=".model",
        ),
    )

    @property
    def acceptance_share(self) -> float | None:
        """0..1."""
        return None if self.acceptance is None else parse_percent(self.acceptance)
