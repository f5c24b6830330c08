"""Why an SLO is missed, and what helps: every remedy is tried on the model, none is a phrase."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from goodput.domain.intent import Objective
from goodput.perfmodel import Lengths, architecture, built_in_gpu_types
from goodput.perfmodel.binding import Bottleneck
from goodput.perfmodel.capacity import Shape, latency
from goodput.perfmodel.causes import Missed, times
from goodput.perfmodel.gpus import gpu_type, whole_cards
from goodput.perfmodel.judging import Verdict
from goodput.perfmodel.options import allowed, options
from goodput.perfmodel.remedies import Diagnosis, diagnose
from goodput.perfmodel.requirements import Requirements

CARDS = whole_cards(allowed(built_in_gpu_types(), ())[0])
LLAMA_8B = architecture("meta-llama/Llama-3.1-8B-Instruct")
QWEN_600M = architecture("Qwen/Qwen3-0.6B")
assert LLAMA_8B is not None
assert QWEN_600M is not None
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


ALONE = replace(PREFILL, tensor_parallel=1)
LAUNCHES = replace(
    DECODE, arch=QWEN_600M, objective=Objective(ttft_seconds=None, tpot_seconds=0.0015, e2e_seconds=None)
)
LINKS = replace(
    DECODE, objective=Objective(ttft_seconds=None, tpot_seconds=0.0034, e2e_seconds=None), tensor_parallel=8
)
WHOLE = Objective(ttft_seconds=None, tpot_seconds=None, e2e_seconds=1.0)
CASES = [(DECODE, "l4"), (PREFILL, "a10g"), (ALONE, "a10g"), (DECODE, "t4"), (LINKS, "l40s")]


def diagnosed(wanted: Requirements, gpu: str, *others: str) -> Diagnosis:
    """Of the best option of `gpu`, where `others` might be allowed instead: every card, if none is named."""
    only = gpu_type(gpu)
    assert only is not None
    every = [card for card in CARDS if not others or card.name in others]
    found = diagnose(wanted, options(wanted, [only])[0], every)
    assert found is not None
    return found


def test_slow_decode_is_a_matter_of_bytes() -> None:
    """Of the time per token nearly all is reading weights."""
    found = diagnosed(DECODE, "l4")
    assert found.missed is Missed.TPOT
    assert "Decode is bandwidth-bound: each token reads 14.0 GiB of weights" in found.causes[0]
    assert found.causes[1].startswith("More replicas do not help")


def test_slow_prefill_on_one_gpu_is_a_matter_of_arithmetic() -> None:
    """Of 2.3 s nearly all is 90 TFLOP; what helps has more FLOP/s."""
    found = diagnosed(ALONE, "a10g")
    assert (found.missed, found.binds) == (Missed.TTFT, Bottleneck.COMPUTE)
    assert "Prefill is compute-bound: a prompt of 6000 tokens takes 90.1 TFLOP, 97 % of its time on 1 x a10g" in str(
        found.causes
    )
    assert found.remedies[0].what.startswith("GPUs with more FLOP/s: ")
    assert not any("speculative" in remedy.what for remedy in found.remedies)


def test_slow_prefill_over_pcie_is_a_matter_of_communication() -> None:
    """Eight a10g have the FLOP/s: their all-reduces take more of a prompt's time than its products."""
    found = diagnosed(PREFILL, "a10g")
    assert found.binds is Bottleneck.COMMUNICATION
    assert "Prefill is bound by communication: a prompt of 6000 tokens waits while 8 ranks exchange" in found.causes[0]
    assert "neither FLOP/s nor memory bandwidth" in found.causes[0]
    assert found.remedies[0].what.startswith("fewer, larger GPUs to a replica: ")
    assert any(remedy.what.startswith("a prefix cache that holds ") for remedy in found.remedies)


