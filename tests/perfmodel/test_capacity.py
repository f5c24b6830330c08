"""Step time and capacity: against published points, theory and limits."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from goodput.domain.architecture import Architecture
from goodput.domain.intent import GpuType, Objective
from goodput.domain.speculation import DraftMethod, Speculation
from goodput.perfmodel import Lengths, Shape, Wall, architecture, built_in_gpu_types, capacity, latency
from goodput.perfmodel.capacity import LEAST_SHARE, highest_rate
from goodput.perfmodel.load import load, load_at
from goodput.perfmodel.queueing import _waiting_share
from goodput.perfmodel.replica import replica
from goodput.perfmodel.roofline import step_times
from goodput.perfmodel.speculation import drafts_of

CHAT = Objective(ttft_seconds=0.5, tpot_seconds=0.05, e2e_seconds=None)
CONVERSATION = Lengths(1155, 211)


def arch(name: str = "meta-llama/Llama-3.1-8B") -> Architecture:
    found = architecture(name)
    assert found is not None
    return found


def gpu(name: str = "l40s") -> GpuType:
    return next(each for each in built_in_gpu_types() if each.name == name)


@pytest.mark.parametrize(
    ("tensor", "low", "high"),
    [(2, 0.62, 0.65), (4, 0.45, 0.48), (8, 0.31, 0.33)],
)
def test_bandwidth_use_of_qwen3_32b_on_h100_falls_with_tensor_parallelism(tensor, low, high):
    """Published effective MBU of a single stream: .62-.65 at TP2, .45-.48 at TP4, .31-.33 at TP8; within 15 % here."""
    model, device = arch("Qwen/Qwen3-32B"), gpu("h100-sxm")
    step = step_times(model, device, tensor).decode(1.0, 1000.0)
    weights = (model.parameters - model.embedding_parameters) * 2.0
    share = weights / tensor / step / device.memory_bandwidth_bytes_per_second
    assert low * 0.85 <= share <= high * 1.15


def test_a_step_of_a_batch_reads_the_weights_once():
    """Twice the batch costs far less than twice the step, and hardly more than its KV reads."""
    times = step_times(arch(), gpu())
    one, many = times.decode(1.0, 1000.0), times.decode(33.0, 1000.0)
    assert many - one == pytest.approx(32 * (1000 * times.kv_token + times.sequence), rel=0.06)
    assert many < 1.5 * one


def test_a_batch_touches_only_the_experts_that_its_tokens_visit():
    """One token reads k of them, many read all."""
    times = step_times(arch("Qwen/Qwen3-30B-A3B"), gpu("h100-sxm"))
    assert times.reads(1.0) - times.weights == pytest.approx(times.experts * 8 / 128)
    assert times.reads(1e4) == pytest.approx(times.weights + times.experts, rel=1e-3)


def test_one_l40s_holds_some_three_conversation_requests_a_second():
    """The prior for the demo's model, before anything was measured: 3 requests/s within 30 %."""
    found = capacity(arch(), gpu(), Shape(), CONVERSATION, CHAT)
    assert 2.1 < found.rps < 3.9
    assert found.feasible
    assert found.at_capacity.good == pytest.approx(0.95, abs=0.005)


def test_a_published_wall_is_found():
    """Qwen3-32B TP2 on H100, 4,000 in and 1,000 out, TTFT 3 s, TPOT 100 ms: KV binds near 70 sequences, 1.25-1.4/s."""
    lengths = Lengths(4000, 1000, 0.1, 0.1)
    found = capacity(arch("Qwen/Qwen3-32B"), gpu("h100-sxm"), Shape(tensor_parallel=2), lengths, Objective(
        ttft_seconds=3.0, tpot_seconds=0.1, e2e_seconds=None))  # fmt: skip
    assert found.wall is Wall.KV
    assert 50 <= found.sequences <= 75
    assert 1.0 <= found.rps <= 1.5


