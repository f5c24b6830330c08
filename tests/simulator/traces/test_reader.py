"""Readers of traces: what is read, and what is said of a line that cannot be."""

import gzip
import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput.simulator.traces.lines import TraceError
from goodput.simulator.traces.reader import read_trace
from goodput.simulator.traces.request import TraceRequest

HASHED = "seconds,input_tokens,output_tokens,hash_ids\n"
GOOD_LINE = '{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [0]}\n'
TOKENS = st.integers(1, 200_000)
OFFSETS = st.lists(st.integers(0, 10**7), min_size=1, max_size=30).map(
    lambda gaps: [sum(gaps[: n + 1]) - gaps[0] for n in range(len(gaps))]
)


def written(folder, text, name="trace.csv"):
    """A file with this text."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def requests_of(draw, offsets, blocks):
    """A request at each offset (thousandths of a second)."""
    made = []
    for offset in offsets:
        given = draw.draw(TOKENS)
        hashes = tuple(range(-(-given // 512))) if blocks else ()
        made.append(TraceRequest(offset / 1000, given, draw.draw(TOKENS), hashes))
    return tuple(made)


@given(st.data(), OFFSETS, st.booleans())
def test_what_is_written_as_csv_is_read_back(tmp_path_factory, data, offsets, blocks):
    """With block hashes and without."""
    requests = requests_of(data, offsets, blocks)
    lines = ["seconds,input_tokens,output_tokens" + (",hash_ids" if blocks else "")]
    for request in requests:
        hashes = ["" + " ".join(map(str, request.blocks))] if blocks else []
        cells = [f"{request.offset_seconds + 17:.3f}", str(request.input_tokens), str(request.output_tokens), *hashes]
        lines.append(",".join(cells))
    read = read_trace(written(tmp_path_factory.mktemp("csv"), "\n".join(lines)))

    assert [request.offset_seconds for request in read] == pytest.approx([each.offset_seconds for each in requests])
    assert [(each.input_tokens, each.output_tokens, each.blocks) for each in read] == [
        (each.input_tokens, each.output_tokens, each.blocks) for each in requests
    ]


@given(st.data(), OFFSETS)
def test_what_is_written_as_mooncake_is_read_back(tmp_path_factory, data, offsets):
    """Milliseconds, one JSON object a line, gzip."""
    requests = requests_of(data, offsets, True)
    text = "\n".join(
        json.dumps(
            {
                "timestamp": round(each.offset_seconds * 1000),
                "input_length": each.input_tokens,
                "output_length": each.output_tokens,
                "hash_ids": list(each.blocks),
            }
        )
        for each in requests
    )
    path = tmp_path_factory.mktemp("mooncake") / "trace.jsonl.gz"
    path.write_bytes(gzip.compress(text.encode()))

    assert read_trace(path) == requests


@given(st.text(string.printable, max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))
def test_any_file_is_read_or_refused_by_name(tmp_path_factory, text):
    """Nothing but a TraceError, which names the file."""
    path = written(tmp_path_factory.mktemp("any"), text)
    said = str(path)
    try:
        read_trace(path)
    except TraceError as error:
        said = str(error)

    assert said.startswith(str(path))


@given(
    st.sampled_from(["seconds,input_tokens,output_tokens", "arrived_at,num_prefill_tokens,num_decode_tokens"]),
    st.integers(0, 20),
    st.sampled_from(["x,1,1", "1,1", "1,1,1,1", "1,0,1", "1,1,-3", "1,1.5,1", "nan,1,1", "1,,1", "inf,1,1", '"1,1,1']),
)
def test_a_broken_line_is_named_by_its_number(tmp_path_factory, header, good, broken):
    """Wherever it stands; blank lines count too."""
    text = "\n".join([header, "", *["0.5,10,20"] * good, broken, "0.7,1,1"])
    with pytest.raises(TraceError) as refused:
        read_trace(written(tmp_path_factory.mktemp("broken"), text))

    assert refused.value.line == good + 3
    assert f"trace.csv:{good + 3}: " in str(refused.value)


def test_azure_is_read_as_published(tmp_path):
    """Seven digits of a second, columns by name, order by time."""
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:50.9951690,396,109\n"
        "2023-11-16 18:15:46.6805900,374,44\n"
    )
    read = read_trace(written(tmp_path, text))

    assert [(each.input_tokens, each.output_tokens) for each in read] == [(374, 44), (396, 109)]
    assert read[0].offset_seconds == 0.0
    assert read[1].offset_seconds == pytest.approx(4.314579)


def test_azure_times_with_a_zone_are_read(tmp_path):
    """As in the trace of 2024."""
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00.009930+00:00,2162,5\n"
        "2024-05-10 00:00:00.017335+00:00,2399,6\n"
    )

    assert read_trace(written(tmp_path, text))[1].offset_seconds == pytest.approx(0.007405)


def test_columns_may_stand_in_any_order_with_others_between(tmp_path):
    """A byte order mark, Windows line ends and spaces do not matter."""
    text = "\ufeffnum_decode_tokens, session ,arrived_at,num_prefill_tokens\r\n5,a,1.5,7\r\n6.0,b,2.0,8\r\n"

    assert read_trace(written(tmp_path, text)) == (TraceRequest(0.0, 7, 5), TraceRequest(0.5, 8, 6))


@pytest.mark.parametrize("hashes", ["1 2", "1;2", "1|2", '"1,2"', '"[1, 2]"'])
def test_hashes_may_be_separated_in_several_ways(tmp_path, hashes):
    """Inside a cell."""
    text = HASHED + f"0,600,5,{hashes}\n"

    assert read_trace(written(tmp_path, text))[0].blocks == (1, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "trace.csv: holds no request"),
        ("seconds,input_tokens,output_tokens\n", "trace.csv: holds a header and no request"),
        ("when,in,out\n1,2,3\n", "trace.csv:1: 'when,in,out' is no known header"),
        ("seconds,seconds,input_tokens,output_tokens\n", "trace.csv:1: the header names seconds twice"),
        ("seconds,input_tokens,output_tokens\n0,5\n", "trace.csv:2: 2 fields, the header has 3"),
        ("seconds,input_tokens,output_tokens\n0,5,0\n", "output_tokens: '0' is no whole number of at least 1"),
        ("seconds,input_tokens,output_tokens\nsoon,5,1\n", "seconds: 'soon' is no number of seconds"),
        (
            HASHED + "0,600,1,7\n",
            "1 blocks of 512 tokens do not cover an input of 600",
        ),
        (
            "seconds,input_tokens,output_tokens\n0,5,1\n1e18,5,1\n7,5,1\n",
            "trace.csv:3: a request comes more than 366 days after the first one",
        ),
        (HASHED + "0,6,1,7a\n", "hash_ids: '7a' is no whole number"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n", "TIMESTAMP: 'yesterday' is no time like"),
        ('{"timestamp": 1}\n', "trace.csv:1: lacks input_length, output_length, hash_ids"),
        (
            GOOD_LINE + "[]\n",
            "trace.csv:2: is no JSON object",
        ),
        (
            GOOD_LINE + '{"tim\n',
            "trace.csv:2: is no JSON",
        ),
        (
            '{"timestamp": true, "input_length": 1, "output_length": 1, "hash_ids": [0]}\n',
            "timestamp: True is no number of milliseconds",
        ),
        (
            '{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": 7}\n',
            "hash_ids: 7 is no list of hashes",
        ),
        (
            '{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [0.5]}\n',
            "hash_ids: 0.5 is no whole number",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, said):
    """With the field and the value."""
    with pytest.raises(TraceError) as refused:
        read_trace(written(tmp_path, text))

    assert said in str(refused.value)


def test_what_is_no_text_and_what_is_no_whole_gzip_is_refused(tmp_path):
    """The line with the wrong bytes; the end that is missing."""
    path = tmp_path / "trace.csv"
    path.write_bytes(b"seconds,input_tokens,output_tokens\n0,5,1\n\xff\xfe,5,1\n")
    with pytest.raises(TraceError, match=r":3: is no UTF-8 text"):
        read_trace(path)
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(gzip.compress(b"seconds,input_tokens,output_tokens\n" + b"0,5,1\n" * 9999)[:-20])
    with pytest.raises(TraceError, match="gzip data is damaged"):
        read_trace(cut)
    with pytest.raises(TraceError, match="No such file"):
        read_trace(tmp_path / "none.csv")
