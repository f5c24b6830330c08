"""Plants and step times."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput.simulator.derive import H100_SXM, L40S, LLAMA_3_1_8B, ModelArchitecture, derive
from goodput.simulator.plant import Plant, PlantError, StepTimeModel

PLANT = derive(LLAMA_3_1_8B, L40S)
TIMES = StepTimeModel.of(PLANT)
COUNTS = st.integers(0, 20_000)


@given(COUNTS, COUNTS, st.integers(0, 10**7), COUNTS)
def test_step_time_never_falls_with_more_work(prefill, decode, read, more):
    """Monotone in each of its arguments."""
    base = TIMES.step_seconds(prefill, decode, read)

    assert TIMES.step_seconds(prefill + more, decode, read) >= base
    assert TIMES.step_seconds(prefill, decode + more, read) >= base
    assert TIMES.step_seconds(prefill, decode, read + more) >= base
    assert TIMES.step_seconds(prefill, decode, read, more) >= base


def test_one_sequence_is_bound_by_the_weights():
    """Batch 1: weights over effective bandwidth plus overheads."""
    expected = 16.06e9 / (864e9 * L40S.mbu) + 0.0012 + 0.00002

    assert TIMES.step_seconds(0, 1, 0) == pytest.approx(expected)


def test_a_full_prefill_step_is_bound_by_arithmetic():
    """2,048 prompt tokens: FLOPs over effective peak plus overhead."""
    flops = 2048 * PLANT.flops_per_token

    assert TIMES.step_seconds(2048, 0, 0) == pytest.approx(flops / (362e12 * L40S.mfu) + 0.0012)
    assert TIMES.flops(2048) == flops


def test_llama_8b_keeps_131072_bytes_a_token():
    """The figure that vLLM's own planner prints."""
    assert LLAMA_3_1_8B.kv_bytes_per_token == 131072


def test_draws_are_seeded_and_within_the_spread():
    """The same seed gives the same plant, another one another, all within 20 %."""
    drawn = [derive(LLAMA_3_1_8B, L40S, seed=seed) for seed in range(50)]

    assert drawn[3] == derive(LLAMA_3_1_8B, L40S, seed=3)
    assert len({plant.mbu for plant in drawn}) == 50
    assert all(0.656 <= plant.mbu <= 0.984 and 0.456 <= plant.mfu <= 0.684 for plant in drawn)


def test_an_h100_is_faster_than_an_l40s():
    """Both phases."""
    fast = StepTimeModel.of(derive(LLAMA_3_1_8B, H100_SXM))

    assert fast.step_seconds(0, 32, 32_000) < TIMES.step_seconds(0, 32, 32_000)
    assert fast.step_seconds(2048, 0, 0) < TIMES.step_seconds(2048, 0, 0)


def test_two_gpus_are_faster_but_less_than_twice():
    """Tensor parallelism costs efficiency."""
    one = TIMES.step_seconds(0, 16, 16_000)
    two = StepTimeModel.of(PLANT.with_gpus(2)).step_seconds(0, 16, 16_000)

    assert one / 2 < two < one


def test_a_model_that_does_not_fit_is_refused():
    """70B in bf16 on one L40S."""
    big = ModelArchitecture("llama-70b", 70.6e9, 80, 8192, 8, 128, 128256, 131072)

    with pytest.raises(ValueError, match="does not fit on 1 x l40s"):
        derive(big, L40S)
    assert derive(big, L40S, gpus=8).kv_pool_tokens > 0


def test_a_plant_survives_json():
    """What asdict writes, from_mapping reads; notes are left out."""
    assert Plant.from_mapping({"comment": "made up", **dataclasses.asdict(PLANT)}) == PLANT


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"mbu": 0}, "mbu"),
        ({"mfu": 1.2}, "mfu"),
        ({"weights_bytes": "16G"}, "weights_bytes"),
        ({"kv_pool_tokens": -1}, "kv_pool_tokens"),
        ({"startup_seconds": -1}, "startup_seconds"),
        ({"gated": 1}, "gated"),
        ({"bandwidth": 1}, "bandwidth"),
    ],
)
def test_a_bad_plant_names_the_field(change, field):
    """Every mistake says where it is."""
    with pytest.raises(PlantError, match=rf"plant\.{field}"):
        Plant.from_mapping({**dataclasses.asdict(PLANT), **change})


def test_a_missing_field_is_named():
    """No silent default for a figure that matters."""
    values = dataclasses.asdict(PLANT)
    del values["mbu"]

    with pytest.raises(PlantError, match="mbu"):
        Plant.from_mapping(values)
