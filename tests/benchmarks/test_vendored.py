"""The traces in the repository are the published ones, and packing loses nothing."""

import pytest
from benchmarks.autoscale import vendored

from goodput.simulator.traces.request import TraceRequest
from goodput.simulator.traces.servegen import read_curve

CHATS = (
    TraceRequest(0.0, 1200, 10, (0, 1, 2)),
    TraceRequest(1.5, 700, 20, (0, 3)),
    TraceRequest(1.5, 1600, 30, (0, 1, 2, 4)),
    TraceRequest(9.25, 500, 1, (5,)),
    TraceRequest(9.25, 512, 1, (0,)),
)


@pytest.mark.parametrize(
    ("path", "requests", "seconds", "mean_input", "mean_output"),
    [
        (vendored.AZURE_CONVERSATION, 19_366, 3_502.0, 1_155.0, 211.0),
        (vendored.AZURE_CODE, 8_819, 3_436.0, 2_048.0, 28.0),
        (vendored.MOONCAKE_CONVERSATION, 12_031, 3_537.0, 12_035.0, 343.0),
    ],
)
def test_a_trace_is_whole(path, requests, seconds, mean_input, mean_output):
    """The figures that are published with it."""
    trace = vendored.read(path)
    assert len(trace) == requests
    assert trace[-1].offset_seconds == pytest.approx(seconds, abs=1.0)
    assert sum(each.input_tokens for each in trace) / requests == pytest.approx(mean_input, abs=0.5)
    assert sum(each.output_tokens for each in trace) / requests == pytest.approx(mean_output, abs=0.5)


def test_mooncake_has_its_hashes():
    """182,790 blocks; the first one is the system prompt's, and 36.6 % of all references are to blocks seen before."""
    trace = vendored.read(vendored.MOONCAKE_CONVERSATION)
    assert trace[0].blocks == tuple(range(14))
    assert trace[1].blocks[:3] == (0, 14, 15)
    seen = {block for request in trace for block in request.blocks}
    references = sum(len(request.blocks) for request in trace)
    assert seen == set(range(182_790))
    assert 1.0 - len(seen) / references == pytest.approx(0.366, abs=0.001)


@pytest.mark.parametrize(("path", "peak_over_mean"), [(vendored.SERVEGEN_LARGE, 2.98), (vendored.SERVEGEN_SMALL, 3.30)])
def test_a_curve_is_whole(path, peak_over_mean):
    """14 days of ten-minute windows."""
    rates = [window.rps for window in read_curve(path)]
    assert len(rates) == 14 * 24 * 6
    assert max(rates) / (sum(rates) / len(rates)) == pytest.approx(peak_over_mean, abs=0.01)


def test_what_is_packed_comes_back():
    """Prompts that share none, some or all of their blocks, at equal times too."""
    assert vendored.unpacked(vendored.packed(CHATS).splitlines()) == CHATS
    plain = tuple(TraceRequest(each.offset_seconds, each.input_tokens, each.output_tokens) for each in CHATS)
    text = vendored.packed(plain)
    assert text.splitlines()[:3] == ["gap_ms,input_tokens,output_tokens", "0,1200,10", "1500,700,20"]
    assert vendored.unpacked(text.splitlines()) == plain


@pytest.mark.parametrize(
    ("blocks", "problem"),
    [((1, 3), "known block follows"), ((3, 1), "no beginning"), ((0, 1, 2), "3 blocks for 700 tokens")],
)
def test_hashes_that_are_no_tree_are_refused(blocks, problem):
    """They could not be told from how much is shared."""
    trace = (*CHATS[:2], TraceRequest(2.0, 700, 1, blocks))
    if problem == "known block follows":
        trace = (*CHATS[:2], TraceRequest(2.0, 1500, 1, (9, 1, 2)))
    with pytest.raises(ValueError, match=problem):
        vendored.packed(trace)


def test_a_packed_file_that_shares_too_much_is_refused():
    lines = ["gap_ms,input_tokens,output_tokens,back,shared_blocks", "0,600,1,0,0", "5,2000,1,1,3"]
    with pytest.raises(ValueError, match="request 2 shares 3 blocks with one that has 2"):
        vendored.unpacked(lines)
