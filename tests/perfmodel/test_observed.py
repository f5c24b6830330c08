"""The speed of prefill from how long prompts took."""

from math import ceil

import pytest

from goodput.perfmodel import Lengths, Shape, architecture
from goodput.perfmodel.gpus import gpu_type
from goodput.perfmodel.observed import observed_prefill
from goodput.perfmodel.replica import replica
from goodput.perfmodel.roofline import step_times


@pytest.mark.parametrize("speed", [0.5, 0.8, 1.25, 2.0])
@pytest.mark.parametrize("tokens", [300.0, 1155.0, 4000.0])
def test_the_speed_of_arithmetic_is_told_though_weight_reads_hide_part_of_it(tokens: float, speed: float) -> None:
    """From the time that a prompt takes where arithmetic is so much faster than believed: within 5 %, short or long."""
    arch, gpu = architecture("meta-llama/Llama-3.1-8B-Instruct"), gpu_type("l40s")
    assert arch is not None
    assert gpu is not None
    lengths = Lengths(tokens, 211.0, 0.01, 0.5)
    one = replica(arch, gpu, Shape(), lengths)
    true = step_times(arch, gpu, prefill_speed=speed)
    chunks = ceil(tokens / one.batched_tokens)
    seconds = chunks * true.mixed(8.0, one.context, tokens / chunks, true.prompt_attention(tokens) / chunks)
    found = observed_prefill(arch, gpu, Shape(), lengths, batch=8.0, rps=0.0, prefill_seconds=seconds)
    assert found.speed == pytest.approx(speed, rel=0.05)
