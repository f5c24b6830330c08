"""Questions that people bring, and the text that answers them. The words must come out of the numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.cli.builders import manifests

from goodput.cli.main import main

LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_13B = "meta-llama/Llama-2-13b-hf"
LLAMA_70B = "meta-llama/Llama-3.1-70B-Instruct"
# Structure of CodeLlama-34b, from its config.json.
CODE_34B = {
    "_name_or_path": "codellama/CodeLlama-34b-hf",
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 22016,
    "num_hidden_layers": 48,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 16384,
}


def told(*arguments: str, stdin: str) -> str:
    result = CliRunner().invoke(main, list(arguments), input=stdin)
    assert result.exit_code == 0, result.output
    return result.output


def plan(stdin: str, *arguments: str) -> str:
    return told("plan", "-f", "-", *arguments, stdin=stdin)


def planned(stdin: str, *arguments: str) -> list[dict[str, Any]]:
    return list(json.loads(plan(stdin, *arguments, "-o", "json")))


def in_order(text: str, *parts: str) -> None:
    """All parts are there, each after the one before."""
    at = 0
    for part in parts:
        found = text.find(part, at)
        assert found >= 0, f"{part!r} is not there, or too early, in:\n{text}"
        at = found + len(part)


def test_first_tokens_come_in_time_but_the_others_do_not() -> None:
    """Decode is bandwidth-bound: neither replicas nor FLOP/s help; bandwidth does, then fewer bytes, then patience."""
    text = plan(
        manifests(gpuTypes=["l4"], parallelism={"tensor": 1}), "--rate", "2", "--input", "300", "--output-tokens", "200"
    )
    in_order(
        text,
        "No option meets the SLO. The nearest is l4 TP1: TPOT is ",
        "TPOT is missed, TTFT is not. Decode is bandwidth-bound: each token reads 14.0 GiB of weights",
        "more FLOP/s do not help.",
        "More replicas do not help: a request that is alone on l4 TP1 already takes ",
        "What helps, in this order:",
        "1. l4 TP2: more memory bandwidth for one request: TPOT ",
        "2. GPUs with more memory bandwidth: ",
        "fp8 weights on l4 TP1 (answers may change: a canary, checked before traffic moves): TPOT ",
        "int4 weights on l4 TP1",
        "in the SLO: TPOT ",
    )


def test_long_documents_are_late_at_the_first_token() -> None:
    """Prefill of one GPU is compute-bound: FLOP/s help; of eight without links communication is what takes the time."""
    asked = ("--rate", "1", "--input", "6000", "--output-tokens", "200")
    in_order(
        plan(manifests(gpuTypes=["a10g"], parallelism={"tensor": 1, "pipeline": 1}), *asked),
        "No option meets the SLO. The nearest is a10g TP1: TTFT is ",
        "Prefill is compute-bound: a prompt of 6000 tokens takes ",
        "whatever the memory bandwidth.",
        "What helps, in this order:",
        "GPUs with more FLOP/s: ",
        "in the SLO: TTFT ",
    )
    in_order(
        plan(manifests(gpuTypes=["a10g"]), *asked),
        "No option meets the SLO. The nearest is a10g TP8: TTFT is ",
        "Prefill is bound by communication: a prompt of 6000 tokens waits while 8 ranks exchange what they computed, ",
        "What helps, in this order:",
        "fewer, larger GPUs to a replica: ",
        "a prefix cache that holds ",
        "M tokens of prefill a day",
        "in the SLO: TTFT ",
    )


def test_a_nightly_batch_beside_an_online_chat() -> None:
    """One has a latency, the other a deadline: pools of their own are cheaper than one fleet under the chat's SLO."""
    chat, night = (list(yaml.safe_load_all(manifests(LLAMA_70B, slo))) for slo in (None, {"e2e": "4h"}))
    night[0]["metadata"]["name"] = night[1]["spec"]["slo"] = "tonight"
    chat[1]["metadata"]["name"], night[1]["metadata"]["name"] = "chat", "nightly"
    both = yaml.safe_dump_all([*chat, *night])
    text = plan(both, "--rate", "20")
    in_order(
        text,
        "chat: meta-llama/Llama-3.1-70B-Instruct under SLO wanted (TTFT 500 ms, TPOT 50 ms for 95% of requests)",
        "People read a token in about 120 ms",
        "nightly: meta-llama/Llama-3.1-70B-Instruct under SLO tonight (end to end 4 h for 95% of requests)",
        "Only whole requests have a deadline, and a long one",
        "Both Models: ",
        "nightly in a pool of its own costs ",
        " % less; in the pool of chat, under its SLO, the same requests would cost ",
    )
    online, batch = planned(both, "--rate", "20")
    assert (online["name"], batch["name"]) == ("chat", "nightly")
    cheap, dear = (each["options"][0]["fleet"]["costPerMillionOutputTokens"] for each in (batch, online))
    assert cheap < 0.8 * dear


