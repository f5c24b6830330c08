"""Formats of weights and KV: bytes, the arithmetic that multiplies them, and what a GPU refuses."""

import pytest

from goodput.domain.architecture import Architecture
from goodput.domain.errors import InvalidObject, ModelDoesNotFit
from goodput.domain.intent import GpuType, Precision
from goodput.perfmodel import architecture, fit
from goodput.perfmodel.gpus import gpu_type
from goodput.perfmodel.judging import unsupported
from goodput.perfmodel.precision import cannot_keep, cannot_run, compute_column, kv_format, with_precision


def arch(name: str) -> Architecture:
    found = architecture(name)
    assert found is not None
    return found


def gpu(name: str) -> GpuType:
    found = gpu_type(name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("precision", "device", "column"),
    [
        ("bf16", "h100-sxm", "bf16"),
        ("fp8", "h100-sxm", "fp8"),
        ("fp8", "a100-80g-sxm", "bf16"),  # stored in fp8, unpacked by weight-only kernels
        ("int8", "a100-80g-sxm", "int8"),
        ("int4", "h100-sxm", "bf16"),
        ("nvfp4", "b200", "fp4"),
        ("nvfp4", "h100-sxm", "bf16"),
        ("mxfp4", "h100-sxm", "bf16"),
        ("mxfp4", "mi355x", "fp4"),
    ],
)
def test_a_format_is_multiplied_natively_where_the_gpu_can_and_unpacked_to_bf16_elsewhere(precision, device, column):
    """The peak that counts is the GPU's own, never another precision's."""
    assert cannot_run(precision, gpu(device)) == ""
    assert compute_column(precision, gpu(device)) == column


@pytest.mark.parametrize(
    ("precision", "device", "why"),
    [
        ("fp8", "t4", "need Ampere or newer, t4 is older: use bf16 or int4"),
        ("nvfp4", "t4", "need Ampere or newer"),
        ("nvfp4", "mi355x", "need an NVIDIA GPU, mi355x is none: use fp8 or mxfp4"),
        ("fp8", "mi210", "need a GPU with fp8 arithmetic, mi210 has none: use bf16 or int4"),
    ],
)
def test_what_a_gpu_cannot_run_is_refused_with_what_to_use(precision, device, why):
    """By the field that asks for it: a checkpoint's own format is the model's."""
    assert why in cannot_run(precision, gpu(device))
    stored = with_precision(arch("meta-llama/Llama-3.1-8B"), precision)
    for asked, field in ((None, "spec.model"), (precision, "spec.precision.weights")):
        found = unsupported(stored, Precision(weights=asked), gpu(device))
        assert found is not None
        assert found[0] == field
        assert why in found[1]


def test_a_format_that_nobody_knows_is_refused_by_its_field():
    with pytest.raises(InvalidObject, match="not known") as caught:
        cannot_run("magic", gpu("h100-sxm"))
    assert caught.value.field == "spec.precision.weights"


def test_a_checkpoint_that_a_gpu_cannot_run_does_not_fit_there():
    """DeepSeek-V3 is stored in fp8, which an MI210 has no arithmetic for: neither more GPUs nor memory help."""
    with pytest.raises(ModelDoesNotFit, match="fp8") as caught:
        fit(arch("deepseek-ai/DeepSeek-V3"), gpu("mi210"), 8)
    assert caught.value.part == "precision"
    assert "would fit" not in str(caught.value)


@pytest.mark.parametrize(("precision", "size"), [("fp8", 1.0), ("int8", 1.0), ("int4", 0.51953125), ("nvfp4", 0.5625)])
def test_a_requantised_model_keeps_its_embedding_and_head(precision, size):
    """All but the two matrices of the vocabulary shrink."""
    base = arch("meta-llama/Llama-3.1-70B")
    found = with_precision(base, precision)
    ends = base.embedding_parameters + base.head_parameters
    assert found.precision == precision
    assert found.weight_bytes == pytest.approx(2.0 * ends + size * (base.parameters - ends))


def test_nobody_widens_a_checkpoint():
    """bf16 of an fp8 checkpoint would be larger, and no better."""
    with pytest.raises(InvalidObject, match="wider"):
        with_precision(arch("deepseek-ai/DeepSeek-V3"), "bf16")
    with pytest.raises(InvalidObject, match="not known"):
        with_precision(arch("meta-llama/Llama-3.1-8B"), "fp6")


def test_a_kv_cache_in_four_bits_needs_a_gpu_that_has_them():
    """An H100 keeps fp8, not nvfp4; an unknown dtype is refused with those that are known."""
    assert not cannot_keep("fp8", gpu("h100-sxm"))
    assert "fp4" in cannot_keep("nvfp4", gpu("h100-sxm"))
    with pytest.raises(ModelDoesNotFit) as caught:
        fit(arch("meta-llama/Llama-3.1-8B"), gpu("h100-sxm"), kv_dtype="nvfp4")
    assert caught.value.part == "precision"
    with pytest.raises(InvalidObject, match="fp8_ds_mla") as unknown:
        kv_format("fp3")
    assert unknown.value.field == "spec.precision.kvCache"