def test_few_sequences_allowed_are_a_wall_of_their_own():
    """max-num-seqs below what time allows bounds the rate by Little's law."""
    found = capacity(arch(), gpu(), Shape(max_num_seqs=8), CONVERSATION, CHAT)
    assert found.wall is Wall.SEQUENCES
    # With all eight busy on average, nearly everyone would wait for one of them.
    assert 3.0 < found.sequences < 8.0
    patient = capacity(arch(), gpu(), Shape(max_num_seqs=8), CONVERSATION, replace(CHAT, ttft_seconds=60.0))
    assert found.at_capacity.batch < patient.at_capacity.batch < 8.0


def test_an_objective_below_the_bare_prefill_time_is_infeasible_but_still_sized():
    """TTFT of 20 ms: no number of replicas helps; the capacity is that for the objectives that can be met."""
    found = capacity(arch(), gpu(), Shape(), CONVERSATION, replace(CHAT, ttft_seconds=0.02))
    assert not found.feasible
    assert found.idle.ttft_misses > 0.9
    assert found.rps > 0.5


def test_an_objective_below_one_step_is_infeasible():
    """TPOT of 10 ms on a GPU that needs over 20 ms to read the weights."""
    assert not capacity(arch(), gpu(), Shape(), CONVERSATION, replace(CHAT, tpot_seconds=0.01)).feasible


def test_latency_grows_to_a_cliff():
    """Misses rise with the rate; beyond what the replica can do everything misses."""
    seen = [latency(arch(), gpu(), Shape(), CONVERSATION, CHAT, rps=rate).good for rate in (0.5, 1.5, 2.5, 3.5, 20.0)]
    assert seen == sorted(seen, reverse=True)
    assert seen[0] > 0.98
    assert seen[-1] == 0.0


@settings(max_examples=60, deadline=None)
@given(
    prompt=st.floats(50, 8000),
    output=st.floats(5, 1500),
    ttft=st.floats(0.1, 5.0),
    tpot=st.floats(0.02, 0.2),
    speed=st.floats(0.5, 2.0),
)
def test_more_speed_or_looser_objectives_never_cost_capacity(prompt, output, ttft, tpot, speed):
    """Capacity is positive, and rises with speed where the objective can be met at all."""
    lengths = Lengths(prompt, output)
    objective = Objective(ttft_seconds=ttft, tpot_seconds=tpot, e2e_seconds=None)
    found = capacity(arch(), gpu(), Shape(), lengths, objective, correction=speed)
    assert found.rps > 0.0
    faster = capacity(arch(), gpu(), Shape(), lengths, objective, correction=speed * 1.2)
    if found.feasible:
        assert faster.feasible
        assert faster.rps >= found.rps * 0.98


@settings(max_examples=60, deadline=None)
@given(
    prompt=st.floats(50, 8000),
    output=st.floats(5, 1500),
    ttft=st.floats(0.1, 5.0),
    tpot=st.floats(0.02, 0.2),
    tighter=st.floats(0.5, 1.0),
)
def test_a_tighter_objective_never_gives_capacity_and_at_capacity_it_holds(prompt, output, ttft, tpot, tighter):
    """By the model's own count the share asked for is good at capacity, down to the least share of a replica."""
    lengths = Lengths(prompt, output)
    loose = Objective(ttft_seconds=ttft, tpot_seconds=tpot, e2e_seconds=None)
    tight = replace(loose, ttft_seconds=ttft * tighter, tpot_seconds=tpot * tighter)
    found, less = (capacity(arch(), gpu(), Shape(), lengths, each) for each in (loose, tight))
    if less.feasible:
        assert found.feasible
        assert less.rps <= found.rps * 1.03
        least = LEAST_SHARE * highest_rate(arch(), gpu(), Shape(), lengths)
        assert less.at_capacity.good >= tight.attainment - 0.002 or less.rps <= least * 1.01


@settings(max_examples=60, deadline=None)
@given(prompt=st.floats(50, 4000), output=st.floats(50, 800), longer=st.floats(1.05, 3.0))
def test_longer_requests_never_give_capacity(prompt, output, longer):
    """In requests per second. (More output may where TPOT binds: over more tokens their mean time varies less.)"""
    waiting = replace(CHAT, tpot_seconds=None)
    longer_prompt, longer_output = Lengths(prompt * longer, output), Lengths(prompt, output * longer)
    for lengths, objective in ((longer_prompt, CHAT), (longer_output, waiting)):
        plain = capacity(arch(), gpu(), Shape(), Lengths(prompt, output), objective)
        found = capacity(arch(), gpu(), Shape(), lengths, objective)
        if plain.feasible and found.feasible:
            assert found.rps <= plain.rps * 1.08


