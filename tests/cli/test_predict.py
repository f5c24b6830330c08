"""`predict`: one point by flags, or a table: the same rows in order, what is unknown with a reason."""

from __future__ import annotations

import csv
import io
import json

import pytest
from click.testing import CliRunner, Result

from goodput.cli.main import main

QWEN = "Qwen/Qwen3-32B"
COLUMNS = "model_path,system,precision,tp_size,pp_size,attention_dp_size,moe_ep_size,isl,osl,batch_size"
RESULTS = ("ttft_ms", "ttft_queue_ms", "tpot_ms", "tokens_per_second_per_gpu", "reason")
ROW = f"{QWEN},h100_sxm,bf16,2,1,1,1,4000,1000,32"


def predict(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, ["predict", *arguments], input=stdin)


def table(text: str) -> list[dict[str, str]]:
    result = predict("--points", "-", "-o", "csv", stdin=text)
    assert result.exit_code == 0, result.output
    return list(csv.DictReader(io.StringIO(result.output)))


def test_one_point_by_flags() -> None:
    """Times in milliseconds, and tokens a second and GPU."""
    result = predict(QWEN, "--gpu-type", "h100-sxm", "--tp", "2", "--batch", "32", "--input", "4000", "-o", "json")
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.output)
    assert 5 < found["tpot_ms"] < 100
    assert found["ttft_ms"] > found["ttft_queue_ms"] >= 0
    assert found["tokens_per_second_per_gpu"] > 0
    assert found["reason"] is None
    text = predict(QWEN, "--gpu-type", "h100-sxm", "--tp", "2").output
    assert text.startswith("Qwen/Qwen3-32B on 2 x h100-sxm, 1 request in flight of 1155 tokens in and 211 out:\n")


def test_a_table_comes_back_in_its_order_with_all_its_columns() -> None:
    """Rows that cannot be predicted stay, empty, with the column that is to blame."""
    rows = [
        ROW,
        ROW.replace(QWEN, "a/b"),
        ROW.replace("h100_sxm", "abacus"),
        ROW.replace("bf16", "fp7"),
        ROW.replace(",32", ",0"),
        ROW.replace(",32", ",nan"),
        ROW.replace(",2,1,1,1,", ",3,1,1,1,"),
        ROW.replace("h100_sxm,bf16,2", "t4,bf16,1"),
        ROW,
    ]
    text = "\n".join([f"note,{COLUMNS}", *(f"row {number},{row}" for number, row in enumerate(rows))])
    found = table(text)
    assert [row["note"] for row in found] == [f"row {number}" for number in range(len(rows))]
    wants = ["", "model_path", "system", "precision", "batch_size", "batch_size", "tp_size", "tp_size", ""]
    assert [row["reason"][: len(want)] for row, want in zip(found, wants, strict=True)] == wants
    for row, want in zip(found, wants, strict=True):
        assert all((row[name] == "") is bool(want) for name in RESULTS[:-1])
    assert found[0] == {**found[-1], "note": "row 0"}


def test_a_table_from_a_spreadsheet() -> None:
    """A mark of its encoding, and lines that end as elsewhere."""
    assert table(f"\ufeff{COLUMNS}\r\n{ROW}\r\n") == table(f"{COLUMNS}\n{ROW}\n")


def test_what_was_predicted_for_is_said() -> None:
    """The type that a short name stands for, all GPUs of a replica, and a slice of a card."""
    assert "on 8 x h100-sxm, " in predict(QWEN, "--gpu-type", "H100_SXM", "--tp", "2", "--dp", "4").output
    assert "on 8 x h100-sxm, " in predict(QWEN, "--gpu-type", "h100_sxm", "--tp", "4", "--pp", "2").output
    assert "on 1 x h100-sxm-1g.20gb, " in predict("Qwen/Qwen3-8B", "--gpu-type", "h100-sxm-1g.20gb").output