def test_decode_of_a_small_model_is_a_matter_of_launches() -> None:
    """0.6B on an H100: drafts come first, for no GPU launches faster; narrower weights are not enough."""
    found = diagnosed(LAUNCHES, "h100-sxm")
    assert (found.missed, found.binds) == (Missed.TPOT, Bottleneck.LAUNCHES)
    assert (
        "Decode is bound by launches: each token waits until the kernels of 28 layers are launched" in found.causes[0]
    )
    assert "bandwidth-bound" not in found.causes[0]
    assert found.remedies[0].what.startswith("speculative decoding, ")
    assert not any(remedy.meets for remedy in found.remedies if "answers may change" in remedy.what)


def test_decode_over_pcie_is_a_matter_of_communication() -> None:
    """3.4 ms a token on eight l40s: links help, and an H100 has them."""
    found = diagnosed(LINKS, "l40s", "h100-sxm")
    assert (found.missed, found.binds) == (Missed.TPOT, Bottleneck.COMMUNICATION)
    assert found.remedies[0].what.startswith("GPUs with less to wait for between GPUs: ")


def test_a_late_end_is_a_matter_of_the_longer_phase() -> None:
    """20,000 tokens in and 10 out under an end-to-end objective: it is prefill that takes too long."""
    wanted = replace(PREFILL, objective=WHOLE, lengths=Lengths(20_000.0, 10.0))
    assert "Prefill is " in diagnosed(wanted, "l40s").causes[0]
    wanted = replace(PREFILL, objective=WHOLE, lengths=Lengths(100.0, 1000.0))
    assert "Decode is " in diagnosed(wanted, "l40s").causes[0]


def test_a_prefix_cache_does_not_spare_the_host() -> None:
    """60 ms for 6,000 tokens: to parse them alone takes longer, whatever part of them is in the cache."""
    wanted = replace(PREFILL, objective=Objective(ttft_seconds=0.06, tpot_seconds=None, e2e_seconds=None))
    found = diagnosed(wanted, "b200")
    assert found.binds is Bottleneck.HOST
    assert found.causes[0].startswith("TTFT is missed. The host binds: a prompt of 6000 tokens is parsed")
    assert not any("prefix cache" in remedy.what for remedy in found.remedies)


@pytest.mark.parametrize(("wanted", "gpu"), CASES)
def test_what_helps_comes_by_what_it_asks_of_users(wanted: Requirements, gpu: str) -> None:
    """Hardware and what changes no answer, then precision, then the promise."""
    kinds = [_kind(remedy.what) for remedy in diagnosed(wanted, gpu).remedies]
    assert kinds == sorted(kinds)
    assert kinds[-1] == 3


def _kind(what: str) -> int:
    if "in the SLO" in what:
        return 3
    if "answers may change" in what:
        return 2
    return 1 if what.startswith(("speculative", "a prefix cache")) else 0


@pytest.mark.parametrize(("wanted", "gpu"), [*CASES, (LAUNCHES, "h100-sxm")])
def test_every_remedy_is_faster_or_another_promise(wanted: Requirements, gpu: str) -> None:
    """And one that is said to be enough meets the SLO as an option."""
    found = diagnosed(wanted, gpu)
    for remedy in found.remedies:
        assert remedy.seconds < found.seconds or "in the SLO" in remedy.what
        assert remedy.option is not None
        assert remedy.meets is remedy.option.meets


def test_what_only_idle_replicas_meet_has_its_causes_and_remedies() -> None:
    """What a busy replica misses is told, that replicas hardly help, and a bound that is enough for a busy one."""
    card = gpu_type("l40s")
    assert card is not None
    idle = latency(DECODE.arch, card, Shape(), DECODE.lengths, DECODE.objective, rps=0.0).good
    wanted = replace(DECODE, objective=replace(DECODE.objective, attainment=idle - 1e-9))
    nearest = options(wanted, [card])[0]
    assert nearest.verdict is Verdict.BUSY_MISSES
    found = diagnose(wanted, nearest, CARDS)
    assert found is not None
    assert nearest.idle is not None
    assert found.seconds == times(wanted, nearest.idle)[found.missed][1]
    assert found.causes[1].startswith("More replicas help little: a request that is alone on l40s TP1 already takes ")
    looser = found.remedies[-1]
    assert "in the SLO" in looser.what
    assert looser.meets


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
