"""The engine model schedules as vLLM does, and never loses a token or a block."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goodput.perfmodel.speculation import expected_tokens
from goodput.simulator.engine import Engine
from goodput.simulator.plant import StepTimeModel
from goodput.simulator.sequences import AdmissionRejectedError, EngineConfig, EngineRequest, RequestError

# A second per step and a thousandth per token: round numbers to reckon with.
TIMES = StepTimeModel(0.0, 0.001, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0)


def engine(overhead=0.0, **settings_of_engine):
    """A small engine."""
    values = {"kv_blocks": 65, "max_model_len": 512, "max_num_batched_tokens": 64, "max_num_seqs": 4}
    return Engine(EngineConfig(**{**values, **settings_of_engine}), TIMES, overhead)


def run(tested, until=10_000):
    """All steps until there is nothing left to do."""
    results, now = [], 0.0
    for _ in range(until):
        start = tested.next_start(now)
        if start is None:
            return results
        result = tested.step(start)
        now = start if result is None else result.ends_at
        if result is not None:
            results.append(result)
    raise AssertionError("the engine does not come to an end")


def test_a_request_gets_its_first_token_with_its_last_prompt_token():
    """A prompt within the budget needs one step; each further token one more."""
    tested = engine()
    sequence = tested.submit(EngineRequest("a", 50, 3), 0.0)
    steps = run(tested)

    assert [step.tokens for step in steps] == [50, 1, 1]
    assert steps[0].first_tokens == [sequence]
    assert steps[2].finished == [sequence]
    assert sequence.first_token_at == steps[0].ends_at == pytest.approx(1.05)


def test_a_long_prompt_is_computed_in_chunks_of_the_budget():
    """150 tokens at a budget of 64: 64, 64, 22."""
    tested = engine()
    tested.submit(EngineRequest("a", 150, 1), 0.0)

    assert [step.prefill_tokens for step in run(tested)] == [64, 64, 22]


def test_decodes_come_before_prefill_in_the_budget():
    """With one decoding sequence a chunk is one token smaller."""
    tested = engine()
    tested.submit(EngineRequest("a", 10, 50), 0.0)
    first = tested.step(0.0)
    tested.submit(EngineRequest("b", 100, 1), first.ends_at)
    second = tested.step(first.ends_at)

    assert (second.decode_seqs, second.prefill_tokens) == (1, 63)


def test_without_chunked_prefill_a_prompt_waits_for_a_budget_that_takes_it_whole():
    """No prompt is split."""
    tested = engine(enable_chunked_prefill=False, max_num_batched_tokens=512)
    tested.submit(EngineRequest("a", 400, 2), 0.0)
    tested.submit(EngineRequest("b", 200, 1), 0.0)
    steps = run(tested)

    assert [step.prefill_tokens for step in steps] == [400, 200]


def test_the_long_prefill_threshold_leaves_room_for_others():
    """A chunk never exceeds the threshold, so the next request starts in the same step."""
    tested = engine(long_prefill_token_threshold=40)
    tested.submit(EngineRequest("a", 100, 1), 0.0)
    tested.submit(EngineRequest("b", 20, 1), 0.0)

    assert tested.step(0.0).prefill_tokens == 60


def test_no_more_sequences_run_than_allowed():
    """The fifth waits."""
    tested = engine()
    for name in "abcde":
        tested.submit(EngineRequest(name, 4, 10), 0.0)
    tested.step(0.0)

    assert (tested.running, tested.waiting) == (4, 1)


def test_active_sequences_can_be_capped_below_that():
    """--max-num-active-seqs."""
    tested = engine(max_num_active_seqs=2)
    for name in "abc":
        tested.submit(EngineRequest(name, 4, 10), 0.0)
    tested.step(0.0)

    assert (tested.running, tested.waiting) == (2, 1)


def test_the_request_overhead_delays_what_the_scheduler_sees():
    """Nothing can start before it; TTFT counts from the arrival."""
    tested = engine(overhead=0.25)
    sequence = tested.submit(EngineRequest("a", 10, 1), 1.0)

    assert tested.step(1.2) is None
    assert tested.next_start(1.2) == 1.25
    assert tested.step(1.25).first_tokens == [sequence]
    assert sequence.arrived_at == 1.0


def test_output_ends_at_the_model_length():
    """A prompt of 500 in 512 leaves 12."""
    tested = engine()

    assert tested.submit(EngineRequest("a", 500, 100), 0.0).target == 12


@pytest.mark.parametrize("prompt", [512, 600])
def test_a_prompt_that_leaves_no_room_is_refused(prompt):
    """At or beyond the model length."""
    with pytest.raises(RequestError, match="max_model_len 512"):
        engine().submit(EngineRequest("a", prompt, 1), 0.0)


def test_an_id_is_used_once_at_a_time():
    """A second request of the same id would be lost."""
    tested = engine()
    tested.submit(EngineRequest("a", 5, 1), 0.0)

    with pytest.raises(RequestError, match="in use"):
        tested.submit(EngineRequest("a", 5, 1), 0.0)


def test_requests_beyond_the_queue_limit_are_rejected():
    """--max-num-queued-reqs counts what waits and what runs."""
    tested = engine(max_num_queued_reqs=2)
    tested.submit(EngineRequest("a", 5, 5), 0.0)
    tested.step(0.0)
    tested.submit(EngineRequest("b", 5, 5), 0.0)

    with pytest.raises(AdmissionRejectedError, match="max_num_queued_reqs"):
        tested.submit(EngineRequest("c", 5, 5), 0.0)
    assert tested.unfinished == 2


def test_the_token_limit_counts_prompts_without_a_first_token():
    """--max-num-queued-tokens: refused at the limit, whatever the newcomer's size; free again after the first token."""
    tested = engine(max_num_queued_tokens=50)
    tested.submit(EngineRequest("a", 49, 5), 0.0)
    tested.submit(EngineRequest("b", 1, 5), 0.0)

    with pytest.raises(AdmissionRejectedError, match="max_num_queued_tokens"):
        tested.submit(EngineRequest("c", 1, 5), 0.0)
    tested.step(0.0)
    assert tested.prefill_backlog_tokens == 0
    tested.submit(EngineRequest("c", 1, 5), 2.0)