def test_a_search_api_against_a_document_bot() -> None:
    """Short answers under a tight first token, long inputs under a patient one: other GPUs, other prices a request."""
    search = manifests(LLAMA_8B, {"ttft": "150ms"})
    documents = manifests(LLAMA_8B, {"ttft": "5s", "tpot": "50ms"})
    (quick,) = planned(search, "--rate", "50", "--input", "300", "--output-tokens", "10")
    (long,) = planned(documents, "--rate", "1", "--input", "30000", "--output-tokens", "500")
    first, second = quick["options"][0]["fleet"], long["options"][0]["fleet"]
    assert second["costPerThousandRequests"] > 20 * first["costPerThousandRequests"]
    assert (
        quick["options"][0]["capacity"]["requestsPerSecond"] > 20 * long["options"][0]["capacity"]["requestsPerSecond"]
    )
    text = plan(search, "--rate", "50", "--input", "300", "--output-tokens", "10")
    assert "Time to first token binds at " in text
    assert "People read" not in text
    # A prompt of 30,000 tokens holds as much KV cache as a hundred searches.
    assert long["options"][0]["memory"]["maxModelLen"] >= 30_500


@pytest.mark.parametrize(
    ("gpu", "want"),
    [
        # bf16, fp8, int4 on one GPU of 24, 40, 48 and 80 GB.
        pytest.param("l4", {"8B": "bf16", "13B": "fp8", "34B": "int4", "70B": None}, id="24 GB"),
        pytest.param("a100-40g-sxm", {"8B": "bf16", "13B": "bf16", "34B": "fp8", "70B": None}, id="40 GB"),
        pytest.param("l40s", {"8B": "bf16", "13B": "bf16", "34B": "fp8", "70B": "int4"}, id="48 GB"),
        pytest.param("h100-sxm", {"8B": "bf16", "13B": "bf16", "34B": "bf16", "70B": "fp8"}, id="80 GB"),
    ],
)
def test_what_one_gpu_holds(gpu: str, want: dict[str, str | None], tmp_path: Path) -> None:
    """The widest precision in which 8B, 13B, 34B and 70B fit on one GPU, with a request of 4,096 tokens."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CODE_34B))
    models = {"8B": [LLAMA_8B], "13B": [LLAMA_13B], "34B": ["-f", str(config)], "70B": [LLAMA_70B]}
    found: dict[str, str | None] = {}
    for size, model in models.items():
        fitting = [
            p for p in ("bf16", "fp8", "int4") if _fits(*model, "--gpu-type", gpu, "--tp", "1", "--precision", p)
        ]
        found[size] = fitting[0] if fitting else None
    assert found == want


def _size(*arguments: str) -> dict[str, Any]:
    (found,) = json.loads(told("size", *arguments, "-o", "json", stdin=""))
    return dict(found)


def _fits(*arguments: str) -> bool:
    return bool(_size(*arguments)["gpuTypes"][0]["fits"])


def test_three_13b_on_one_card_of_40_gb_or_one_34b(tmp_path: Path) -> None:
    """Slices for three 13B in int4 have no room for 4,096 tokens; those for two have, and the card for one 34B."""
    three = told("size", LLAMA_13B, "--precision", "int4", "--gpu-type", "a100-40g-sxm-2g.10gb", stdin="")
    assert "is left for the KV cache, which holds a request of 1072 tokens, not of 4096" in three
    short = _size(LLAMA_13B, "--precision", "int4", "--context", "1024", "--gpu-type", "a100-40g-sxm-2g.10gb")
    assert [short["gpuTypes"][0][key] for key in ("replicasPerCard", "sequencesAtOnce")] == [3, 1]
    two = _size(LLAMA_13B, "--precision", "int4", "--gpu-type", "a100-40g-sxm-3g.20gb")["gpuTypes"][0]
    assert (two["replicasPerCard"], two["sequencesAtOnce"] >= 3) == (2, True)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CODE_34B))
    one = _size("-f", str(config), "--precision", "int4", "--gpu-type", "a100-40g-sxm")["gpuTypes"][0]
    assert (one["fits"], one["sequencesAtOnce"] > two["sequencesAtOnce"]) == (True, True)


def test_a_code_review_bot_that_quotes_its_input() -> None:
    """N-gram drafts cost nothing to make and are accepted often: fewer GPUs, and the answer is the same."""
    workload = {"requestsPerSecond": "4", "inputTokens": 3000, "outputTokens": 800}
    review = {"gpuTypes": ["l40s", "h100-sxm"], "workload": workload, "speculative": {"method": "ngram"}}
    text = plan(manifests(LLAMA_8B, **review))
    in_order(
        text,
        "4 requests/s of 3000 tokens in and 800 out",
        "Chosen: ",
        " ngram",
        "Speculation on h100-sxm TP1 ngram",
        " x faster at a batch of ",
        " tokens a step)",
        "That is believed of answers that repeat their prompts; free chat gains next to nothing.",
        "Without it the cheapest fleet is ",
    )
    (quoting,) = planned(manifests(LLAMA_8B, **review))
    (plain,) = planned(manifests(LLAMA_8B, **{**review, "speculative": {"method": "ngram", "mode": "Off"}}))
    best, other = quoting["options"][0], plain["options"][0]
    assert best["speculation"]["method"] == "ngram"
    assert other["speculation"] is None
    assert best["fleet"]["costPerHour"] < other["fleet"]["costPerHour"]


def test_a_chat_that_quotes_nothing_is_told_why_drafts_do_not_help() -> None:
    """Hardly any draft is accepted: Auto leaves it off, and says what would have to be accepted."""
    speculative = {"method": "ngram", "acceptance": "2%"}
    text = plan(manifests(LLAMA_8B, gpuTypes=["h100-sxm"], speculative=speculative), "--rate", "20")
    assert "Speculation on h100-sxm TP1: ngram with " in text
    assert "would have to be accepted" in text or "cannot help" in text
    given = {"speculative": {"method": "ngram", "acceptance": "80%"}, "gpuTypes": ["h100-sxm"]}
    assert "That is believed" not in plan(manifests(LLAMA_8B, **given), "--rate", "2")
    (found,) = planned(manifests(LLAMA_8B, gpuTypes=["h100-sxm"], speculative=speculative), "--rate", "20")
    assert found["options"][0]["speculation"] is None


def test_reasoning_is_part_of_the_expected_load() -> None:
    """`workload.reasoningTokens` are generated before the first visible token."""
    workload = {"requestsPerSecond": "2", "inputTokens": 500, "outputTokens": 300, "reasoningTokens": 2000}
    text = plan(manifests(LLAMA_8B, gpuTypes=["h100-sxm"], workload=workload))
    in_order(
        text,
        "2 requests/s of 500 tokens in and 2300 out",
        "Time to the first visible token is ",
        "2000 tokens of reasoning at ",
        "The SLO's TTFT bounds the first token of reasoning, which nobody sees.",
    )