@settings(max_examples=80, deadline=None)
@given(
    prompt=st.floats(100, 6000),
    output=st.floats(20, 800),
    ttft=st.floats(0.05, 5.0),
    tpot=st.floats(0.02, 0.2),
    bound=st.sampled_from(["ttft_seconds", "tpot_seconds"]),
)
def test_capacity_has_no_cliff_in_the_objective(prompt, output, ttft, tpot, bound):
    """Two percent of a bound never make half of capacity, even where an idle replica begins to miss it.

    But for the bare time of a step: it is in time or it is not, for all requests at once.
    """
    lengths = Lengths(prompt, output)
    one = Objective(ttft_seconds=ttft, tpot_seconds=tpot, e2e_seconds=None)
    other = replace(one, **{bound: 1.02 * getattr(one, bound)})
    found = [capacity(arch(), gpu(), Shape(), lengths, each) for each in (one, other)]
    if bound == "tpot_seconds" and found[0].feasible is not found[1].feasible:
        return
    low, high = sorted(each.rps for each in found)
    assert high <= 2.0 * low


def test_the_time_of_a_request_is_its_first_token_and_the_others():
    """Latency = TTFT + TPOT x output tokens; measured, the first of n tokens is in TTFT: TTFT + TPOT x (n - 1)."""
    at = latency(arch(), gpu(), Shape(), CONVERSATION, CHAT, rps=2.0)
    assert at.e2e_seconds(101.0) == pytest.approx(at.ttft_mean_seconds + 100.0 * at.tpot_mean_seconds)
    assert at.e2e_seconds(1.0) == at.ttft_mean_seconds


def test_a_replica_keeps_littles_law():
    """Sequences that decode = requests/s x tokens after the first x time per token."""
    at = latency(arch(), gpu(), Shape(), CONVERSATION, CHAT, rps=2.0)
    assert at.batch == pytest.approx(2.0 * (CONVERSATION.rounded().output_mean - 1.0) * at.tpot_mean_seconds, rel=1e-3)


def test_percentiles_rise_and_agree_with_misses():
    """p50 < p90 < p95 < p99, and what misses a bound at a percentile is the rest."""
    at = latency(arch(), gpu(), Shape(), CONVERSATION, CHAT, rps=2.5)
    for times in (at.ttft, at.tpot):
        found = [times.quantile(share) for share in (0.5, 0.9, 0.95, 0.99)]
        assert found == sorted(found)
        assert [times.above(each) for each in found] == pytest.approx([0.5, 0.1, 0.05, 0.01], rel=0.05)


def test_what_misses_is_counted_once():
    """100 requests a minute of which 30 meet the SLO are a goodput of 30."""
    at = latency(arch(), gpu(), Shape(), CONVERSATION, CHAT, rps=100.0 / 60.0)
    some = replace(at, ttft_misses=0.0, tpot_misses=0.7, e2e_misses=0.0)
    assert 60.0 * some.rps * some.good == pytest.approx(30.0, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "on", "drafted", "lengths", "objective"),
    [
        pytest.param("meta-llama/Llama-3.1-8B", ("h100-sxm", 1), 5, (1155, 211), (0.5, 0.05), id="drafts, a flat top"),
        pytest.param("mistralai/Mistral-7B-v0.3", ("a10g", 8), 0, (100, 10), (2.0, 1.0), id="a falling top"),
        pytest.param("meta-llama/Llama-2-13b-hf", ("b200", 1), 8, (100, 200), (0.5, 1.0), id="drafts, KV cache"),
        pytest.param("Qwen/Qwen3-14B", ("mi325x", 1), 8, (100, 200), (20.0, 1.0), id="drafts, sequences"),
        pytest.param("google/gemma-3-27b-it", ("a100-80g-pcie", 1), 0, (100, 200), (2.0, 1.0), id="a dip at the ridge"),
    ],
)
def test_at_its_capacity_a_replica_meets_the_objective(name, on, drafted, lengths, objective):
    """Though steps may grow as fast as the requests in them, so that several loads have one rate."""
    drafts = drafts_of(DraftMethod.NGRAM, drafted) if drafted else None
    speculation = Speculation(method=DraftMethod.NGRAM) if drafted else None
    shape = Shape(tensor_parallel=on[1], speculation=speculation, drafts=drafts)
    asked = Objective(ttft_seconds=objective[0], tpot_seconds=objective[1], e2e_seconds=None)
    wanted = (arch(name), gpu(on[0]), shape, Lengths(*lengths), asked)
    found = capacity(*wanted)
    assert found.feasible
    assert found.at_capacity.good == pytest.approx(0.95, abs=0.003)
    for share in (0.5, 0.9, 1.0):
        at = latency(*wanted, rps=share * found.rps, within=found)
        assert at.rps == pytest.approx(share * found.rps, rel=2e-3)
        assert at.good >= 0.947


