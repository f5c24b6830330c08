"""Why an SLO is missed, and what helps: every remedy is tried on the model, none is a phrase."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from goodput.domain.intent import Objective
from goodput.perfmodel import Lengths, architecture, built_in_gpu_types
from goodput.perfmodel.gpus import gpu_type, whole_cards
from goodput.perfmodel.options import allowed, options
from goodput.perfmodel.remedies import Diagnosis, Missed, diagnose
from goodput.perfmodel.requirements import Requirements

CARDS = whole_cards(allowed(built_in_gpu_types(), ())[0])
LLAMA_8B = architecture("meta-llama/Llama-3.1-8B-Instruct")
assert LLAMA_8B is not None
DECODE = Requirements(
    arch=LLAMA_8B,
    objective=Objective(ttft_seconds=2.0, tpot_seconds=0.05, e2e_seconds=None),
    lengths=Lengths(300.0, 200.0),
    rps=2.0,
    tensor_parallel=1,
)
PREFILL = replace(
    DECODE,
    objective=Objective(ttft_seconds=0.5, tpot_seconds=0.2, e2e_seconds=None),
    lengths=Lengths(6000.0, 200.0),
    tensor_parallel=None,
)


def diagnosed(wanted: Requirements, gpu: str) -> Diagnosis:
    only = gpu_type(gpu)
    assert only is not None
    found = diagnose(wanted, options(wanted, [only])[0], CARDS)
    assert found is not None
    return found


def test_slow_decode_is_a_matter_of_bytes() -> None:
    """Of the time per token nearly all is reading weights."""
    found = diagnosed(DECODE, "l4")
    assert found.missed is Missed.TPOT
    assert "Decode is bandwidth-bound: each token reads 14.0 GiB of weights" in found.causes[0]
    assert found.causes[1].startswith("More replicas do not help")


def test_slow_prefill_is_a_matter_of_arithmetic() -> None:
    """Nothing about bandwidth; a prefix cache is among what helps."""
    found = diagnosed(PREFILL, "a10g")
    assert found.missed is Missed.TTFT
    assert "Prefill is compute-bound" in found.causes[0]
    assert any(remedy.what.startswith("a prefix cache that holds ") for remedy in found.remedies)
    assert not any("speculative" in remedy.what for remedy in found.remedies)


@pytest.mark.parametrize(("wanted", "gpu"), [(DECODE, "l4"), (PREFILL, "a10g"), (DECODE, "t4")])
def test_what_helps_comes_by_what_it_asks_of_users(wanted: Requirements, gpu: str) -> None:
    """Hardware, then what changes no answer, then precision, then the promise."""
    kinds = [_kind(remedy.what) for remedy in diagnosed(wanted, gpu).remedies]
    assert kinds == sorted(kinds)
    assert kinds[-1] == 3


def _kind(what: str) -> int:
    if "in the SLO" in what:
        return 3
    if "answers may change" in what:
        return 2
    return 1 if what.startswith(("speculative", "a prefix cache")) else 0


@pytest.mark.parametrize(("wanted", "gpu"), [(DECODE, "l4"), (PREFILL, "a10g"), (DECODE, "t4")])
def test_every_remedy_is_faster_or_another_promise(wanted: Requirements, gpu: str) -> None:
    """And one that is said to be enough meets the SLO as an option."""
    found = diagnosed(wanted, gpu)
    for remedy in found.remedies:
        assert remedy.seconds < found.seconds or "in the SLO" in remedy.what
        assert remedy.option is not None
        assert remedy.meets is remedy.option.meets


def test_fp8_is_no_remedy_where_it_cannot_run() -> None:
    """A T4 has no kernels for it."""
    assert not any(remedy.what.startswith("fp8") for remedy in diagnosed(DECODE, "t4").remedies)


def test_nothing_to_diagnose() -> None:
    """Where an option meets the SLO, or none fits."""
    card, tiny = gpu_type("h100-sxm"), gpu_type("a100-40g-sxm-1g.5gb")
    assert card is not None
    assert tiny is not None
    for gpu in (card, tiny):
        assert diagnose(DECODE, options(DECODE, [gpu])[0], CARDS) is None
