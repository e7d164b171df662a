import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.eventlog.base import OverloadedError
from karrot.server.connection import Connection, LargeBodies, RefusedHead, RequestHead

POST = b"POST /burrow?x=1 HTTP/1.1\r\nHost: karrot\r\nAuthorization: Basic abc\r\nContent-Length: 5\r\n\r\n"


def head_with(*lines: bytes) -> RequestHead:
    return RequestHead(b"\r\n".join([b"POST /burrow HTTP/1.1", b"Host: karrot", *lines, b"", b""]))


def long_line(length: int) -> bytes:
    return b"GET /".ljust(length - len(" HTTP/1.1"), b"x") + b" HTTP/1.1\r\n\r\n"


def headers(count: int) -> bytes:
    return b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * count + b"\r\n"


def test_a_head_gives_the_parts_of_the_request() -> None:
    head = RequestHead(POST)
    assert (head.method, head.path, head.query, head.version) == ("POST", "/burrow", "x=1", "1.1")
    assert head.headers == {"host": "karrot", "authorization": "Basic abc", "content-length": "5"}
    assert (head.length, head.announces_a_body, head.keeps_alive, head.waits_for_continue) == (5, True, True, False)


@pytest.mark.parametrize(
    "target",
    ["/burrow", "/%62urrow", "http://karrot:5000/burrow", "https://k/burrow?x=1", "/burrow#part"],
)
def test_a_path_is_read_in_every_notation(target: str) -> None:
    assert RequestHead(f"POST {target} HTTP/1.1\r\nHost: k\r\n\r\n".encode()).path == "/burrow"


def test_the_bytes_of_a_path_become_the_characters_that_wsgi_wants() -> None:
    assert RequestHead(b"GET /g/%C3%A4 HTTP/1.1\r\nHost: k\r\n\r\n").path == "/g/ä".encode().decode("latin-1")


def test_headers_of_the_same_name_are_one_value() -> None:
    head = head_with(b"X-A: 1", b"x-a:2 ", b"Empty:")
    assert head.headers == {"host": "karrot", "x-a": "1,2", "empty": ""}


@pytest.mark.parametrize(
    ("start", "lines", "keeps_alive"),
    [
        (b"GET / HTTP/1.1", (), True),
        (b"GET / HTTP/1.1", (b"Connection: keep-alive",), True),
        (b"GET / HTTP/1.1", (b"Connection: close",), False),
        (b"GET / HTTP/1.1", (b"Connection: Upgrade, Close",), False),
        (b"GET / HTTP/1.0", (), False),
    ],
    ids=["1.1", "1.1 keep-alive", "1.1 close", "1.1 close in a list", "1.0"],
)
def test_a_connection_is_kept_as_the_client_asks(start: bytes, lines: tuple[bytes, ...], *, keeps_alive: bool) -> None:
    assert RequestHead(b"\r\n".join([start, b"Host: k", *lines, b"", b""])).keeps_alive is keeps_alive


def test_a_client_can_wait_for_the_answer_100() -> None:
    assert head_with(b"Expect: 100-Continue", b"Content-Length: 5").waits_for_continue
    assert not head_with(b"Content-Length: 5").waits_for_continue


def test_a_wish_for_another_protocol_is_ignored() -> None:
    head = head_with(b"Connection: Upgrade", b"Upgrade: h2c")
    assert (head.method, head.path) == ("POST", "/burrow")


def test_chunks_announce_a_body_without_a_length() -> None:
    head = head_with(b"Transfer-Encoding: chunked")
    assert (head.length, head.announces_a_body) == (None, True)


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GARBAGE\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\n", 400),
        (b"GET / HTTP/3.7\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: a\r\n b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: a\x00b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (long_line(4_095), 414),
        (headers(101), 431),
    ],
    ids=[
        "no request",
        "nothing",
        "HTTP/2",
        "HTTP/3.7",
        "space after a name",
        "folded value",
        "zero byte",
        "two hosts",
        "length and chunks",
        "long line",
        "many headers",
    ],
)
def test_a_head_that_is_not_http_is_refused(raw: bytes, status: int) -> None:
    with pytest.raises(RefusedHead) as refused:
        RequestHead(raw)
    assert refused.value.status == status