@pytest.mark.parametrize(
    ("system", "degrees", "reason"),
    [
        ("h100_sxm", "8,1,1,1", ""),
        (
            "h100_sxm",
            "16,1,1,1",
            "tp_size: 16 ranks are more than the 8 GPUs of a node of h100-sxm: how fast a network is",
        ),
        ("h100_sxm", "8,1,2,1", "attention_dp_size: 16 ranks are more than the 8 GPUs of a node of h100-sxm"),
        ("h100_sxm", "1,1,16,16", "attention_dp_size: 16 ranks are more than the 8 GPUs of a node of h100-sxm"),
        ("h100_sxm", "8,2,1,1", ""),
        ("a100_pcie", "4,1,1,1", ""),
        ("a100_pcie", "8,1,1,1", "tp_size: 8 ranks are more than the 4 GPUs of a node of a100-80g-pcie"),
        ("gb200", "16,1,1,1", ""),
        ("gb200", "64,1,2,64", "attention_dp_size: 128 ranks are more than the 72 GPUs that links of gb200 join"),
        ("gh200-96g", "2,1,1,1", "tp_size: 2 ranks are more than the 1 GPU of a node of gh200-96g"),
        ("h100-sxm-3g.40gb", "2,1,1,1", "tp_size: 2 ranks are more than the 1 GPU of a node of h100-sxm-3g.40gb"),
    ],
)
def test_no_layer_is_exchanged_over_a_network(system: str, degrees: str, reason: str) -> None:
    """Ranks beyond a node, or beyond the rack of GB200 that links join: empty, with the reason; stages may be apart."""
    row = ROW.replace("h100_sxm", system).replace("2,1,1,1", degrees).replace("bf16", "fp8")
    (found,) = table(f"{COLUMNS}\n{row}\n")
    assert found["reason"][: len(reason) or 1] == reason
    assert all((found[name] == "") is bool(reason) for name in RESULTS[:-1])


def test_ranks_over_a_network_are_named_by_their_flag() -> None:
    """One point fails, and says what to change."""
    result = predict(QWEN, "--gpu-type", "h100-sxm", "--tp", "16")
    assert result.exit_code == 1
    assert result.output.startswith("Error: --tp: 16 ranks are more than the 8 GPUs of a node of h100-sxm")


def test_a_request_of_one_token_has_no_time_per_token() -> None:
    """As the engine counts it."""
    (found,) = table(f"{COLUMNS}\n{ROW.replace(',1000,32', ',1,32')}")
    assert (float(found["tpot_ms"]), found["reason"]) == (0.0, "")
    assert float(found["tokens_per_second_per_gpu"]) > 0.0


def test_more_in_flight_is_slower_for_each_and_faster_for_all() -> None:
    """TPOT and throughput grow with concurrency."""
    found = table("\n".join([COLUMNS, *(ROW.replace(",32", f",{batch}") for batch in (1, 8, 64))]))
    for name in ("tpot_ms", "tokens_per_second_per_gpu"):
        values = [float(row[name]) for row in found]
        assert values == sorted(values)


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "want"),
    [
        pytest.param([], "", 2, "say what to predict", id="nothing"),
        pytest.param([QWEN, "--points", "-"], COLUMNS, 2, "say what to predict", id="both"),
        pytest.param([QWEN], "", 2, "--gpu-type: say on which", id="on nothing"),
        pytest.param([QWEN, "--gpu-type", "abacus"], "", 1, "--gpu-type: 'abacus' is no built-in", id="no such type"),
        pytest.param(["Qwen/Qwen3-32", "--gpu-type", "l4"], "", 1, f"Did you mean {QWEN}", id="a typing error"),
        pytest.param([QWEN, "--gpu-type", "l4", "--precision", "x"], "", 1, "--precision: 'x'", id="no such precision"),
        pytest.param([QWEN, "--gpu-type", "h100-sxm", "--tp", "3"], "", 1, "--tp: TP 3 does not divide", id="heads"),
        pytest.param([QWEN, "--gpu-type", "h100-sxm", "--pp", "65"], "", 1, "--pp: PP 65 is more than", id="stages"),
        pytest.param([QWEN, "--gpu-type", "l4", "--input", "1e6"], "", 1, "--input-tokens: 1000211", id="too long"),
        pytest.param([QWEN, "--gpu-type", "t4"], "", 1, "--tp: Qwen/Qwen3-32B on 1 x t4", id="too large"),
        pytest.param(["--points", "-"], "a,b\n1,2", 1, "lacks the columns model_path, system", id="other columns"),
        pytest.param(["--points", "-"], "", 1, "lacks the columns", id="an empty table"),
        pytest.param(["--points", "-"], f"{COLUMNS},isl", 1, "has the columns isl twice", id="a column twice"),
        pytest.param([QWEN, "--gpu-type", "l4", "--dp", "9999"], "", 2, "--dp", id="too many ranks"),
        pytest.param([QWEN, "--gpu-type", "l4", "--output-tokens", "0.5"], "", 2, "less than one token", id="no token"),
        pytest.param(["Qwen3-32B", "--gpu-type", "l4"], "", 1, f"Did you mean {QWEN}", id="no owner"),
        pytest.param(["a/b", "--gpu-type", "l4"], "", 1, "predict knows no others", id="no such model"),
        pytest.param(["--points", "-"], f"{COLUMNS}\n1,2", 1, "line 2 of standard input has not 10", id="a short row"),
    ],
)
def test_wrong_arguments_say_what_to_do(arguments: list[str], stdin: str, code: int, want: str) -> None:
    """The flag or the column is named."""
    result = predict(*arguments, stdin=stdin)
    assert (result.exit_code, want in result.output) == (code, True), result.output
