"""How a model is to be served, as decisions see it: precision, expected load, speculation."""

from __future__ import annotations

from msgspec.structs import replace

from goodput.api.precision import Precision as PrecisionSpec
from goodput.api.speculative import Speculative
from goodput.api.workload import Workload as WorkloadSpec
from goodput.domain.architecture import Architecture
from goodput.domain.conditions import ConditionReason, ConditionType
from goodput.domain.intent import AS_STORED, UNSAID, Precision, Problem, Workload
from goodput.domain.speculation import DraftMethod, Speculation, SpeculationMode
from goodput.perfmodel.catalogue import architecture as built_in_architecture
from goodput.perfmodel.lengths import PRIOR_OUTPUT_TOKENS, variation_of
from goodput.perfmodel.precision import with_precision


def _unplaced(reason: ConditionReason, message: str) -> Problem:
    return Problem(type=ConditionType.PLACED, reason=reason, message=message, fatal=True)


def precision_of(spec: PrecisionSpec | None, architecture: Architecture | None) -> tuple[Precision, Problem | None]:
    """The precision to load in, and what is wrong with the one that was asked for; then it is the checkpoint's."""
    if spec is None:
        return AS_STORED, None
    found = Precision(
        weights=None if spec.weights == "Auto" else spec.weights,
        kv_cache=None if spec.kv_cache == "Auto" else spec.kv_cache,
    )
    if found.weights is None or architecture is None or architecture.precision == "bf16":
        return found, None
    message = (
        f"spec.precision.weights: the checkpoint is stored in {architecture.precision}, and only bf16 is quantised to "
        f"{found.weights} while it loads: leave the field out, or serve the bf16 checkpoint"
    )
    return replace(found, weights=None), _unplaced(ConditionReason.PRECISION_INVALID, message)


def as_loaded(architecture: Architecture | None, precision: Precision) -> Architecture | None:
    """The architecture with its weights in the precision that they are loaded in."""
    if architecture is None or precision.weights is None:
        return architecture
    return with_precision(architecture, precision.weights)


def workload_of(spec: WorkloadSpec | None) -> Workload:
    """The expected load. Reasoning is generated like any output."""
    if spec is None:
        return UNSAID
    output = spec.output_tokens
    if output is None and spec.reasoning_tokens:
        output = round(PRIOR_OUTPUT_TOKENS)
    return Workload(
        requests_per_second=spec.rate,
        input_tokens=None if spec.input_tokens is None else float(spec.input_tokens),
        output_tokens=None if output is None else float(output + spec.reasoning_tokens),
        input_variation=_variation(spec.input_tokens, spec.input_tokens_p95),
        output_variation=_variation(spec.output_tokens, spec.output_tokens_p95),
        reasoning_tokens=float(spec.reasoning_tokens),
    )


def _variation(mean: int | None, p95: int | None) -> float | None:
    return None if mean is None or p95 is None else variation_of(float(mean), float(p95))


def speculation_of(
    spec: Speculative | None, architecture: Architecture | None
) -> tuple[Speculation | None, Problem | None]:
    """Who may draft, and why nobody can for this checkpoint."""
    if spec is None or spec.mode == "Off":
        return None, None
    method = DraftMethod(spec.method)
    draft = built_in_architecture(spec.model) if method is DraftMethod.DRAFT and spec.model else None
    found = Speculation(
        method=method,
        mode=SpeculationMode(spec.mode),
        model=spec.model or "",
        tokens=spec.tokens,
        draft=draft,
        acceptance=spec.acceptance_share,
    )
    message = _why_not(found, architecture)
    return found, _unplaced(ConditionReason.SPECULATION_INVALID, message) if message else None


def _why_not(speculation: Speculation, architecture: Architecture | None) -> str:
    if speculation.method is DraftMethod.DRAFT and speculation.draft is None:
        return (
            f"spec.speculative.model: {speculation.model} is not in the built-in catalogue, so that neither its memory "
            "nor its time is known: name a draft model that is"
        )
    if architecture is None:
        return ""
    if speculation.method is DraftMethod.MTP and not architecture.mtp_layers:
        return (
            "spec.speculative.method: the config.json of this model names no layers for multi-token prediction "
            "(num_nextn_predict_layers): choose another method"
        )
    draft = speculation.draft
    if draft is not None and not _same_vocabulary(draft, architecture):
        return (
            f"spec.speculative.model: {speculation.model} has {draft.vocabulary:,} tokens in its vocabulary, the model "
            f"{architecture.vocabulary:,}: a draft model must have the same"
        )
    return ""


def _same_vocabulary(draft: Architecture, architecture: Architecture) -> bool:
    return draft.vocabulary == architecture.vocabulary
