"""Rows of benchmark tables and their predictions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput.perfmodel.points import COLUMNS, RESULTS, Unpredictable, gpu_of, predict, predict_rows, read_point
from goodput.perfmodel.weights import Parallel

ROW = {
    "model_path": "meta-llama/Llama-3.1-70B",
    "system": "h200_sxm",
    "precision": "fp8",
    "tp_size": "2",
    "pp_size": "1",
    "attention_dp_size": "1",
    "moe_ep_size": "1",
    "isl": "1024",
    "osl": "1024",
    "batch_size": "16",
}


def answer(**changes: str) -> dict[str, str]:
    return predict_rows([ROW | changes])[0]


def test_a_row_is_answered_in_the_columns_of_benchmarks() -> None:
    """Measured: TTFT 190 ms, TPOT 15.65 ms."""
    found = answer()
    assert list(found) == [*COLUMNS, *RESULTS]
    assert 0.85 * 15.65 < float(found["tpot_ms"]) < 1.15 * 15.65
    assert 0.6 * 190 < float(found["ttft_ms"]) < 1.4 * 190
    assert 0.0 < float(found["ttft_queue_ms"]) < float(found["ttft_ms"])
    seconds = (float(found["ttft_ms"]) - float(found["ttft_queue_ms"]) + 1023 * 0.9 * float(found["tpot_ms"])) / 1e3
    assert float(found["tokens_per_second_per_gpu"]) == pytest.approx(16 * 1024 * 0.9 / seconds / 2, rel=0.02)
    assert found["reason"] == ""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model_path": "nobody/knows-it"}, "model_path: 'nobody/knows-it' is not in the catalogue"),
        ({"system": "abacus"}, "system: 'abacus'"),
        ({"system": ""}, "system: ''"),
        ({"precision": "fp3"}, "precision: 'fp3'"),
        ({"tp_size": "two"}, "tp_size: 'two' is not a number"),
        ({"tp_size": "nan"}, "tp_size: 'nan'"),
        ({"attention_dp_size": "2000"}, "attention_dp_size: '2000' is not a whole number from 1 to 1,024"),
        ({"model_path": "moonshotai/Kimi-K2-Instruct", "precision": "bf16"}, "precision: bf16 is wider than the fp8"),
        ({"isl": ""}, "isl: is missing"),
        ({"osl": "0"}, "osl: '0'"),
        ({"batch_size": "-4"}, "batch_size: '-4'"),
        ({"batch_size": "1.5"}, "batch_size: '1.5'"),
        ({"precision": "", "tp_size": "1", "system": "h100_sxm"}, "tp_size: meta-llama/Llama-3.1-70B on 1 x h100-sxm"),
        ({"tp_size": "3"}, "tp_size: TP 3 does not divide the 64 attention heads"),
        ({"tp_size": "4", "model_path": "microsoft/phi-4"}, "tp_size: TP 4 neither divides the 10 key-value heads"),
        ({"pp_size": "81"}, "pp_size: PP 81 is more than the 80 layers"),
        ({"isl": "200000"}, "isl: 201024 tokens in and out are more than the 131072"),
        ({"system": "t4", "precision": "fp8"}, "precision: nvidia/Llama-3.1-70B-FP8 on t4: weights in fp8 need"),
    ],
)
def test_what_cannot_be_predicted_is_empty_with_a_reason(change: dict[str, str], says: str) -> None:
    found = answer(**change)
    assert found["reason"].startswith(says)
    assert {found[name] for name in RESULTS if name != "reason"} == {""}


def test_rows_keep_their_order_and_their_own_columns() -> None:
    rows = [ROW | {"batch_size": str(batch), "note": f"row {batch}"} for batch in (8, 4, 2)]
    assert [(each["batch_size"], each["note"]) for each in predict_rows(rows)] == [
        ("8", "row 8"),
        ("4", "row 4"),
        ("2", "row 2"),
    ]


@given(st.dictionaries(st.sampled_from(COLUMNS), st.text(max_size=8)))
def test_any_text_is_answered(changes: dict[str, str]) -> None:
    found = answer(**changes)
    assert bool(found["reason"]) != bool(found["tpot_ms"])


def test_equal_degrees_of_tensor_and_data_parallelism_speak_of_the_same_gpus() -> None:
    sparse = ROW | {"model_path": "MiniMaxAI/MiniMax-M2.5", "moe_ep_size": "16"}
    assert read_point(sparse | {"tp_size": "4", "attention_dp_size": "4"}).parallel == Parallel(data=4, expert=True)
    other = read_point(sparse | {"tp_size": "2", "attention_dp_size": "4"}).parallel
    assert (other, other.gpus) == (Parallel(tensor=2, data=4, expert=True), 8)


@pytest.mark.parametrize(
    ("system", "want"),
    [
        ("h100_sxm", "h100-sxm"),
        ("b200_sxm", "b200"),
        ("a100_sxm", "a100-80g-sxm"),
        ("L40S", "l40s"),
        ("gb200", "gb200"),
        ("h100-sxm-3g.40gb", "h100-sxm-3g.40gb"),
    ],
)
def test_names_of_benchmarks_lead_to_catalogue_types(system: str, want: str) -> None:
    assert gpu_of(system).name == want


def test_more_in_flight_gives_more_tokens_until_the_kv_cache_is_full() -> None:
    tokens = [float(answer(batch_size=str(batch))["tokens_per_second_per_gpu"]) for batch in (1, 8, 64, 256)]
    assert tokens == sorted(tokens)
    waiting = predict(read_point(ROW | {"batch_size": "4000"}))
    assert waiting.ttft_seconds > 10.0


def test_a_point_that_is_not_benchmarked_has_the_lengths_it_says() -> None:
    point = read_point(ROW | {"isl": "8192"})
    assert predict(point).tpot_seconds > predict(point, mean_length=0.9).tpot_seconds


def test_a_type_that_is_no_text_of_a_table_is_refused() -> None:
    with pytest.raises(Unpredictable, match="model_path"):
        predict(read_point(ROW | {"model_path": ""}))


def test_a_name_of_several_types_is_refused_with_their_names():
    with pytest.raises(Unpredictable, match=r"h100-nvl.*h100-sxm"):
        gpu_of("h100")
    assert gpu_of("h100_sxm").name == "h100-sxm"
