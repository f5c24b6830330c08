"""What counts as another checkpoint, precision or speculation, and what a check looks like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from goodput.api import Model
from goodput.api.quality import QUALITY_FLAGS, quality_args, quality_of
from goodput.api.qualitycheck import QualityCheck

_FLAGS_FILE = Path(__file__).resolve().parents[2] / "e2e" / "goodput_world" / "engine" / "flags.tsv"


def _spec(**spec: Any) -> Any:
    whole = {"model": "meta-llama/Llama-3.1-8B-Instruct", "slo": "chat", **spec}
    return Model.parse({"kind": "Model", "metadata": {"name": "m", "namespace": "a"}, "spec": whole}).spec


@pytest.mark.parametrize(
    ("args", "found"),
    [
        (("--dtype", "half"), {"--dtype": "--dtype half"}),
        (("--dtype=half",), {"--dtype": "--dtype=half"}),
        (("--seed", "7", "--hf_overrides", "{}"), {"--hf-overrides": "--hf_overrides {}"}),
        (
            ("--hf-overrides.a", "1", "--hf-overrides.b", "2"),
            {"--hf-overrides": "--hf-overrides.a 1 --hf-overrides.b 2"},
        ),
        (("--tokenizer-rev", "x"), {"--tokenizer-revision": "--tokenizer-rev x"}),
        (("--seed", "7", "--max-num-seqs", "9"), {}),
        ((), {}),
    ],
)
def test_flags_are_known_in_every_spelling(args: tuple[str, ...], found: dict[str, str]) -> None:
    """Plain, with =, with underscores, dotted, abbreviated; others are left out."""
    assert quality_args(args) == found


def test_every_flag_is_one_of_the_engine() -> None:
    """One that vLLM dropped or never had watches nothing."""
    real = {line.split("\t")[0] for line in _FLAGS_FILE.read_text().splitlines()}
    assert set(QUALITY_FLAGS) - real == set()


def test_what_a_model_asks_for_is_sorted_and_leaves_out_what_is_unset() -> None:
    """Equal Models have equal qualities; a seed, an image or a bound is no part of it."""
    plain = _spec()
    assert quality_of(plain) == (("spec.model", "meta-llama/Llama-3.1-8B-Instruct"),)
    same = _spec(engine={"args": ["--seed", "7"], "image": "vllm/vllm-openai:v0.32.0"}, scaling={"minReplicas": 3})
    assert quality_of(same) == quality_of(plain)
    other = _spec(revision="v2", engine={"args": ["--dtype", "half"]})
    assert dict(quality_of(other)) == {**dict(quality_of(plain)), "spec.revision": "v2", "--dtype": "--dtype half"}


@pytest.mark.parametrize(
    "spec",
    [
        {"revision": "v2"},
        {"model": "Qwen/Qwen2.5-7B-Instruct"},
        {"precision": {"weights": "fp8"}},
        {"precision": {"kvCache": "fp8"}},
        {"speculative": {"method": "ngram"}},
        {"engine": {"args": ["--tokenizer", "a/b"]}},
    ],
    ids=str,
)
def test_checkpoint_precision_and_speculation_are_part_of_it(spec: dict[str, Any]) -> None:
    """Each of them is another quality."""
    assert quality_of(_spec(**spec)) != quality_of(_spec())


def test_a_check_has_its_defaults_in_kubernetes_notation() -> None:
    """One try, an hour."""
    container = {
        "name": "eval",
        "image": "evals:7",
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    }
    check = QualityCheck.model_validate({"jobTemplate": {"spec": {"template": {"spec": {"containers": [container]}}}}})
    job = check.as_kubernetes()
    assert (job["backoffLimit"], job["activeDeadlineSeconds"]) == (0, 3600)
    (rendered,) = job["template"]["spec"]["containers"]
    assert (rendered["name"], rendered["image"], rendered["env"]) == ("eval", "evals:7", container["env"])
