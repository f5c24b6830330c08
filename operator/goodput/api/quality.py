"""Checkpoint, precision and speculation of a Model: a change of any of these goes through a canary."""

from __future__ import annotations

from collections.abc import Iterable

from goodput.api.engine import flag_of
from goodput.api.model import ModelSpec
from goodput.api.speculative import Speculative
from goodput.domain.change import Quality

# Arguments of the engine that choose a checkpoint or a precision and have no field of their own. vLLM takes any unique
# prefix of a flag, so a prefix of one of these counts as it.
QUALITY_FLAGS = (
    "--code-revision",
    "--config-format",
    "--dtype",
    "--hf-config-path",
    "--hf-overrides",
    "--load-format",
    "--lora-dtype",
    "--mamba-cache-dtype",
    "--mamba-ssm-cache-dtype",
    "--model-class-overrides",
    "--model-impl",
    "--model-loader-extra-config",
    "--tokenizer",
    "--tokenizer-mode",
    "--tokenizer-revision",
)


def quality_flag(token: str) -> str:
    """The flag of QUALITY_FLAGS that `token` may mean, '' if none."""
    flag = flag_of(token)
    if not flag:
        return ""
    if flag in QUALITY_FLAGS:
        return flag
    return next((known for known in QUALITY_FLAGS if flag.startswith("--") and known.startswith(flag)), "")


def quality_args(args: Iterable[str]) -> dict[str, str]:
    """Flags of `args` that are QUALITY_FLAGS, with their words as they were written."""
    found: dict[str, list[str]] = {}
    flag = ""
    for token in args:
        if flag_of(token):
            flag = quality_flag(token)
        if flag:
            found.setdefault(flag, []).append(token)
    return {flag: " ".join(words) for flag, words in found.items()}


def quality_of(spec: ModelSpec) -> Quality:
    """Checkpoint, precision and speculation that `spec` asks for. The one list of them: a new field joins here."""
    values = {
        "spec.model": spec.model,
        "spec.revision": spec.revision,
        "spec.precision.weights": _unless_auto(spec.precision.weights) if spec.precision else None,
        "spec.precision.kvCache": _unless_auto(spec.precision.kv_cache) if spec.precision else None,
        "spec.speculative": _drafts(spec.speculative),
        **quality_args(spec.engine.args),
    }
    return tuple(sorted((field, value) for field, value in values.items() if value))


def drafting(method: str, model: str | None) -> str:
    """Who drafts. How many tokens at a time changes no output, and no more does whether it is worth it."""
    return f"{method} {model}" if model else method


def _drafts(speculative: Speculative | None) -> str | None:
    if speculative is None or speculative.mode == "Off":
        return None
    return drafting(speculative.method, speculative.model)


def _unless_auto(value: str) -> str | None:
    return None if value == "Auto" else value
