"""What is believed of a replica, and what it was learned of: lengths, moments, GPU types and objectives."""

import pytest
from msgspec.structs import replace
from tests.decide.builders import CHAT, START, intent, one
from tests.decide.test_explained import serving
from tests.decide.test_replicas import loaded, replicas, steady
from tests.placements import placement

from goodput.decide.correction import for_placement
from goodput.domain.change import Serving, fingerprint
from goodput.domain.memory import LoopMemory
from goodput.domain.samples import Samples
from goodput.domain.speculation import DraftMethod, Speculation

PODS = ("pod-0", "pod-1")


@pytest.mark.parametrize("lengths", [(200.0, 20.0), (8000.0, 200.0), (1155.0, 211.0)])
@pytest.mark.parametrize(("slow", "fast"), [(1.0, 1.01), (0.99, 1.0)])
def test_what_is_believed_has_no_cliff_where_the_correction_crosses_one(lengths, slow, fast):
    """A hundredth of speed more is a few hundredths of capacity, whatever the lengths."""

    def believed(correction: float) -> float:
        prompt, output = lengths
        number = 1e5
        samples = Samples.of(
            each._replace(
                prompt_tokens=number * prompt,
                first_tokens=number,
                generation_tokens=number * output,
                finished=number,
                good_lower=number,
                good_upper=number,
            )
            for each in steady(0.1, 1).samples
        )
        plan = one(loaded(0.1, 1), steady(0.1, 1, samples=samples, correction=correction))
        assert plan.figures.input_tokens_mean == pytest.approx(prompt, rel=0.02)
        assert plan.memory.correction == correction
        assert plan.figures.capacity_rps_per_replica is not None
        return plan.figures.capacity_rps_per_replica

    assert believed(fast) == pytest.approx(believed(slow), rel=0.05)


@pytest.mark.parametrize(("proven", "believed"), [(0.0, 1.4), (1.2, 1.4), (1.5, 1.65)])
def test_speed_is_believed_as_far_as_priors_err_and_beyond_as_far_as_load_has_shown(proven, believed):
    """Twice the speed of the priors: 1.4 times the capacity, or 1.1 times the load that it held."""
    plain = one(loaded(3.0, 2), steady(3.0, 2)).figures.capacity_rps_per_replica
    assert plain is not None
    fast = steady(3.0, 2, correction=2.0, prefill_correction=2.0, proven_rps=proven * plain)
    found = one(loaded(3.0, 2), fast).figures.capacity_rps_per_replica
    assert found == pytest.approx(believed * plain, rel=0.01)


@pytest.mark.parametrize(("away", "learns"), [(15.0, True), (30.0, True), (45.0, False), (3000.0, False)])
def test_token_times_of_a_gap_in_looking_teach_nothing(away, learns):
    """The batch of this moment did not run for the whole time over which tokens were counted."""
    memory = replace(steady(6.0, 2), born_at=START - 36_000.0)
    first = one(serving(START, PODS), memory, START)
    assert first.memory.correction == 1.0
    later = one(serving(START + away, PODS), first.memory, START + away)
    assert (later.memory.correction != 1.0) is learns


def learned(**changes: object) -> LoopMemory:
    """Two replicas of which a lot was learned."""
    known = {
        "correction": 0.7,
        "trim": 0.8,
        "trimmed_at": START - 500.0,
        "proven_rps": 9.0,
        "startup_seconds": (300.0,) * 5,
        "shape": "l40s/1/1",
    }
    return steady(0.2, 2, **{**known, **changes})


SERVED = (("spec.model", "meta-llama/Llama-3.1-8B-Instruct"),)
SHAPE = f"l40s/1/1/{fingerprint(intent().quality)}"