def test_when_blocks_run_out_the_youngest_is_preempted_and_comes_back_first():
    """The older of two growing sequences takes the younger one's blocks; both end complete."""
    tested = engine(kv_blocks=9, max_model_len=128)
    old = tested.submit(EngineRequest("old", 48, 60), 0.0)
    young = tested.submit(EngineRequest("young", 16, 60), 0.0)
    steps = run(tested)

    assert [step.preempted for step in steps if step.preempted] == [[young]]
    assert old.preemptions == 0
    assert (old.generated, young.generated) == (60, 60)
    assert steps[-1].finished == [young]
    assert tested.preemptions == 1


def test_a_preempted_sequence_returns_before_those_that_wait():
    """Head of the queue."""
    tested = engine(kv_blocks=9, max_model_len=128, max_num_seqs=2)
    tested.submit(EngineRequest("old", 48, 60), 0.0)
    young = tested.submit(EngineRequest("young", 16, 60), 0.0)
    late = tested.submit(EngineRequest("late", 16, 5), 0.0)
    run(tested)

    assert young.preemptions == 1
    assert late.scheduled_at >= young.first_token_at
    assert late.last_token_at <= young.last_token_at or late.scheduled_at > young.scheduled_at


def test_what_a_preempted_sequence_computed_is_partly_found_again():
    """Its blocks stay cached until somebody takes them, so it recomputes less than everything."""
    tested = engine(kv_blocks=9, max_model_len=128)
    tested.submit(EngineRequest("old", 48, 60), 0.0)
    young = tested.submit(EngineRequest("young", 32, 60), 0.0)
    steps = run(tested)
    recomputed = sum(step.prefill_tokens for step in steps) - 48 - 32

    assert young.preemptions > 0
    assert 0 < recomputed < 92


