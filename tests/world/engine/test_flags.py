"""The command line of `vllm serve`: real names accepted, everything else refused as vLLM refuses it."""

import pytest

from goodput_world.engine.flags import human_int, parse, rows


def test_the_table_holds_every_flag_once():
    """320 flags of vLLM 0.33, help left out, no name twice."""
    names = [name for name, _, _, _ in rows()]

    assert len(names) == 320
    assert len(set(names)) == 320


def test_every_flag_of_the_table_is_accepted():
    """All in one command, with a value of each one's kind."""
    values = {"int": "1", "human": "1k", "float": "0.5", "json": "{}", "list": "a", "text": "a", "optional": "a"}
    arguments = ["model"]
    for name, _, kind, choices in rows():
        value = choices.split(",")[0] if kind == "choice" else values.get(kind)
        arguments += [name] if value is None else [name, value]
    parsed = parse(arguments)

    assert [name for name, _, _, _ in rows() if getattr(parsed, name.lstrip("-").replace("-", "_")) is None] == []


def refused(arguments, capsys):
    """The text of a usage error."""
    with pytest.raises(SystemExit) as stopped:
        parse(arguments)
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_an_unknown_flag_is_refused_in_argparse_words(capsys):
    """Exit code 2 and the message that vLLM prints."""
    assert "vllm: error: unrecognized arguments: --max-batch 3" in refused(["m", "--max-batch", "3"], capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dtype", "int3"], "argument --dtype: invalid choice: 'int3'"),
        (["--kv-cache-dtype", "fp9"], "argument --kv-cache-dtype: invalid choice: 'fp9'"),
        (["--port", "http"], "argument --port: invalid int value: 'http'"),
        (["--gpu-memory-utilization", "most"], "invalid float value: 'most'"),
        (["--kv-transfer-config", "{"], "argument --kv-transfer-config: Value { cannot be converted"),
        (["--max-model-len", "1.5K"], "argument --max-model-len: Decimals are not allowed"),
        (["--enable-prefix-caching=true"], "ignored explicit argument 'true'"),
        (["--swap-space", "4"], "unrecognized arguments: --swap-space"),
        (["--max-num", "4"], "ambiguous option: --max-num"),
        (["--port"], "argument --port: expected one argument"),
    ],
)
def test_a_bad_value_is_refused(arguments, message, capsys):
    """By choice, type, JSON, unit; removed flags; ambiguous prefixes."""
    assert message in refused(["m", *arguments], capsys)


def test_negation_takes_both_spellings():
    """`--disable-x` is 0.33's own, `--no-enable-x` accepted on 0.32 and 0.33."""
    assert parse(["m", "--no-enable-prefix-caching"]).enable_prefix_caching is False
    assert parse(["m", "--disable-prefix-caching"]).enable_prefix_caching is False
    assert parse(["m", "--no-async-scheduling"]).async_scheduling is False
    assert parse(["m", "--enable-prefix-caching"]).enable_prefix_caching is True
    assert parse(["m"]).enable_prefix_caching is None


def test_underscores_prefixes_and_short_names_are_accepted():
    """As argparse in vLLM does."""
    parsed = parse(["m", "--max_model_len", "32k", "--tensor-par", "2", "--served-model-name", "a", "b"])

    assert (parsed.max_model_len, parsed.tensor_parallel_size, parsed.served_model_name) == (32_000, 2, ["a", "b"])
    assert parse(["m", "-tp", "4"]).tensor_parallel_size == 4
    assert parse(["m", "--max-model-len", "auto"]).max_model_len == -1


def test_json_flags_take_dotted_keys():
    """`--x.key value`, nested and as list entries."""
    parsed = parse(["m", "--kv-transfer-config.kv_role", "kv_both", "--kv-transfer-config.a.b+", "1"])

    assert parsed.kv_transfer_config == {"kv_role": "kv_both", "a": {"b": [1]}}


@pytest.mark.parametrize(
    ("text", "number"),
    [("32k", 32_000), ("1K", 1_024), ("2.5k", 2_500), ("20G", 20 * 2**30), ("100", 100), ("0", 0), ("-1", -1)],
)
def test_human_numbers(text, number):
    """Lower case counts in thousands, upper case in 1,024."""
    assert human_int(text) == number