@pytest.mark.parametrize("shape", ["h100-sxm/1/1", "l40s/2/1", "l40s/1/2", f"l40s/1/1/{fingerprint(SERVED)}"])
def test_what_was_learned_of_another_shape_goes_back_to_priors(shape):
    """Another GPU type, parallelism or checkpoint than what the memory speaks of: only the load still holds."""
    memory = learned(shape=shape)
    plan = one(loaded(0.2, 2), memory)
    found = plan.memory
    assert (found.correction, found.trim, found.trimmed_at, found.startup_seconds) == (1.0, 1.0, 0.0, ())
    assert found.proven_rps < 1.0
    assert found.shape == SHAPE
    assert plan.figures.startup_seconds == 60.0
    assert found.samples == memory.samples


@pytest.mark.parametrize("shape", [SHAPE, "l40s/1/1", ""])
def test_what_was_learned_of_the_same_shape_stays(shape):
    """Also where the memory does not say of which checkpoint, or of what at all."""
    found = one(loaded(0.2, 2), learned(shape=shape)).memory
    assert (found.correction, found.trim, found.startup_seconds) == (0.7, 0.8, (300.0,) * 5)
    assert found.proven_rps == 9.0
    assert found.shape == SHAPE


@pytest.mark.parametrize(
    "field", [("spec.precision.kvCache", "fp8"), ("spec.precision.weights", "fp8"), ("spec.speculative", "ngram")]
)
def test_another_precision_or_speculation_is_another_replica(field):
    """Steps of fp8 say nothing of those of bf16, and those that verify drafts nothing of plain ones."""
    placement = one(loaded(0.2, 2), learned()).pool.placement
    before = for_placement(learned(), placement, intent(quality=SERVED))
    assert before.correction == 0.7
    assert for_placement(before, placement, intent(quality=SERVED)) is before
    after = for_placement(before, placement, intent(quality=(*SERVED, field)))
    assert (after.correction, after.trim, after.proven_rps) == (1.0, 1.0, 0.0)


def test_an_edit_of_the_parallelism_takes_nothing_over_and_learns_nothing_from_the_old_pods():
    """While pods of TP1 serve and TP2 is decided, their tokens and the load they hold say nothing of TP2."""
    memory = replace(learned(), born_at=START - 36_000.0)
    plan = one(serving(START, PODS), memory, START)
    for index in range(1, 5):
        now = START + 15.0 * index
        model = serving(now, PODS)
        wider = replace(model, intent=replace(model.intent, tensor_parallel=2))
        plan = one(wider, plan.memory, now)
    assert plan.memory.shape == SHAPE.replace("l40s/1/1", "l40s/2/1")
    assert (plan.memory.correction, plan.memory.trim, plan.memory.proven_rps) == (1.0, 1.0, 0.0)


def test_what_was_learned_stays_while_pods_draft_as_before():
    """By an edited SLO another number of tokens would be best: that is for the next roll-out, and these pods go on."""
    lookup = {"speculation": Speculation(method=DraftMethod.NGRAM), "quality": (*SERVED, ("spec.speculative", "ngram"))}
    runs = Serving(model=SERVED[0][1], served_name="m", quality=lookup["quality"])
    model = loaded(0.2, 2, **lookup)
    now = one(model, None).pool.placement.speculative_tokens
    mark = f"l40s/1/1/{fingerprint(lookup['quality'])}"
    for tokens in (now, now + 1):
        pool = replace(model.pool, placement=placement(speculative_tokens=tokens), serving=runs)
        memory = learned(shape=f"{mark}/ngram {tokens}")
        found = one(replace(model, pool=pool), memory).memory
        assert (found.shape, found.correction, found.startup_seconds) == (memory.shape, 0.7, (300.0,) * 5)


def test_a_load_that_held_another_objective_proves_nothing():
    """9 requests/s a replica met 5 s to the first token; that says nothing about half a second."""
    memory = learned(objective=(5.0, 0.05, None))
    assert one(loaded(0.2, 2), memory).memory.proven_rps == 0.0
    assert one(loaded(0.2, 2), memory).memory.correction == 0.7
    same = one(loaded(0.2, 2, objective=replace(CHAT, ttft_seconds=5.0)), memory)
    assert same.memory.proven_rps == 9.0
    assert replicas(same) <= 2