def test_a_shared_prefix_is_computed_once():
    """The second request computes only what differs, and at least its last token."""
    tested = engine()
    tested.submit(EngineRequest("a", 64, 1, (1, 2, 3, 4)), 0.0)
    run(tested)
    second = tested.submit(EngineRequest("b", 64, 1, (1, 2, 3, 4)), 5.0)
    third = tested.submit(EngineRequest("c", 64, 1, (1, 2, 9, 10)), 5.0)
    run(tested)

    assert (second.cached_tokens, third.cached_tokens) == (48, 32)
    assert (tested.prefix_queries_tokens, tested.prefix_hits_tokens) == (192, 80)


def test_without_prefix_caching_everything_is_computed():
    """--no-enable-prefix-caching."""
    tested = engine(enable_prefix_caching=False)
    for name in "ab":
        tested.submit(EngineRequest(name, 64, 1, (1, 2, 3, 4)), 0.0)
        run(tested)

    assert (tested.prefix_queries_tokens, tested.prefix_hits_tokens) == (0, 0)


def test_an_aborted_request_gives_everything_back():
    """Running, waiting or just arrived."""
    tested = engine(max_num_seqs=1)
    tested.submit(EngineRequest("running", 20, 50), 0.0)
    tested.submit(EngineRequest("waiting", 20, 50), 0.0)
    step = tested.step(0.0)
    tested.submit(EngineRequest("arriving", 20, 50), step.ends_at)

    assert all(tested.abort(name) for name in ("running", "waiting", "arriving"))
    assert (tested.running, tested.waiting, tested.kv_usage, tested.prefill_backlog_tokens) == (0, 0, 0.0, 0)
    assert tested.abort("running") is False
    assert tested.next_start(step.ends_at) is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kv_blocks": 20}, "kv_blocks"),
        ({"block_size": 0}, "block_size"),
        ({"max_num_active_seqs": 5}, "max_num_active_seqs"),
        ({"max_num_queued_reqs": -1}, "max_num_queued_reqs"),
        ({"enable_chunked_prefill": False}, "max_num_batched_tokens"),
    ],
)
def test_settings_that_vllm_refuses_name_the_field(change, field):
    """As its configuration does."""
    with pytest.raises(ValueError, match=field):
        engine(**change)