@pytest.mark.parametrize("raw", [long_line(4_094), headers(100)], ids=["long line", "many headers"])
def test_a_head_at_the_limits_is_taken(raw: bytes) -> None:
    assert RequestHead(raw).method == "GET"


def test_large_bodies_have_at_most_32_mib_together() -> None:
    bodies = LargeBodies()
    bodies.grow(32 << 20)
    with pytest.raises(OverloadedError):
        bodies.grow(1)
    bodies.grow(-1)
    bodies.grow(1)
    assert bodies.held == 32 << 20


@pytest.mark.parametrize("length", [b"-1", b"+5", b"5, 5", b"0x10", b"9" * 40, "٣".encode()], ids=repr)
def test_a_length_that_is_no_number_is_refused(length: bytes) -> None:
    with pytest.raises(RefusedHead):
        head_with(b"Content-Length: " + length)


@given(st.binary())
def test_any_bytes_are_a_head_or_are_refused(data: bytes) -> None:
    for raw in (data + b"\r\n\r\n", b"GET / HTTP/1.1\r\n" + data + b"\r\n\r\n", b"GET /" + data + b" HTTP/1.1\r\n\r\n"):
        try:
            head = RequestHead(raw)
        except RefusedHead:
            continue
        assert head.path.startswith("/")
        assert head.version in ("1.0", "1.1")
        assert head.length is None or head.length >= 0


class Transport:
    """A connection to a client that a test plays."""

    reads = True
    is_closed = False

    def get_extra_info(self, _name: str) -> None:
        """Nothing is known of the client."""

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def write(self, data: bytes) -> None:
        """The client gets the bytes."""

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """The client may read the answer now."""

    def close(self) -> None:
        self.is_closed = True

    abort = close


def connected(steps: Callable[[Connection, Transport], Any]) -> None:
    """Let an open connection go through the steps."""

    async def connect() -> None:
        conn, transport = Connection(LargeBodies(), send_s=1), Transport()
        conn.connection_made(transport)
        await steps(conn, transport)

    asyncio.run(connect())


def test_no_more_is_read_than_a_request_may_have() -> None:
    async def send(conn: Connection, transport: Transport) -> None:
        conn.data_received(bytes(64 << 10))
        assert transport.reads
        conn.data_received(b"x")
        assert not transport.reads
        assert await conn.read_body(1, seconds=60) == b"\0"
        assert transport.reads

    connected(send)


def test_a_request_waits_for_its_turn_since_its_newest_bytes() -> None:
    async def send(conn: Connection, _transport: Transport) -> None:
        began = conn.received_at
        conn.data_received(b"x")
        assert began < conn.received_at <= asyncio.get_running_loop().time()

    connected(send)


def test_an_answer_goes_on_when_a_slow_client_has_caught_up() -> None:
    async def send(conn: Connection, _transport: Transport) -> None:
        conn.pause_writing()
        sending = asyncio.create_task(conn.send_and_wait(b"x"))
        await asyncio.sleep(0)
        assert not sending.done()
        conn.resume_writing()
        await sending

    connected(send)


def test_a_refused_client_may_send_32_mib_before_the_connection_is_closed() -> None:
    async def send(conn: Connection, transport: Transport) -> None:
        conn.data_received(b"x")
        parting = asyncio.create_task(conn.part())
        for size, is_closed in ((32 << 20, False), (1, True)):
            await asyncio.sleep(0)
            conn.data_received(bytes(size))
            await asyncio.sleep(0)
            assert transport.is_closed is is_closed
        conn.connection_lost(None)
        await parting

    connected(send)
