"""Plain or speculative decoding of one replica: who asks for it, where it helps, what it costs in memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from goodput.domain.architecture import Architecture
from goodput.domain.errors import ModelDoesNotFit
from goodput.domain.intent import GpuType, Objective
from goodput.domain.speculation import DraftMethod, Speculation, SpeculationMode
from goodput.perfmodel import Lengths, Shape, architecture, built_in_gpu_types, capacity
from goodput.perfmodel.speculating import Choice, choose

LOOKUP = Speculation(method=DraftMethod.NGRAM)
EDITS = Lengths(3000.0, 500.0)
TIGHT = Objective(ttft_seconds=2.0, tpot_seconds=0.02, e2e_seconds=None)
# Hundreds of sequences at once: computing binds.
LOOSE = Objective(ttft_seconds=20.0, tpot_seconds=0.5, e2e_seconds=None)
SHORT = Lengths(200.0, 400.0)


def model(name: str) -> Architecture:
    found = architecture(name)
    assert found is not None
    return found


def gpu(name: str) -> GpuType:
    return next(each for each in built_in_gpu_types() if each.name == name)


def chosen(
    speculation: Speculation | None,
    lengths: Lengths = EDITS,
    objective: Objective = TIGHT,
    *,
    name: str = "meta-llama/Llama-3.1-70B-Instruct",
    on: str = "h100-sxm",
    tensor: int = 4,
) -> Choice:
    return choose(model(name), gpu(on), Shape(tensor_parallel=tensor), lengths, objective, speculation=speculation)


def test_without_being_asked_nobody_speculates():
    found = chosen(None)
    assert (found.tokens, found.message) == (0, "")


def test_a_bot_that_quotes_its_input_drafts_by_lookup():
    """A code-review bot on a 70B: more tokens a step, and a rate that plain decoding does not reach."""
    found = chosen(LOOKUP)
    plain = chosen(None)
    assert found.tokens >= 2
    assert found.capacity.rps > plain.capacity.rps
    assert "x faster at a batch of" in found.message


def test_at_a_batch_where_computing_binds_it_stays_off_and_says_why():
    unlikely = replace(LOOKUP, acceptance=0.3)
    found = chosen(unlikely, SHORT, LOOSE, name="meta-llama/Llama-3.1-8B-Instruct", tensor=1)
    assert found.tokens == 0
    assert found.capacity == chosen(None, SHORT, LOOSE, name="meta-llama/Llama-3.1-8B-Instruct", tensor=1).capacity
    assert "cannot help at a batch of" in found.message or "does not help at a batch of" in found.message


def test_always_is_always():
    unlikely = replace(LOOKUP, acceptance=0.3, mode=SpeculationMode.ALWAYS, tokens=3)
    found = chosen(unlikely, SHORT, LOOSE, name="meta-llama/Llama-3.1-8B-Instruct", tensor=1)
    assert found.tokens == 3


def test_a_number_of_tokens_that_was_given_is_kept():
    assert chosen(replace(LOOKUP, tokens=2)).tokens == 2


def test_a_drafter_that_leaves_no_room_is_left_out_unless_it_is_demanded():
    """A 13B fills a 40 GB card so far that a 7B beside it leaves no KV cache."""
    draft = Speculation(
        method=DraftMethod.DRAFT, model="meta-llama/Llama-2-7b-hf", draft=model("meta-llama/Llama-2-7b-hf")
    )
    target, card = "meta-llama/Llama-2-13b-hf", "a100-40g-sxm"
    found = chosen(draft, SHORT, LOOSE, name=target, on=card, tensor=1)
    assert found.tokens == 0
    assert found.message.startswith("no speculation: with its drafter ")
    with pytest.raises(ModelDoesNotFit):
        chosen(replace(draft, mode=SpeculationMode.ALWAYS), SHORT, LOOSE, name=target, on=card, tensor=1)


def test_what_was_chosen_is_what_capacity_says_of_that_shape():
    found = chosen(LOOKUP)
    again = capacity(model("meta-llama/Llama-3.1-70B-Instruct"), gpu("h100-sxm"), found.shape, EDITS, TIGHT)
    assert again == found.capacity


@given(
    objective=st.sampled_from([TIGHT, LOOSE, Objective(ttft_seconds=0.5, tpot_seconds=0.05, e2e_seconds=None)]),
    input_mean=st.floats(20.0, 20_000.0),
    output_mean=st.floats(2.0, 3_000.0),
    acceptance=st.floats(0.01, 0.99),
    tokens=st.none() | st.integers(1, 16),
    mode=st.sampled_from(SpeculationMode),
    on=st.sampled_from([("l40s", 8), ("h100-sxm", 4), ("h200-sxm", 2)]),
)
def test_any_load_can_be_judged(*, objective, input_mean, output_mean, acceptance, tokens, mode, on):
    """Never an error, always a capacity and a reason; what is demanded is done."""
    asked = Speculation(method=DraftMethod.NGRAM, mode=mode, acceptance=acceptance, tokens=tokens)
    found = chosen(asked, Lengths(input_mean, output_mean), objective, on=on[0], tensor=on[1])
    assert found.capacity.rps > 0.0
    assert found.message
    if mode is SpeculationMode.ALWAYS:
        assert found.tokens == tokens or (tokens is None and found.tokens >= 1)
