"""The lean HTTP and event-stream reader, cut at every byte."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput_world.replay.response import ResponseError, StreamedResponse

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKEN = b'data: {"choices":[{"index":0,"text":" \\"error\\" x"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens": 12}}\n\n'
DONE = b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


WHOLE = HEAD + chunk(TOKEN) * 3 + chunk(TOKEN + TOKEN[:20]) + chunk(TOKEN[20:] + USAGE) + chunk(DONE) + b"0\r\n\r\n"


@given(st.lists(st.integers(1, len(WHOLE) - 1), max_size=30))
def test_any_cut_of_the_bytes_gives_the_same_answer(cuts: list[int]) -> None:
    """Framing and events may be split anywhere by the network and by the chunks."""
    response = StreamedResponse()
    edges = [0, *sorted(set(cuts)), len(WHOLE)]
    for step, (start, end) in enumerate(itertools.pairwise(edges)):
        assert not response.complete
        response.feed(WHOLE[start:end], float(step))

    assert response.complete
    assert response.finished
    assert (response.status, response.token_events, response.tokens, response.error) == (200, 5, 12, "")
    assert response.bytes_received == len(WHOLE)
    assert response.first_byte_at == 0.0
    assert response.first_token_at is not None
    assert response.last_token_at is not None
    assert response.first_byte_at <= response.first_token_at <= response.last_token_at <= len(edges)


def test_instants_are_those_of_the_events() -> None:
    """The first byte is the head, the last token is not the usage event."""
    response = StreamedResponse()
    for now, data in enumerate((HEAD, chunk(TOKEN), chunk(TOKEN), chunk(USAGE), chunk(DONE), b"0\r\n\r\n")):
        response.feed(data, float(now))

    assert (response.first_byte_at, response.first_token_at, response.last_token_at) == (0.0, 1.0, 2.0)


@pytest.mark.parametrize("end", [len(HEAD) + 3, len(WHOLE) - 5, len(WHOLE) - 1])
def test_a_truncated_stream_is_not_complete(end: int) -> None:
    """A connection that closes before the last chunk is a cut, whatever came before."""
    response = StreamedResponse()
    response.feed(WHOLE[:end], 0.0)
    response.closed()

    assert not response.complete


def test_without_usage_events_are_counted() -> None:
    """A server that reports no usage is measured by its events."""
    response = StreamedResponse()
    response.feed(HEAD + chunk(TOKEN * 4) + chunk(DONE) + b"0\r\n\r\n", 0.0)

    assert response.tokens == 4


def test_an_error_body_is_kept() -> None:
    """Status and the start of the body are what a reader of the records needs."""
    response = StreamedResponse()
    response.feed(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 500\r\n\r\n" + b"x" * 499, 0.0)
    assert not response.complete
    response.feed(b"x", 0.0)

    assert response.complete
    assert (response.status, response.error) == (503, "x" * 300)


def test_an_error_event_is_kept() -> None:
    """An engine that fails after its 200 says so in an event."""
    response = StreamedResponse()
    response.feed(HEAD + chunk(b'data: {"error":{"message":"no blocks"}}\n\n') + chunk(DONE) + b"0\r\n\r\n", 0.0)

    assert "no blocks" in response.error
    assert response.token_events == 0


def test_a_body_without_length_ends_with_the_connection() -> None:
    """HTTP/1.0 manners: closing is the proper end."""
    response = StreamedResponse()
    response.feed(b"HTTP/1.0 200 OK\r\n\r\n" + TOKEN + DONE, 0.0)
    assert not response.complete
    response.closed()

    assert response.complete
    assert response.finished


@pytest.mark.parametrize("data", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1\r\n\r\n", HEAD + b"zz\r\n"])
def test_anything_else_is_an_error(data: bytes) -> None:
    """What is not HTTP/1.1 is refused with what was there."""
    with pytest.raises(ResponseError, match=r"not an? "):
        StreamedResponse().feed(data, 0.0)