REQUESTS = st.lists(
    st.tuples(
        st.integers(1, 120),  # prompt
        st.integers(1, 60),  # output
        st.floats(0, 40, allow_nan=False),  # arrival
        st.integers(0, 3),  # which shared prefix
        st.booleans(),  # given up later
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=100, deadline=None)
@given(
    requests=REQUESTS,
    blocks=st.integers(13, 40),
    budget=st.sampled_from([16, 64, 300]),
    seqs=st.integers(1, 8),
    caching=st.booleans(),
    threshold=st.sampled_from([0, 24]),
    reserve=st.booleans(),
    drafted=st.sampled_from([0, 0, 1, 4]),
)
def test_invariants_hold_for_any_load(*, requests, blocks, budget, seqs, caching, threshold, reserve, drafted):
    """Pool, budget and batch are never exceeded, every token is made once, first come is first admitted, all end."""
    tested = engine(
        kv_blocks=blocks,
        max_model_len=190,
        max_num_batched_tokens=budget,
        max_num_seqs=seqs,
        enable_prefix_caching=caching,
        long_prefill_token_threshold=threshold,
        scheduler_reserve_full_isl=reserve,
        kv_metrics_sample=0.5,
        speculative_tokens=drafted,
        draft_acceptance=0.7,
        draft_coverage=0.8,
    )
    arrivals = sorted(enumerate(requests), key=lambda item: item[1][2])
    sequences, given_up, admitted, tokens = {}, set(), [], {}
    now, steps = 0.0, 0
    while arrivals or tested.unfinished:
        while arrivals and arrivals[0][1][2] <= now:
            index, (prompt, output, at, family, abandons) = arrivals.pop(0)
            hashes = tuple(hash((family, block)) for block in range(prompt // 16))
            sequences[index] = tested.submit(EngineRequest(str(index), prompt, output, hashes), at, owner=index)
            if abandons:
                given_up.add(index)
        start = tested.next_start(now)
        if start is None:
            now = arrivals[0][1][2]
            continue
        result = tested.step(start)
        steps += 1
        assert steps < 3_000, "starved"
        assert result is not None
        now = result.ends_at
        assert result.tokens <= budget
        assert tested.running <= seqs
        assert 0 <= tested.pool.used_blocks <= blocks - 1
        assert result.duration_seconds >= 1.0
        made = 0
        for sequence in result.emitted:
            new = sequence.generated - tokens.get(sequence.owner, 0)
            assert 1 <= new <= 1 + drafted
            tokens[sequence.owner] = sequence.generated
            made += new
        assert result.generated_tokens == made
        held = {block for sequence in sequences.values() for block in sequence.blocks}
        assert len(held) == tested.pool.used_blocks
        for index, sequence in sequences.items():
            assert len(sequence.blocks) * 16 >= sequence.computed or not sequence.blocks
            if sequence.scheduled_at is not None and index not in admitted:
                admitted.append(index)
        for index in list(given_up):
            if tokens.get(index, 0) >= 3:
                tested.abort(str(index))
                given_up.discard(index)

    order = [(sequences[index].arrived_at, sequences[index].serial) for index in admitted]
    assert order == sorted(order)
    for index, sequence in sequences.items():
        whole = min(requests[index][1], 190 - requests[index][0])
        made = tokens.get(index, 0)
        assert made == sequence.generated
        assert made == whole or (requests[index][4] and made < whole)
    assert (tested.running, tested.waiting, tested.pool.used_blocks, tested.prefill_backlog_tokens) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("acceptance", "coverage", "tokens_per_step"), [(1.0, 1.0, 5.0), (0.0, 1.0, 1.0), (1.0, 0.0, 1.0)]
)
def test_a_draft_adds_what_is_accepted_of_it(acceptance, coverage, tokens_per_step):
    """All of four tokens or none, and one of the model's own; output ends where it does without drafts."""
    tested = engine(speculative_tokens=4, draft_acceptance=acceptance, draft_coverage=coverage)
    sequence = tested.submit(EngineRequest("a", 10, 101), 0.0)
    steps = run(tested)[1:]

    assert sequence.generated == 101
    assert len(steps) == 100 / tokens_per_step
    assert sum(step.generated_tokens for step in steps) == 100
    assert all(step.tokens == (5 if coverage else 1) for step in steps)
    assert [step.accepted for step in steps[:2]] == ([[4 if acceptance else 0]] * 2 if coverage else [[]] * 2)


def test_acceptance_is_drawn_so_that_its_means_are_as_configured():
    """Of drafts of four tokens at 0.7: (1 - 0.7^5) / 0.3 tokens a step; four steps of five have one."""
    tested = engine(kv_blocks=2000, max_model_len=8192, speculative_tokens=4, draft_acceptance=0.7, draft_coverage=0.8)
    for index in range(4):
        tested.submit(EngineRequest(str(index), 10, 4000), 0.0)
    drafts = [taken for step in run(tested) for taken in step.accepted]
    emitted = 4 * 4000 / (1 + 0.8 * (expected_tokens(0.7, 4) - 1))

    assert len(drafts) == pytest.approx(0.8 * emitted, rel=0.05)
    assert 1 + sum(drafts) / len(drafts) == pytest.approx(expected_tokens(0.7, 4), rel=0.03)


def test_drafts_take_of_the_budget_what_younger_sequences_then_lack():
    """Of twelve sequences six have drafts, two more one token each, and 32 tokens are gone: as in vLLM."""
    tested = engine(max_num_batched_tokens=32, max_num_seqs=12, speculative_tokens=4, draft_acceptance=1.0)
    for index in range(12):
        tested.submit(EngineRequest(str(index), 2, 50), 0.0)
    first, second = run(tested)[:2]

    assert first.prefill_tokens == 24
    assert (second.decode_seqs, len(second.accepted), second.tokens) == (8, 6, 32)


def test_the_same_requests_give_the_same_steps():
    """No hidden state, clock or randomness."""
    outcomes = []
    for _ in range(2):
        tested = engine(kv_blocks=33, max_model_len=500)
        for index in range(20):
            tested.submit(EngineRequest(str(index), 10 + 7 * index, 5 + index, (index % 3,)), 0.3 * index)
        outcomes.append([(step.started_at, step.duration_seconds, step.tokens) for step in run(tested)])

    assert outcomes[0] == outcomes[1]
