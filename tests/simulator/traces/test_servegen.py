"""ServeGen's curves: read, compressed, scaled."""

from statistics import mean

import pytest

from goodput.simulator.traces.lengths import Empirical
from goodput.simulator.traces.lines import TraceError
from goodput.simulator.traces.request import TraceRequest
from goodput.simulator.traces.servegen import Window, compressed, read_curve

HEADER = "window_start_s,rate_rps,rate_weighted_iat_cv,active_clients,mean_input_tokens_6h,mean_output_tokens_6h\n"
LENGTHS = Empirical.of([TraceRequest(0.0, 1000, 100), TraceRequest(1.0, 3000, 300)])


def written(folder, text):
    """A file with this text."""
    path = folder / "curve.csv"
    path.write_text(text)
    return path


def test_a_curve_is_read(tmp_path):
    """One window a row."""
    path = written(tmp_path, HEADER + "0,212.7800,2.118,43,360,301\n600,179.6983,1.492,40,360,301\n")

    assert read_curve(path) == (Window(212.78, 2.118, 360.0, 301.0), Window(179.6983, 1.492, 360.0, 301.0))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "lacks window_start_s"),
        (HEADER, "holds no window"),
        (HEADER + "0,1,1,1,1\n", ":2: 5 fields, the header has 6"),
        (HEADER + "0,1,1,1,1,1\n1200,1,1,1,1,1\n", ":3: window_start_s: 1200 does not follow"),
        (HEADER + "0,-1,1,1,1,1\n", ":2: rates, variations and lengths must not be negative"),
        (HEADER + "0,much,1,1,1,1\n", ":2: rate_rps: 'much' is no number"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, said):
    """By file and line."""
    with pytest.raises(TraceError) as refused:
        read_curve(written(tmp_path, text))

    assert said in str(refused.value)


def test_a_curve_is_compressed_and_scaled():
    """Rates of 100, 300 and 200 compressed 60 times to windows of 10 s with a mean of 4 requests/s: 20, 60, 40."""
    windows = (Window(100.0, 1.0, 500.0, 50.0), Window(300.0, 3.0, 500.0, 50.0), Window(200.0, 0.5, 8000.0, 20.0))
    trace = compressed(windows, LENGTHS, mean_rps=4.0, compression=60.0, seed=7)
    counts = [sum(int(each.offset_seconds / 10.0) == window for each in trace) for window in range(3)]

    assert counts == [20, 60, 40]
    assert {each.input_tokens for each in trace[:80]} == {250, 750}
    assert mean(each.input_tokens for each in trace[80:]) == pytest.approx(8000, rel=0.2)
    assert trace == compressed(windows, LENGTHS, mean_rps=4.0, compression=60.0, seed=7)
    assert trace != compressed(windows, LENGTHS, mean_rps=4.0, compression=60.0, seed=8)


def test_an_empty_curve_and_no_compression_are_refused():
    """By name."""
    with pytest.raises(ValueError, match="curve"):
        compressed((Window(0.0, 0.0, 1.0, 1.0),), LENGTHS, mean_rps=1.0, compression=1.0, seed=0)
    with pytest.raises(ValueError, match="compression"):
        compressed((Window(1.0, 0.0, 1.0, 1.0),), LENGTHS, mean_rps=1.0, compression=0.0, seed=0)
