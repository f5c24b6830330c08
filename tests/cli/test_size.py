"""`size`: bytes of weights and KV cache, and where they fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from goodput.cli.main import main

LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
# Structure of CodeLlama-34b, from its config.json.
CODE_34B = {
    "_name_or_path": "codellama/CodeLlama-34b-hf",
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8192,
    "intermediate_size": 22016,
    "num_hidden_layers": 48,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 16384,
    "torch_dtype": "bfloat16",
}


def size(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, ["size", *arguments], input=stdin)


def sized(*arguments: str, stdin: str = "") -> dict[str, Any]:
    result = size(*arguments, "-o", "json", stdin=stdin)
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.output)
    return dict(found)


@pytest.mark.parametrize(
    ("batch", "context", "want"),
    [(32, 2048, 53_687_091_200), (16, 4096, 53_687_091_200), (32, 4096, 107_374_182_400)],
)
def test_the_kv_cache_of_llama_2_13b_is_known_to_the_byte(batch: int, context: int, want: int) -> None:
    """2 * layers * heads * head size * 2 bytes for every token."""
    found = sized("meta-llama/Llama-2-13b-hf", "--batch", str(batch), "--context", str(context))
    assert found["kvBytes"] == want


@pytest.mark.parametrize(("dtype", "want"), [("auto", 131_072), ("fp8", 65_536)])
def test_bytes_of_a_token_follow_the_precision_of_the_cache(dtype: str, want: int) -> None:
    """As the engine's planner prints them."""
    assert sized(LLAMA_8B, "--kv-cache-dtype", dtype)["kvBytesPerToken"] == want


def test_a_tower_whose_size_is_not_said_is_named() -> None:
    """Gemma 3n says no layers of its towers: their weights come on top."""
    config = {**CODE_34B, "vision_config": {"architecture": "mobilenetv5"}, "audio_config": {"hidden_size": 1536}}
    text = json.dumps(config)
    assert sized("-f", "-", stdin=text)["notCounted"] == ["audio_config", "vision_config"]
    remark = "audio_config, vision_config of codellama/CodeLlama-34b-hf is not counted: its weights come on top"
    assert remark in " ".join(size("-f", "-", stdin=text).output.split())
    assert sized(LLAMA_8B)["notCounted"] == []


def test_what_a_window_keeps_is_said_beside_what_is_kept_of_every_token() -> None:
    """Mistral-7B keeps 128 KiB of each of the last 4,096 tokens and nothing of those before."""
    config = {**CODE_34B, "model_type": "mistral", "sliding_window": 4096}
    result = size("-f", "-", "--gpu-type", "h100-sxm", stdin=json.dumps(config))
    assert "0 bytes a token (0 B); 196,608 each of the last 4,096" in result.output
    found = sized("-f", "-", stdin=json.dumps(config))
    assert (found["kvBytesPerToken"], found["kvBytesPerTokenInWindow"]) == (0, 196_608)
    assert all(place["kvTokens"] for place in found["gpuTypes"] if place["fits"])


def test_the_table_says_where_it_fits_and_why_not_on_fewer() -> None:
    """The smallest replica of each type; what no replica of a type holds comes last."""
    output = size("meta-llama/Llama-3.1-70B-Instruct", "--gpu-type", "h100-sxm", "--gpu-type", "t4").output
    first, last = output.splitlines()[-2:]
    assert first.split()[:4] == ["h100-sxm", "79.2", "GiB", "2"]
    assert "TP 1: weights need 131.4 GiB of the 72.9 GiB that one GPU may use" in first
    assert "does not fit" in last


def test_what_is_asked_for_must_fit_at_once() -> None:
    """More sequences need larger replicas."""
    few = sized(LLAMA_8B, "--gpu-type", "l4", "--batch", "1")["gpuTypes"][0]
    many = sized(LLAMA_8B, "--gpu-type", "l4", "--batch", "20")["gpuTypes"][0]
    assert few["tensorParallel"] < many["tensorParallel"]
    assert many["why"].startswith("TP 1: the KV cache holds ")


def test_heads_that_cannot_be_cut_further_do_not_hide_what_is_too_small() -> None:
    """Phi-4 has 10 KV heads: of GPUs with 22 GiB two hold it, but not 16 long requests, and four cannot divide it."""
    found = sized("microsoft/phi-4", "--gpu-type", "a10g", "--batch", "16", "--context", "8192")["gpuTypes"][0]
    assert not found["fits"]
    assert found["why"].startswith("TP 2: the KV cache holds ")
    assert found["why"].endswith("; TP 8 neither divides the 10 key-value heads nor is a multiple of them")


def test_lower_precision_fits_where_the_checkpoint_does_not() -> None:
    """70B on one H100 as int4; on a T4 fp8 has no kernels, and that is said."""
    found = sized("meta-llama/Llama-3.1-70B-Instruct", "--precision", "int4", "--gpu-type", "h100-sxm")
    assert (found["precision"], found["gpuTypes"][0]["tensorParallel"]) == ("int4", 1)
    old = sized(LLAMA_8B, "--precision", "fp8", "--gpu-type", "t4")["gpuTypes"][0]
    assert (old["fits"], "need Ampere or newer" in old["why"]) == (False, True)


