"""Speculative decoding: the formulas, published values, and where it cannot help."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from goodput.domain.architecture import Architecture
from goodput.domain.intent import Objective
from goodput.domain.speculation import DraftMethod, Speculation
from goodput.domain.values import Value
from goodput.perfmodel import Lengths, Shape, architecture, built_in_gpu_types, capacity
from goodput.perfmodel.drafters import added_weight_bytes, drafter, with_drafter
from goodput.perfmodel.roofline import StepTimes, step_times
from goodput.perfmodel.speculation import (
    Drafts,
    SpeculativeTimes,
    best_tokens,
    break_even_acceptance,
    drafts_of,
    expected_tokens,
    helps_up_to,
    judge,
    speculative_tpot,
    speedup,
)

LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_70B = "meta-llama/Llama-3.1-70B-Instruct"


class Constant(Value, frozen=True):
    """A step takes as long whatever is in it."""

    seconds: float
    fixed: float = 0.0
    kv_token: float = 0.0

    def decode(self, batch: float, context_tokens: float, tokens: float = 1.0) -> float:
        return self.seconds

    def prefill(self, tokens: float, chunk_tokens: int) -> tuple[float, float]:
        return self.seconds, self.seconds

    def reads(self, tokens: float) -> float:
        return self.seconds


def arch(name: str = LLAMA_70B) -> Architecture:
    found = architecture(name)
    assert found is not None
    return found


def times(name: str = LLAMA_70B, gpu: str = "h100-sxm", tensor: int = 4) -> StepTimes:
    return step_times(arch(name), next(each for each in built_in_gpu_types() if each.name == gpu), tensor)


def with_draft_model(acceptance: float = 0.8, tokens: int = 4) -> SpeculativeTimes:
    """Llama-3.1-70B on 4 H100 that Llama-3.1-8B drafts for."""
    return SpeculativeTimes(
        target=times(), draft=times(LLAMA_8B), drafts=drafts_of(DraftMethod.DRAFT, tokens, acceptance)
    )


def with_lookup(acceptance: float = 0.8, tokens: int = 4, coverage: float = 1.0) -> SpeculativeTimes:
    drafts = drafts_of(DraftMethod.NGRAM, tokens, acceptance, coverage=coverage)
    return SpeculativeTimes(target=times(), draft=None, drafts=drafts)


@given(st.integers(1, 16))
def test_k_drafts_all_accepted_give_k_plus_one_tokens(tokens):
    assert expected_tokens(1.0, tokens) == tokens + 1
    assert expected_tokens(0.0, tokens) == 1.0


@given(st.floats(0.0, 0.999), st.integers(1, 16))
def test_expected_tokens_are_the_sum_of_the_chances_of_each_position(acceptance, tokens):
    positions = sum(acceptance**position for position in range(tokens + 1))
    assert expected_tokens(acceptance, tokens) == pytest.approx(positions)


def test_a_draft_of_1_8_ms_for_a_target_of_14_1_ms_makes_it_2_23_times_as_fast():
    drafts = drafts_of(DraftMethod.DRAFT, 4, 0.8)
    tpot = speculative_tpot(Constant(0.0141), Constant(0.0018), drafts, 1.0, 1000.0)
    assert 0.0141 / tpot == pytest.approx(2.23, abs=0.005)


def test_counted_acceptance_replaces_the_believed_one():
    """15 drafts of which 41 tokens were accepted: 1 + 41/15 tokens a step, whatever the prior says."""
    counted = drafts_of(DraftMethod.NGRAM, 3, accepted_per_draft=41 / 15, coverage=1.0)
    assert counted.tokens_per_step == pytest.approx(1.0 + 41 / 15)
    assert replace(counted, accepted_per_draft=9.0).tokens_per_step == 4.0
    assert replace(counted, accepted_per_draft=-1.0).tokens_per_step == 1.0


def test_a_lookup_that_finds_no_draft_in_half_of_the_steps_gains_half():
    """993 drafts of 5 tokens, 3,562 accepted, 821 steps without a draft: 2.96 tokens a step."""
    steps = 993 + 821
    found = drafts_of(DraftMethod.NGRAM, 5, accepted_per_draft=3562 / 993, coverage=993 / steps)
    assert found.tokens_per_step == pytest.approx(2.96, abs=0.01)
    assert found.verified_per_step == pytest.approx(1.0 + 5.0 * 993 / steps)


@pytest.mark.parametrize(
    ("method", "tokens", "low", "high"),
    [
        (DraftMethod.EAGLE3, 3, 2.26, 2.60),
        (DraftMethod.EAGLE, 2, 1.8, 1.95),
        (DraftMethod.EAGLE, 4, 2.0, 2.2),
        (DraftMethod.MTP, 1, 1.85, 1.90),
        (DraftMethod.MTP, 7, 3.05, 3.3),
        (DraftMethod.NGRAM, 5, 2.9, 3.0),
    ],
)
def test_priors_give_the_acceptance_lengths_that_were_published(method, tokens, low, high):
    assert low <= drafts_of(method, tokens).tokens_per_step <= high


def test_verifying_reads_a_context_once_however_many_tokens_are_checked():
    """A long context costs a step that verifies five tokens no more than one that decodes one."""
    speculating = with_lookup()
    longer = speculating.step(8.0, 20_000.0) - speculating.step(8.0, 10_000.0)
    plain = speculating.target.decode(8.0, 20_000.0) - speculating.target.decode(8.0, 10_000.0)
    assert longer == pytest.approx(plain)


def test_a_mixture_of_experts_pays_for_the_experts_that_drafts_wake():
    """Four tokens touch more experts than one, so that a step that verifies them is far more than a plain one."""
    device = next(each for each in built_in_gpu_types() if each.name == "h100-sxm")
    sparse = step_times(arch("Qwen/Qwen3-30B-A3B"), device)
    drafts = drafts_of(DraftMethod.NGRAM, 3, 0.7, coverage=1.0)
    woken = SpeculativeTimes(target=sparse, draft=None, drafts=drafts)
    dense = SpeculativeTimes(target=times(), draft=None, drafts=drafts)
    assert speedup(woken, 1.0, 1000.0) < speedup(dense, 1.0, 1000.0)
    assert woken.reads(1.0) == pytest.approx(sparse.reads(4.0))


@given(st.floats(1.0, 512.0), st.floats(0.05, 0.95), st.integers(1, 8))
def test_at_the_break_even_acceptance_both_take_equally_long(batch, acceptance, tokens):
    speculating = with_draft_model(acceptance, tokens)
    found = break_even_acceptance(speculating, batch, 1000.0)
    if found is None:
        everything = replace(speculating, drafts=drafts_of(DraftMethod.DRAFT, tokens, 1.0))
        assert speedup(everything, batch, 1000.0) <= 1.0 + 1e-9
    else:
        there = replace(speculating, drafts=drafts_of(DraftMethod.DRAFT, tokens, found))
        assert speedup(there, batch, 1000.0) == pytest.approx(1.0, abs=1e-3)


def test_it_helps_up_to_the_batch_at_which_computing_binds():
    speculating = with_draft_model()
    most = helps_up_to(speculating, 1000.0)
    assert 8.0 < most < 512.0
    assert speedup(speculating, most * 0.9, 1000.0) > 1.0
    assert speedup(speculating, most * 1.1, 1000.0) < 1.0


def test_the_best_number_of_tokens_falls_with_the_batch_and_grows_with_acceptance():
    def best(batch: float, acceptance: float) -> int:
        return best_tokens(
            times(), times(LLAMA_8B), DraftMethod.DRAFT, batch=batch, context_tokens=1000.0, acceptance=acceptance
        )

    assert best(1.0, 0.9) > best(1.0, 0.5) >= 1
    assert best(1.0, 0.9) >= best(64.0, 0.9)


def test_what_it_says_where_it_helps():
    found = judge(with_draft_model(), 4.0, 1000.0)
    assert found.helps
    assert found.speedup > 1.3
    assert "x faster at a batch of 4 (3.36 tokens a step), up to a batch of " in found.message


def test_what_it_says_where_too_little_is_accepted():
    found = judge(with_draft_model(0.2), 4.0, 1000.0)
    assert not found.helps
    assert found.break_even_acceptance is not None
    assert f"of drafted tokens {found.break_even_acceptance:.0%} would have to be accepted" in found.message


def test_what_it_says_where_drafting_takes_longer_than_decoding():
    slow = SpeculativeTimes(target=Constant(0.01), draft=Constant(0.02), drafts=drafts_of(DraftMethod.DRAFT, 2, 0.9))
    found = judge(slow, 1.0, 1000.0)
    assert found.break_even_acceptance is None
    assert found.helps_up_to_batch == 0.0
    assert found.message.endswith("too few (not even if every drafted token were accepted)")


def test_what_it_says_where_computing_binds():
    found = judge(with_lookup(tokens=4), 700.0, 300.0)
    assert not found.helps
    assert "cannot help at a batch of 700" in found.message
    assert "computing binds" in found.message
    assert "it helps up to a batch of " in found.message


@given(st.floats(0.0, 1.0), st.integers(1, 16), st.floats(0.0, 1.0))
def test_a_step_never_emits_more_than_it_verifies(acceptance, tokens, coverage):
    drafts = Drafts(method=DraftMethod.NGRAM, tokens=tokens, acceptance=acceptance, coverage=coverage)
    assert 1.0 <= drafts.tokens_per_step <= drafts.verified_per_step + 1e-9


def test_prompts_go_through_the_draft_model_too():
    alone = times().prefill(2000.0, 8192)
    both = with_draft_model().prefill(2000.0, 8192)
    assert both[0] == pytest.approx(alone[0] + times(LLAMA_8B).prefill(2000.0, 8192)[0])
    assert with_lookup().prefill(2000.0, 8192) == alone


def test_a_published_eagle3_head_has_the_size_that_is_drafted_with():
    """The EAGLE-3 head for Llama-3.1-8B: 0.4 billion parameters beside the embedding that it borrows."""
    head = drafter(arch(LLAMA_8B), Speculation(method=DraftMethod.EAGLE3, model="org/head"))
    assert head is not None
    assert head.parameters == pytest.approx(0.42e9, rel=0.1)
    assert head.layers == 1


def test_memory_holds_what_a_drafter_brings_and_a_lookup_brings_nothing():
    target = arch(LLAMA_70B)
    model = Speculation(method=DraftMethod.DRAFT, model=LLAMA_8B, draft=arch(LLAMA_8B))
    whole = with_drafter(target, model)
    assert added_weight_bytes(target, model) == pytest.approx(arch(LLAMA_8B).weight_bytes)
    own = drafter(target, model)
    assert own is not None
    assert own.kv_bytes_per_token == arch(LLAMA_8B).kv_bytes_per_token
    assert whole.kv_bytes_per_token == target.kv_bytes_per_token + arch(LLAMA_8B).kv_bytes_per_token
    # Both keep eight heads of 128: one kind of layers to the engine.
    assert [group.layers for group in whole.kv_layers] == [80 + 32]
    lookup = Speculation(method=DraftMethod.NGRAM)
    assert with_drafter(target, lookup) == target
    assert added_weight_bytes(target, lookup) == 0.0
    assert with_drafter(target, None) is target


def test_an_eagle_head_borrows_the_output_matrix_but_reads_it():
    target = arch(LLAMA_8B)
    eagle = Speculation(method=DraftMethod.EAGLE, model="org/head")
    head = drafter(target, eagle)
    assert head is not None
    assert head.head_parameters == target.head_parameters
    assert added_weight_bytes(target, eagle) == pytest.approx((head.parameters - head.head_parameters) * 2.0)


def _shape(speculation: Speculation | None, drafts: Drafts | None) -> Shape:
    return Shape(tensor_parallel=4, speculation=speculation, drafts=drafts)


CHAT = Objective(ttft_seconds=2.0, tpot_seconds=0.02, e2e_seconds=None)
EDITS = Lengths(3000, 500)


def test_a_replica_that_drafts_well_holds_a_tight_tpot_at_a_higher_rate():
    """A bot that edits what is in its prompt: at 20 ms a token plain decoding of a 70B holds no real load."""
    h100 = next(each for each in built_in_gpu_types() if each.name == "h100-sxm")
    target = arch(LLAMA_70B)
    plain = capacity(target, h100, _shape(None, None), EDITS, CHAT)
    lookup = Speculation(method=DraftMethod.NGRAM)
    drafting = capacity(target, h100, _shape(lookup, drafts_of(DraftMethod.NGRAM, 4)), EDITS, CHAT)
    assert drafting.rps > 1.3 * plain.rps
    assert drafting.idle.tpot_mean_seconds < plain.idle.tpot_mean_seconds


def test_a_draft_model_leaves_less_room_for_the_kv_cache():
    h100 = next(each for each in built_in_gpu_types() if each.name == "h100-sxm")
    target = arch(LLAMA_70B)
    plain = capacity(target, h100, _shape(None, None), EDITS, CHAT)
    model = Speculation(method=DraftMethod.DRAFT, model=LLAMA_8B, draft=arch(LLAMA_8B))
    drafting = capacity(target, h100, _shape(model, drafts_of(DraftMethod.DRAFT, 4)), EDITS, CHAT)
    assert drafting.kv_tokens < 0.8 * plain.kv_tokens
