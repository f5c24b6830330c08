"""Speculative decoding as a user asks for it: who drafts, and how many tokens."""

from __future__ import annotations

from enum import StrEnum

from goodput.domain.architecture import Architecture
from goodput.domain.values import Value


class DraftMethod(StrEnum):
    """Who proposes the tokens that the model then verifies."""

    NGRAM = "ngram"  # what followed the same few tokens earlier in prompt or answer
    DRAFT = "draft"  # a smaller model with the same vocabulary
    EAGLE = "eagle"  # a head of one layer on the model's last hidden state
    EAGLE3 = "eagle3"  # the same on hidden states of several depths
    MTP = "mtp"  # layers for multi-token prediction that the checkpoint brings


class SpeculationMode(StrEnum):
    AUTO = "Auto"  # where it is believed to be faster at the batch of the SLO
    ALWAYS = "Always"


class Speculation(Value, frozen=True, kw_only=True):
    """What a Model allows (`Auto`) or demands (`Always`). `tokens` None: the number that is best at the SLO's batch."""

    method: DraftMethod
    mode: SpeculationMode = SpeculationMode.AUTO
    model: str = ""  # checkpoint of the draft model or the head, where the method has one
    tokens: int | None = None
    # Structure of the draft model; None for all other methods, whose cost follows from the target's.
    draft: Architecture | None = None
    # Expected chance (0..1) that a drafted token is accepted, given that those before it were. None: the prior.
    acceptance: float | None = None