def test_any_model_by_its_config(tmp_path: Path) -> None:
    """A config.json in a file, or on standard input."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CODE_34B))
    assert sized("-f", str(file))["model"] == "codellama/CodeLlama-34b-hf"
    assert sized("-f", "-", stdin=json.dumps(CODE_34B))["parameters"] == pytest.approx(33.7e9, rel=0.01)


def test_a_config_from_an_editor_that_marks_utf_8() -> None:
    """It is the same config."""
    assert sized("-f", "-", stdin="\ufeff" + json.dumps(CODE_34B)) == sized("-f", "-", stdin=json.dumps(CODE_34B))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "{" * 20_000], ids=["list", "object", "YAML"])
def test_what_is_nested_too_deeply_is_said_so(text: str) -> None:
    """No traceback."""
    result = size("-f", "-", stdin=text)
    assert (result.exit_code, result.output) == (1, "Error: standard input is nested too deeply\n")


def test_names_in_capitals_are_the_same_names() -> None:
    """Formats and GPU types."""
    small = ("--precision", "fp8", "--kv-cache-dtype", "fp8", "--gpu-type", "h100-sxm")
    assert sized(LLAMA_8B, *(each if each.startswith("-") else each.upper() for each in small)) == sized(
        LLAMA_8B, *small
    )


def test_a_manifest_needs_no_slo() -> None:
    """The architecture in a Model is as good as its config.json."""
    fields = {name: value for name, value in CODE_34B.items() if name not in ("_name_or_path", "architectures")}
    model = {
        "apiVersion": "goodput.dev/v1alpha1",
        "kind": "Model",
        "metadata": {"name": "code"},
        "spec": {"model": "pvc://weights/code", "slo": "none", "architecture": fields},
    }
    assert sized("-f", "-", stdin=json.dumps(model))["model"] == "pvc://weights/code"


@pytest.mark.parametrize(
    ("config", "want"),
    [
        pytest.param({**CODE_34B, "num_hidden_layers": 0}, "num_hidden_layers", id="zero layers"),
        pytest.param({**CODE_34B, "num_key_value_heads": 7}, "num_key_value_heads", id="heads that do not divide"),
        pytest.param({**CODE_34B, "hidden_size": "wide"}, "hidden_size", id="a text for a number"),
        pytest.param({**CODE_34B, "model_type": "bert"}, "model_type", id="an encoder"),
        pytest.param({**CODE_34B, "architectures": ["Qwen3Model"]}, "architectures", id="an embedding model"),
        pytest.param({}, "num_hidden_layers", id="nothing"),
        pytest.param({**CODE_34B, "text_config": 3}, "text_config: must be an object", id="a part that is no object"),
    ],
)
def test_a_wrong_config_names_the_field(config: dict[str, Any], want: str) -> None:
    """Exit code 1, one line, no traceback."""
    result = size("-f", "-", stdin=json.dumps(config))
    assert result.exit_code == 1, result.output
    assert want in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "code", "want"),
    [
        pytest.param([LLAMA_8B, "--gpu-type", "*3g.40gb"], 1, "names slices only, such as a100", id="slices"),
        pytest.param([], 2, "say what to size", id="nothing"),
        pytest.param([LLAMA_8B, "-f", "-"], 2, "say what to size", id="both"),
        pytest.param(["meta-llama/Llama-3.1-8"], 1, "Did you mean meta-llama/Meta-Llama-3.1-8B", id="a typing error"),
        pytest.param(["a/b"], 1, "give its config.json with -f", id="unknown"),
        pytest.param([LLAMA_8B, "--gpu-type", "h1000"], 1, "--gpu-type: no type is named h1000", id="no such type"),
        pytest.param([LLAMA_8B, "--precision", "fp7"], 1, "--precision: 'fp7' is not known", id="no such precision"),
        pytest.param([LLAMA_8B, "--kv-cache-dtype", "x"], 1, "--kv-cache-dtype: 'x' is not known", id="no such dtype"),
        pytest.param([LLAMA_8B, "--context", "200000"], 1, "--context: 200000 is more than", id="too long"),
        pytest.param([LLAMA_8B, "--tp", "0"], 2, "--tp", id="no ranks"),
        pytest.param([LLAMA_8B, "--batch", "nan"], 2, "--batch", id="NaN"),
    ],
)
def test_wrong_arguments_say_what_to_do(arguments: list[str], code: int, want: str) -> None:
    """The flag is named."""
    result = size(*arguments, stdin="{}")
    assert (result.exit_code, want in result.output) == (code, True), result.output


def test_heads_that_tensor_parallelism_does_not_divide() -> None:
    """28 heads over 8 ranks, and 10 of keys and values over 4."""
    for name, tensor, why in (
        ("Qwen/Qwen2.5-7B-Instruct", "8", "TP 8 does not divide the 28 attention heads"),
        ("microsoft/phi-4", "4", "TP 4 neither divides the 10 key-value heads nor is a multiple of them"),
    ):
        result = size(name, "--tp", tensor)
        assert (result.exit_code, f"--tp: {why} ({name})" in result.output) == (1, True), result.output


@pytest.mark.parametrize(
    ("profile", "want"),
    [("1g.5gb", 7), ("1g.10gb", 4), ("2g.10gb", 3), ("3g.20gb", 2), ("4g.20gb", 1), ("7g.40gb", 1)],
)
def test_a_card_holds_so_many_slices(profile: str, want: int) -> None:
    """Seven slices of compute, eight of memory."""
    found = sized("Qwen/Qwen3-0.6B", "--gpu-type", f"a100-40g-sxm-{profile}")
    assert found["gpuTypes"][0]["replicasPerCard"] == want


def test_a_wildcard_leaves_slices_out_unless_they_are_asked_for() -> None:
    """Cards, and with `--mig` their slices too; an exact name is always meant."""
    few, many = (
        {place["name"] for place in sized("Qwen/Qwen3-0.6B", "--gpu-type", "h100*", *mig)["gpuTypes"]}
        for mig in ((), ("--mig",))
    )
    assert few == {"h100-sxm", "h100-nvl", "h100-pcie"}
    assert "h100-sxm-1g.10gb" in many
