"""What live times say of the speed of a replica."""

import pytest

from goodput.domain.architecture import Architecture
from goodput.domain.intent import GpuType, Objective
from goodput.domain.speculation import DraftMethod, Speculation
from goodput.perfmodel import Lengths, Shape, architecture, latency
from goodput.perfmodel.gpus import gpu_type
from goodput.perfmodel.observed import observed_speed
from goodput.perfmodel.replica import replica_times
from goodput.perfmodel.speculation import drafts_of

CHAT = Objective(ttft_seconds=0.5, tpot_seconds=0.05, e2e_seconds=None)
CONVERSATION = Lengths(1155, 211)
EDITS = Lengths(3000, 500)


def _arch(name: str) -> Architecture:
    found = architecture(name)
    assert found is not None
    return found


def _gpu(name: str) -> GpuType:
    found = gpu_type(name)
    assert found is not None
    return found


LLAMA_8B, L40S = _arch("meta-llama/Llama-3.1-8B"), _gpu("l40s")


def test_the_speed_of_decode_is_read_back_from_inter_token_times():
    """Step times 20 % longer than believed give a speed of 1/1.2, at any batch and rate."""
    for batch, rps in ((5.0, 0.5), (20.0, 2.0)):
        believed = latency(LLAMA_8B, L40S, Shape(), CONVERSATION, CHAT, rps=rps)
        found = observed_speed(
            LLAMA_8B, L40S, Shape(), CONVERSATION, batch=believed.batch, rps=rps, itl_seconds=believed.tpot_mean_seconds
        )
        assert found == pytest.approx(1.0, rel=0.02)
        slower = observed_speed(
            LLAMA_8B, L40S, Shape(), CONVERSATION, batch=batch, rps=rps, itl_seconds=1.2 * believed.tpot_mean_seconds
        )
        same = observed_speed(
            LLAMA_8B, L40S, Shape(), CONVERSATION, batch=batch, rps=rps, itl_seconds=believed.tpot_mean_seconds
        )
        # Prompts take their share of the longer steps too, less what hides behind reads.
        assert slower == pytest.approx(same / 1.2, rel=0.05)


def test_the_speed_of_a_replica_that_drafts_is_judged_by_its_steps():
    """Inter-token latency is observed once per output of a step, of which a draft makes several tokens."""
    target, h100 = _arch("meta-llama/Llama-3.1-70B-Instruct"), _gpu("h100-sxm")
    drafts = drafts_of(DraftMethod.NGRAM, 4)
    shape = Shape(tensor_parallel=4, speculation=Speculation(method=DraftMethod.NGRAM), drafts=drafts)
    step = replica_times(target, h100, shape).step(8.0, 3000.0)
    found = observed_speed(target, h100, shape, EDITS, batch=8.0, rps=0.0, itl_seconds=step / 0.9)
    assert found == pytest.approx(0.9, abs=0.03)
