"""From spec.precision, spec.workload and spec.speculative to what decisions read, and what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import ValidationError

from goodput.api.precision import Precision as PrecisionSpec
from goodput.api.speculative import Speculative
from goodput.api.workload import Workload as WorkloadSpec
from goodput.domain.architecture import Architecture
from goodput.domain.conditions import ConditionReason, ConditionType
from goodput.domain.intent import AS_STORED, UNSAID, Precision
from goodput.domain.speculation import DraftMethod, SpeculationMode
from goodput.perfmodel import architecture
from goodput.perfmodel.lengths import percentile, variation_of
from goodput.runtime.serving import precision_of, speculation_of, workload_of


def arch(name: str = "meta-llama/Llama-3.1-70B-Instruct") -> Architecture:
    found = architecture(name)
    assert found is not None
    return found


def speculative(**spec: Any) -> Speculative:
    return Speculative.model_validate(spec)


def test_nothing_is_lowered_that_nobody_asked_for() -> None:
    """Unset and Auto are the checkpoint's own precision."""
    assert precision_of(None, arch()) == (AS_STORED, None)
    assert precision_of(PrecisionSpec(), arch()) == (AS_STORED, None)


def test_a_plain_checkpoint_may_be_quantised_while_it_loads() -> None:
    found, problem = precision_of(PrecisionSpec.model_validate({"weights": "fp8", "kvCache": "fp8"}), arch())
    assert found == Precision(weights="fp8", kv_cache="fp8")
    assert problem is None


def test_a_quantised_checkpoint_is_not_quantised_again() -> None:
    """vLLM refuses it at start; it is told before, with the field."""
    quantised = replace(arch(), precision="int4")
    _, problem = precision_of(PrecisionSpec(weights="fp8"), quantised)
    assert problem is not None
    assert (problem.type, problem.reason, problem.fatal) == (
        ConditionType.PLACED,
        ConditionReason.PRECISION_INVALID,
        True,
    )
    assert problem.message.startswith("spec.precision.weights: the checkpoint is stored in int4")
    assert precision_of(PrecisionSpec(kv_cache="fp8"), quantised)[1] is None


def test_an_expected_load_counts_reasoning_as_output() -> None:
    spec = WorkloadSpec.model_validate(
        {"requestsPerSecond": "2.5", "inputTokens": 4000, "outputTokens": 500, "reasoningTokens": 800}
    )
    found = workload_of(spec)
    assert (found.requests_per_second, found.input_tokens) == (2.5, 4000.0)
    assert (found.output_tokens, found.reasoning_tokens) == (1300.0, 800.0)
    assert (found.input_variation, found.output_variation) == (None, None)
    assert workload_of(None) is UNSAID
    assert workload_of(WorkloadSpec(reasoning_tokens=100)).output_tokens == 311.0


@given(st.floats(1.0, 1e6), st.floats(1.0, 3.8))
def test_a_mean_and_a_95th_percentile_give_the_variation_back(mean: float, ratio: float) -> None:
    variation = variation_of(mean, mean * ratio)
    assert percentile(mean, variation, 0.95) == pytest.approx(mean * ratio, rel=1e-6)


def test_off_and_unset_are_no_speculation() -> None:
    """YAML reads a bare Off as false."""
    assert speculation_of(None, arch()) == (None, None)
    for mode in ("Off", False):
        assert speculation_of(speculative(method="ngram", mode=mode), arch()) == (None, None)


def test_a_draft_model_is_sized_from_the_catalogue() -> None:
    spec = speculative(method="draft", model="meta-llama/Llama-3.1-8B-Instruct", tokens=4, acceptance="70%")
    found, problem = speculation_of(spec, arch())
    assert problem is None
    assert found is not None
    assert (found.method, found.mode, found.tokens) == (DraftMethod.DRAFT, SpeculationMode.AUTO, 4)
    assert found.acceptance == 0.7
    assert found.draft == architecture("meta-llama/Llama-3.1-8B-Instruct")


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        ({"method": "draft", "model": "a/b"}, "spec.speculative.model: a/b", "not in the built-in catalogue"),
        ({"method": "draft", "model": "Qwen/Qwen3-0.6B"}, "spec.speculative.model: Qwen/Qwen3-0.6B", "151,936 tokens"),
        ({"method": "mtp"}, "spec.speculative.method: ", "multi-token prediction"),
    ],
)
def test_what_cannot_draft_for_a_checkpoint_names_its_field(spec: dict[str, Any], field: str, said: str) -> None:
    _, problem = speculation_of(speculative(**spec), arch())
    assert problem is not None
    assert (problem.type, problem.reason) == (ConditionType.PLACED, ConditionReason.SPECULATION_INVALID)
    assert problem.message.startswith(field)
    assert said in problem.message


def test_a_checkpoint_with_layers_for_it_predicts_several_tokens() -> None:
    found, problem = speculation_of(speculative(method="mtp", mode="Always"), replace(arch(), mtp_layers=1))
    assert problem is None
    assert found is not None
    assert (found.method, found.mode) == (DraftMethod.MTP, SpeculationMode.ALWAYS)


@pytest.mark.parametrize(
    "spec",
    [
        {"method": "draft"},
        {"method": "eagle3"},
        {"method": "ngram", "model": "a/b"},
        {"method": "mtp", "model": "a/b"},
        {"method": "medusa"},
        {"method": "ngram", "tokens": 0},
        {"method": "ngram", "tokens": 17},
        {"method": "draft", "model": "llama"},
        {"model": "a/b"},
    ],
)
def test_speculation_that_makes_no_sense_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        speculative(**spec)


@pytest.mark.parametrize(
    "spec",
    [
        {"inputTokensP95": 900},
        {"inputTokens": 1000, "inputTokensP95": 900},
        {"outputTokens": 1000, "outputTokensP95": 3900},
        {"inputTokens": 0},
        {"requestsPerSecond": "0"},
        {"requestsPerSecond": "nan"},
        {"requestsPerSecond": 2.5},
        {"requestsPerSecond": "-1"},
        {"reasoningTokens": -1},
    ],
)
def test_a_load_that_makes_no_sense_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        WorkloadSpec.model_validate(spec)