@pytest.mark.parametrize("share", [0.2, 0.7, 0.95])
def test_a_replica_settles_at_the_least_of_loads_of_one_rate(share):
    """Drafts of five tokens: beyond the highest rate there are loads of 200 sequences with the rate of one of 30."""
    shape = Shape(speculation=Speculation(method=DraftMethod.NGRAM), drafts=drafts_of(DraftMethod.NGRAM, 5))
    one = replica(arch(), gpu("h100-sxm"), shape, CONVERSATION)
    loads = [load(one, one.slots / one.decode_steps * step / 400.0) for step in range(1, 401)]
    highest = max(each.rps for each in loads)
    first = next(each for each in loads if each.rps >= share * highest)
    found = load_at(one, share * highest)
    assert found is not None
    assert found.arrivals <= 1.001 * first.arrivals
    assert load_at(one, 1.1 * highest) is None


@pytest.mark.parametrize("tokens", [1e5, 1e6, 1e7])
def test_a_pool_that_holds_no_request_of_these_lengths_has_a_rate_beside_nothing(tokens):
    """Lengths beyond any context window, of a broken counter: a number, no exception."""
    found = capacity(arch(), gpu(), Shape(), Lengths(tokens, tokens), CHAT)
    assert 0.0 < found.rps < 0.001


@settings(max_examples=60)
@given(prompt=st.floats(50, 6000), output=st.floats(2, 1500), ttft=st.floats(0.1, 5.0), tpot=st.floats(0.02, 0.2))
def test_more_replicas_behind_one_router_never_cost_capacity(prompt, output, ttft, tpot):
    """Each meets less of a burst, down to an eighth of one, to within what a search leaves."""
    objective = Objective(ttft_seconds=ttft, tpot_seconds=tpot, e2e_seconds=None)
    rates = [
        capacity(arch(), gpu(), Shape(), Lengths(prompt, output), objective, replicas=number).rps
        for number in (1, 2, 4, 8, 100)
    ]
    assert all(more >= fewer * 0.99 for fewer, more in pairwise(rates))
    assert rates[3] == rates[4]
    assert rates[4] <= 1.6 * rates[0]


def test_answers_of_one_token_have_no_time_per_token_to_miss():
    first = Objective(ttft_seconds=1.0, tpot_seconds=None, e2e_seconds=None)
    tight = replace(first, tpot_seconds=0.005)
    rates = [capacity(arch(), gpu("h100-sxm"), Shape(), Lengths(1000, 1), each).rps for each in (first, tight)]
    assert rates[1] == pytest.approx(rates[0])


@pytest.mark.parametrize(
    ("servers", "use", "waiting"),
    # Erlang C for whole servers, by its recursion.
    [(1, 0.5, 0.5), (2, 0.5, 1.0 / 3.0), (12, 6.5 / 12.0, 0.0388), (30, 0.9, 0.4714), (100, 0.95, 0.5065)],
)
def test_who_waits_for_a_slot_is_erlangs(servers, use, waiting):
    assert _waiting_share(servers, use) == pytest.approx(waiting, rel=0.02)
