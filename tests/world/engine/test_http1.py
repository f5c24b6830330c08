"""The HTTP/1.1 side: framing, keep-alive, pipelining, refusals."""

import asyncio

import pytest

from goodput_world.engine.http1 import Connection


class Service:
    """Answers with method, path and body; `/slow` waits, `/stream` streams; remembers what was lost."""

    def __init__(self):
        self.lost = []

    def handle(self, request, connection):
        text = f"{request.method} {request.path} {request.body.decode()}".encode()
        if request.path == "/slow":
            connection.on_lost = lambda: self.lost.append(request.path)
            asyncio.get_running_loop().call_later(0.05, connection.respond, 200, text)
        elif request.path == "/stream":
            connection.transport.write(connection.start(b"text/plain") + b"3\r\nabc\r\n")
            connection.transport.write(b"0\r\n\r\n")
            connection.end()
        else:
            connection.respond(200, text)


@pytest.fixture
async def service():
    """A listening service: its state and a way to talk raw bytes to it."""
    state = Service()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(state.handle), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def talk(*pieces, until=1.0):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        writer.write_eof() if not pieces else None
        received = b""
        try:
            while data := await asyncio.wait_for(reader.read(65536), 0.3):
                received += data
            closed = True
        except TimeoutError:
            closed = False
        writer.close()
        return received.decode(), closed

    state.talk = talk
    state.port = port
    yield state
    server.close()


async def test_a_body_may_come_in_pieces(service):
    """Head and body split anywhere; the connection stays open."""
    answer, closed = await service.talk(b"POST /a?q=1 HT", b"TP/1.1\r\nContent-Length: 5\r\n\r\nhe", b"llo")

    assert answer.startswith("HTTP/1.1 200 OK\r\n")
    assert answer.endswith("POST /a hello")
    assert not closed


async def test_pipelined_requests_are_answered_in_order(service):
    """The second waits for the slow first."""
    slow = b"GET /slow HTTP/1.1\r\n\r\n"
    answer, _ = await service.talk(slow + b"GET /fast HTTP/1.1\r\n\r\n" + b"GET /stream HTTP/1.1\r\n\r\n")

    assert answer.count("HTTP/1.1 200 OK") == 3
    assert answer.index("GET /slow") < answer.index("GET /fast") < answer.index("abc")


async def test_a_chunked_body_is_joined(service):
    """With an extension and a trailer."""
    head = b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer, _ = await service.talk(head + b"3;x=y\r\nabc\r\n", b"2\r\nde\r\n0\r\nT: 1\r\n\r\nGET /b HTTP/1.1\r\n\r\n")

    assert "POST /a abcde" in answer
    assert "GET /b" in answer


@pytest.mark.parametrize("head", [b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n"])
async def test_the_connection_closes_where_the_client_says_so(service, head):
    """Connection: close, or HTTP/1.0."""
    answer, closed = await service.talk(head)

    assert "connection: close" in answer
    assert closed


async def test_expect_continue_is_granted(service):
    """curl asks before a large body."""
    head = b"POST /a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    answer, _ = await service.talk(head, b"hi")

    assert answer.startswith("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nbroken\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"X" * 70_000, 400),
    ],
)
async def test_what_is_not_http_is_refused_and_closed(service, request_bytes, status):
    """Bad request lines, headers, lengths, chunks; a head without end."""
    answer, closed = await service.talk(request_bytes)

    assert answer.startswith(f"HTTP/1.1 {status} ")
    assert closed


async def test_a_lost_connection_is_reported(service):
    """While a request is being answered."""
    _, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(b"GET /slow HTTP/1.1\r\n\r\n")
    await asyncio.sleep(0.02)
    writer.close()
    await asyncio.sleep(0.1)

    assert service.lost == ["/slow"]
