"""The rules of the HTTP server, each over one or a few connections; `test_gunicorn_worker.py` tests a service."""

import asyncio
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any
from wsgiref.validate import validator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.server import http
from karrot.server.asgi import AsgiApplication
from karrot.server.http import HttpServer
from support.burrow.recorded_bodies import recorded_body
from support.manual_clock import ManualClock
from support.servers.self_signed_certificate import make_self_signed
from support.waiting import wait_for
from support.web.http_talk import Worker, said_to, talk
from support.web.website import Website, make_website

WARN = recorded_body("karrot_v1.9.5_warn.json")
LARGE_WARN = WARN.replace(b'"Extras"', b'"Filler":"%b","Extras"' % (b"x" * 200_000))


def post(body: bytes) -> bytes:
    return b"POST /burrow HTTP/1.1\r\nHost: k\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


POST = post(WARN)


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: k", *headers, "", ""]).encode()


def head_with(*lines: bytes, start: bytes = b"POST /burrow HTTP/1.1") -> bytes:
    return b"\r\n".join([start, b"Host: karrot", *lines, b"", b""])


def status_of(said: bytes) -> int:
    assert said.startswith(b"HTTP/1.1 ")
    return int(said.split()[1])


def refusals(website: Website) -> dict[str | None, float]:
    """The counted refusals by their codes."""
    return {dict(each.labels).get("code"): each.value for each in website.log.counters() if "rejected" in each.name}


@settings(deadline=None, max_examples=25)
@given(cuts=st.lists(st.integers(0, 2 * len(POST)), max_size=8))
def test_the_answers_do_not_depend_on_how_the_bytes_are_split(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), 2 * len(POST)]
    pieces = [(POST + POST)[start:end] for start, end in pairwise(edges)]
    website = make_website()
    assert said_to(*pieces, website=website).count(b"HTTP/1.1 202 Accepted\r\n") == 2
    assert website.log.size().events == 2


def test_a_request_waits_for_its_turn_only_since_the_answer_before() -> None:
    class Late(MemoryEventLog):
        def begin(self, *arguments: Any, **options: Any) -> Any:
            pending = super().begin(*arguments, **options)
            pending.wait()
            loop = asyncio.get_running_loop()
            now = loop.time
            loop.time = lambda: now() + 6  # type: ignore[method-assign]  # as if a slow disk delayed each commit
            return pending

    said = said_to(POST * 5, website=make_website(log=Late(ManualClock())), answer_s=20)
    assert said.count(b"HTTP/1.1 202 Accepted\r\n") == 5


@pytest.mark.parametrize(
    "target", ["/burrow", "/%62urrow", "http://karrot:5000/burrow", "http://k/burrow?x=1", "/burrow#part", "//burrow"]
)
def test_a_path_is_read_in_every_notation(target: str) -> None:
    assert status_of(said_to(POST.replace(b"/burrow", target.encode(), 1))) == 202


@pytest.mark.parametrize("target", ["http://karrot", "http://karrot?x=1"])
def test_a_whole_address_without_a_path_is_the_first_page(target: str) -> None:
    assert status_of(said_to(get(target))) == 200


@pytest.mark.parametrize("cut", [0, 5, len(WARN), len(WARN) + 2], ids=["at once", "last bytes", "body", "end of head"])
def test_an_event_with_a_wish_for_another_protocol_is_stored(cut: int) -> None:
    wish = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\nContent-Length"
    whole = POST.replace(b"Content-Length", wish)
    website = make_website()

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        if cut:
            writer.write(whole[:-cut])
            await writer.drain()
            await asyncio.sleep(0.02)  # or both parts may arrive together
        writer.write(whole[-cut:] + b"more")  # together: bytes that come after the answer would reset the connection
        return await reader.read()

    (said,) = talk(client, website=website)
    assert status_of(said) == 202
    assert b"\r\nconnection: close\r\n" in said
    assert website.log.size().events == 1


def test_only_events_say_how_long_an_event_waits() -> None:
    """Beside slow clients and scrapes, a worker would else refuse the events of a burst as if it had no time."""
    servers: list[HttpServer] = []

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[bytes, float]:
        writer.write(POST[:-10])
        said = await reader.read()
        return said, servers[0].waited_s

    ((said, waited_s),) = talk(client, body_s=0.05, prepare=lambda server, _: servers.append(server))
    assert (status_of(said), waited_s) == (408, 0)
    servers.clear()
    assert status_of(said_to(POST, prepare=lambda server, _: servers.append(server))) == 202
    assert servers[0].waited_s > 0


def test_a_client_of_http_1_0_is_not_told_to_continue() -> None:
    said = said_to(POST.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"Host: k", b"Expect: 100-continue"))
    assert status_of(said) == 202


def test_the_bytes_of_a_path_become_the_characters_that_wsgi_wants() -> None:
    seen: list[str] = []

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        seen.append(environ["PATH_INFO"])
        start_response("200 OK", [])
        return []

    said_to(get("/g/%C3%A4"), application=application)
    assert seen == ["/g/ä".encode().decode("latin-1")]


@pytest.mark.parametrize(
    ("start", "lines", "is_kept"),
    [
        (b"GET /healthz HTTP/1.1", (), True),
        (b"GET /healthz HTTP/1.1", (b"Connection: keep-alive",), True),
        (b"GET /healthz HTTP/1.1", (b"Connection: close",), False),
        (b"GET /healthz HTTP/1.1", (b"Connection: Upgrade, Close",), False),
        (b"GET /healthz HTTP/1.1", (b"Connection: Upgrade", b"Upgrade: websocket"), False),
        (b"GET /healthz HTTP/1.0", (), False),
    ],
    ids=["1.1", "1.1 keep-alive", "1.1 close", "1.1 close in a list", "another protocol", "1.0"],
)
def test_a_connection_is_kept_as_the_client_asks(start: bytes, lines: tuple[bytes, ...], *, is_kept: bool) -> None:
    said = said_to(head_with(*lines, start=start), ends=False, idle_s=0.1)
    assert status_of(said) == 200
    assert (b"\r\nconnection: close\r\n" in said) is not is_kept


def test_chunks_are_refused_as_events() -> None:
    said = said_to(head_with(b"Transfer-Encoding: chunked") + b"1\r\nx\r\n0\r\n\r\n")
    assert status_of(said) == 411


def long_line(length: int) -> bytes:
    return b"GET /".ljust(length - len(" HTTP/1.1"), b"x") + b" HTTP/1.1\r\nHost: k\r\n\r\n"


def headers(count: int) -> bytes:
    return b"GET / HTTP/1.1\r\nHost: k\r\n" + b"X: y\r\n" * (count - 1) + b"\r\n"


NOT_HTTP = {
    "no request": b"GARBAGE\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/2 with a path": b"GET / HTTP/2.0\r\nHost: k\r\n\r\n",
    "HTTP/3.7": b"GET / HTTP/3.7\r\nHost: k\r\n\r\n",
    "space after a name": b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    "folded value": b"GET / HTTP/1.1\r\nHost: k\r\nX: a\r\n b\r\n\r\n",
    "zero byte": b"GET / HTTP/1.1\r\nHost: k\r\nX: a\x00b\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "length and chunks": b"GET / HTTP/1.1\r\nHost: k\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    **{
        f"length {length!r}": head_with(b"Content-Length: " + length)
        for length in (b"-1", b"+5", b"5, 5", b"0x10", b"9" * 40, "٣".encode())
    },
}


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        *(pytest.param(raw, 400, id=name) for name, raw in NOT_HTTP.items()),
        pytest.param(long_line(4_095), 414, id="long line"),
        pytest.param(headers(101), 431, id="many headers"),
        pytest.param(head_with(b"Content-Length: " + b"0" * 5_000), 411, id="a length of 5,000 zeros"),
    ],
)
def test_a_head_that_is_not_http_is_refused_and_counted(raw: bytes, status: int) -> None:
    website = make_website()
    said = said_to(raw, website=website)
    assert status_of(said) == status
    assert said.count(b"HTTP/1.1") == 1
    assert refusals(website) == {"length_required" if status == 411 else "bad_request": 1}


@pytest.mark.parametrize("raw", [long_line(4_094), headers(100)], ids=["long line", "many headers"])
def test_a_head_at_the_limits_is_taken(raw: bytes) -> None:
    assert status_of(said_to(raw)) in (200, 404)


def test_a_request_before_a_head_that_is_not_http_is_answered_first() -> None:
    said = said_to(POST + b"GARBAGE\r\n\r\n")
    assert re.findall(rb"HTTP/1\.1 (\d+)", said) == [b"202", b"400"]


@settings(deadline=None, max_examples=100)
@given(st.binary())
def test_any_bytes_are_a_request_or_are_refused(data: bytes) -> None:
    app = app_that_answers("200 OK", [("Content-Length", "0")], [])
    for raw in (b"GET / HTTP/1.1\r\n" + data + b"\r\n\r\n", b"GET /" + data + b" HTTP/1.1\r\nHost: k\r\n\r\n"):
        said = said_to(raw, application=app)
        assert said == b"" or status_of(said) in (200, 400, 414, 431), raw


def test_a_head_that_never_ends_is_refused_at_64_kib() -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"GET / HTTP/1.1\r\nHost: k\r\nX: ")
        for _ in range(5):
            writer.write(b"x" * 20_000)
            await asyncio.sleep(0.01)
        return await reader.read()

    (said,) = talk(client)
    assert status_of(said) == 431


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Use a connection once."""
    writer.write(get("/healthz"))
    assert status_of(await reader.readuntil(b'"alive"}')) == 200


async def another(writer: asyncio.StreamWriter) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A second connection of a client."""
    return await asyncio.open_connection(*writer.get_extra_info("peername"))


def test_a_full_worker_closes_the_connection_that_is_idle_for_longest_only_when_a_client_waits() -> None:
    async def client(*first: Any) -> bytes:
        await ask(*first)
        second = await another(first[1])
        await ask(*second)
        await ask(*first)
        third = await another(first[1])
        await ask(*third)
        await ask(*first)
        closed = await second[0].read()
        for _, writer in (second, third):
            writer.close()
        return closed

    assert talk(client, most=2) == [b""]


def test_a_full_worker_accepts_the_client_that_waits_when_a_busy_connection_is_idle_again() -> None:
    servers: list[HttpServer] = []
    gate = threading.Event()

    def application(_environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        gate.wait(20)
        start_response("200 OK", [("Content-Length", "0")])
        return []

    def is_paused() -> bool:
        listener = servers[0]._listeners[0].fileno()
        return listener not in servers[0].loop._selector.get_map()  # type: ignore[attr-defined]

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> list[bytes]:
        writer.write(get("/"))
        await asyncio.to_thread(wait_for, lambda: bool(servers[0].server_state.tasks) and not servers[0].idle)
        waiting, its_writer = await another(writer)
        await asyncio.to_thread(wait_for, is_paused)
        gate.set()
        its_writer.write(get("/"))
        said = [await each.readuntil(b"\r\n\r\n") for each in (reader, waiting)]
        its_writer.close()
        return said

    (said,) = talk(client, most=1, application=application, prepare=lambda server, _app: servers.append(server))
    assert list(map(status_of, said)) == [200, 200]


def endless_or_short(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """An application whose answer has no end if the query is ``endless``."""
    start_response("200 OK", [])
    return repeat(b"x" * 100_000) if environ["QUERY_STRING"] == "endless" else [b"short"]


def test_clients_that_never_read_their_scrape_hold_no_thread() -> None:
    servers: list[HttpServer] = []

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        others = [await another(writer) for _ in range(5)]
        for _, its_writer in others:
            its_writer.transport.pause_reading()  # type: ignore[attr-defined]
            its_writer.write(get("/metrics?endless"))
        await asyncio.to_thread(wait_for, lambda: len(servers[0].idle) == 1 + len(others))
        writer.write(get("/metrics", "Connection: close"))
        said = await reader.read()
        for _, its_writer in others:
            its_writer.transport.abort()
        return said

    (said,) = talk(client, application=endless_or_short, prepare=lambda server, _app: servers.append(server))
    assert said.endswith(b"short")


@pytest.mark.parametrize(
    "sent", [POST[:9], POST[:-1], get("/?endless")], ids=["half a head", "half a body", "no reading"]
)
def test_a_full_worker_ends_a_connection_that_waits_for_its_client(sent: bytes) -> None:
    servers: list[HttpServer] = []

    async def client(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(sent)
        await asyncio.to_thread(wait_for, lambda: any(not each.is_unused() for each in servers[0].idle))
        other, its_writer = await another(writer)
        its_writer.write(get("/", "Connection: close"))
        said = await other.read()
        its_writer.close()
        return said

    (said,) = talk(client, most=1, application=endless_or_short, prepare=lambda server, _app: servers.append(server))
    assert said.endswith(b"short")


def test_a_connection_is_idle_when_its_client_has_read_the_end_of_the_answer_late() -> None:
    servers: list[HttpServer] = []

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        await ask(reader, writer)
        (connection,) = servers[0].idle
        connection.pause_writing()  # as the transport does when an answer does not fit into the socket
        connection.resume_writing()
        servers[0].idle_s = 0
        servers[0]._close_idle()
        return await reader.read()

    assert talk(client, prepare=lambda server, _app: servers.append(server)) == [b""]


def test_a_full_worker_ends_a_connection_that_sends_requests_but_reads_no_answer() -> None:
    servers: list[HttpServer] = []

    async def client(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(get("/?endless"))
        await asyncio.to_thread(wait_for, lambda: any(not each.is_unused() for each in servers[0].idle))
        (connection,) = servers[0].idle
        writer.write(get("/?endless"))
        await asyncio.to_thread(wait_for, lambda: len(connection.pipeline) == 1)
        other, its_writer = await another(writer)
        its_writer.write(get("/", "Connection: close"))
        said = await other.read()
        its_writer.close()
        return said

    (said,) = talk(client, most=1, application=endless_or_short, prepare=lambda server, _app: servers.append(server))
    assert said.endswith(b"short")


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"], ids=["nothing", "half a handshake"])
def test_a_full_worker_ends_a_connection_that_waits_for_the_tls_handshake(sent: bytes, tmp_path: Path) -> None:
    make_self_signed(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "made-cert.pem", tmp_path / "made-key.pem")
    servers: list[HttpServer] = []

    async def client(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(sent)
        await asyncio.to_thread(wait_for, lambda: servers[0]._open == 1)
        trusting = ssl.create_default_context(cafile=str(tmp_path / "made-cert.pem"))
        server = writer.get_extra_info("peername")
        other, its_writer = await asyncio.open_connection(*server, ssl=trusting, server_hostname="localhost")
        its_writer.write(get("/", "Connection: close"))
        said = await other.read()
        its_writer.close()
        return said

    (said,) = talk(
        client,
        most=1,
        tls=lambda: tls,
        application=endless_or_short,
        prepare=lambda server, _app: servers.append(server),
    )
    assert said.endswith(b"short")


@pytest.mark.parametrize("cut", [len(POST) - 9, 1], ids=["half a head", "half a body"])
def test_a_worker_that_stops_gives_a_request_the_time_to_arrive(cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_LAST_REQUEST_S", 0.0)
    servers: list[HttpServer] = []

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        unused, its_writer = await another(writer)
        writer.write(POST[:-cut])
        await asyncio.to_thread(wait_for, lambda: [each.is_unused() for each in servers[0].idle].count(False) == 1)
        stop = asyncio.create_task(servers[0].shutdown())
        assert await unused.read() == b""
        its_writer.close()
        writer.write(POST[-cut:])
        said = await reader.read()
        stop.cancel()
        return said

    (said,) = talk(client, prepare=lambda server, _app: servers.append(server))
    assert status_of(said) == 202


def test_a_head_of_more_than_64_kib_is_refused_even_if_it_arrives_at_once() -> None:
    said = said_to(get("/healthz", "X: " + "x" * 70_000))
    assert said.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")


def test_a_connection_can_be_used_again_after_a_large_event() -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> list[bytes]:
        answers = []
        for _ in range(3):
            writer.write(post(LARGE_WARN))
            answers.append(await reader.readuntil(b'"accepted"}'))
        return answers

    (answers,) = talk(client)
    assert all(each.startswith(b"HTTP/1.1 202 Accepted\r\n") for each in answers)


def test_a_large_body_counts_from_its_arrival_to_its_answer() -> None:
    apps: list[AsgiApplication] = []
    request = post(LARGE_WARN)

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(request[:-1])
        await asyncio.to_thread(wait_for, lambda: apps[0].large_bytes == len(LARGE_WARN) - 1)
        writer.write(request[-1:])
        answer = await reader.readuntil(b'"accepted"}')
        await asyncio.to_thread(wait_for, lambda: apps[0].large_bytes == 0)
        return answer

    (answer,) = talk(client, prepare=lambda _server, app: apps.append(app))
    assert answer.startswith(b"HTTP/1.1 202 Accepted\r\n")


@pytest.mark.parametrize("body", [LARGE_WARN[:-1] + b"x", LARGE_WARN[:-1]], ids=["not valid", "not complete"])
def test_a_large_body_that_is_not_stored_does_not_count_any_longer(body: bytes) -> None:
    apps: list[AsgiApplication] = []
    said_to(post(LARGE_WARN).removesuffix(LARGE_WARN) + body, body_s=0.5, prepare=lambda _server, app: apps.append(app))
    assert apps[0].large_bytes == 0


def test_an_event_is_refused_only_for_its_own_large_body() -> None:
    website = make_website()

    def fill(_server: HttpServer, app: AsgiApplication) -> None:
        app.large_bytes = 32 << 20

    said = said_to(post(WARN), post(LARGE_WARN), website=website, prepare=fill)
    assert re.findall(rb"HTTP/1\.1 (\d+)", said) == [b"202", b"503"]
    assert b'"code":"overloaded"' in said
    assert website.log.size().events == 1


def test_a_thread_parses_a_large_body_and_the_event_loop_a_small_one() -> None:
    parsed_by: list[str] = []

    class Noted(MemoryEventLog):
        def begin(self, *arguments: Any, **options: Any) -> Any:
            parsed_by.append(threading.current_thread().name.partition("_")[0])
            return super().begin(*arguments, **options)

    said_to(post(WARN), post(LARGE_WARN), website=make_website(log=Noted(ManualClock())))
    assert parsed_by == [threading.current_thread().name, "quick"]


def test_an_event_whose_turn_comes_too_late_is_refused_and_not_stored() -> None:
    website = make_website()
    said = said_to(POST, website=website, answer_s=0)
    assert said.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b'"code":"overloaded"' in said
    assert website.log.size().events == 0


def test_a_request_that_is_not_http_gets_a_problem_with_a_code() -> None:
    said = said_to(b"GARBAGE\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"\r\nconnection: close\r\n" in said
    assert b"\r\nretry-after: " not in said
    assert b'"code":"bad_request"' in said


def test_a_post_to_a_wrong_path_is_answered_before_its_body_arrives() -> None:
    head = b"POST /burow HTTP/1.1\r\nHost: k\r\nConnection: close\r\nContent-Length: 9\r\n\r\n"
    said = said_to(head, ends=False)
    assert status_of(said) == 404


def test_a_length_of_thousands_of_zeros_is_no_failure() -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: k\r\nConnection: close\r\nContent-Length: %b\r\n\r\n" % (b"0" * 5000)
    assert status_of(said_to(head, ends=False)) == 200


def test_a_head_has_its_own_time() -> None:
    website = make_website()
    said = said_to(POST[:9], ends=False, website=website, headers_s=0.05)
    assert said.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert refusals(website) == {"incomplete_body": 1}


def test_the_time_of_a_refused_head_ends_with_its_answer() -> None:
    website = make_website()

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(post(b"{")[:-1])
        await writer.drain()
        await asyncio.sleep(0.02)  # so the second head begins in a packet of its own
        writer.write(b"{POST /burr")
        said = await reader.read()
        await asyncio.sleep(0.1)  # longer than a head may take
        return said

    (said,) = talk(client, website=website, headers_s=0.05)
    assert status_of(said) == 400
    assert refusals(website) == {"unsupported_template": 1}


def test_a_worker_that_stops_accepts_the_clients_that_wait() -> None:
    clients: list[socket.socket] = []
    stops: list[asyncio.Task[None]] = []

    def connect_and_stop(server: HttpServer, _app: AsgiApplication) -> None:
        clients.append(socket.create_connection(server._listeners[0].getsockname()))
        clients[0].sendall(POST)
        stops.append(server.loop.create_task(server.shutdown()))

    async def client(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> bytes:
        with clients[0] as ours:
            return await asyncio.to_thread(lambda: b"".join(iter(lambda: ours.recv(65536), b"")))

    (said,) = talk(client, prepare=connect_and_stop)
    assert status_of(said) == 202


def test_a_worker_without_connections_looks_at_the_files_of_its_certificate() -> None:
    looks: list[str] = []

    def tls() -> Any:
        looks.append("a look")

    async def tick() -> bool:
        server = HttpServer(None, Worker(), refusal=Any, is_event=Any, headers_s=1, body_s=1, tls=tls)  # type: ignore[arg-type]
        return await server.on_tick(1)

    assert not asyncio.run(tick())
    assert looks == ["a look"]


def test_a_first_byte_may_come_later_than_a_head_may_take() -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        await asyncio.sleep(0.1)
        writer.write(get("/healthz", "Connection: close"))
        return await reader.read()

    (said,) = talk(client, headers_s=0.02)
    assert status_of(said) == 200


@pytest.mark.parametrize("sent", [b"", POST + POST, b"\r\n\r\n"], ids=["nothing", "two events", "empty lines"])
def test_a_connection_is_closed_when_it_has_been_idle_for_long(sent: bytes) -> None:
    assert said_to(sent, ends=False, idle_s=0.3).count(b"HTTP/1.1 ") == sent.count(b"POST")


def test_a_request_that_has_begun_is_not_idle() -> None:
    servers: list[HttpServer] = []

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        await ask(reader, writer)
        (connection,) = servers[0].idle
        servers[0].idle[connection] -= 9 * servers[0].idle_s  # as if it had been idle for long
        writer.write(POST[:-1])
        await asyncio.to_thread(wait_for, lambda: not connection.is_unused())
        servers[0]._close_idle()
        writer.write(POST[-1:])
        return await reader.readuntil(b"}")

    (said,) = talk(client, prepare=lambda server, _app: servers.append(server))
    assert status_of(said) == 202


@pytest.mark.parametrize("request_bytes", [POST, get("/healthz")], ids=["an event", "a health check"])
def test_a_worker_that_stops_closes_the_connection_after_its_answer(request_bytes: bytes) -> None:
    def stop(server: HttpServer, _app: AsgiApplication) -> None:
        server.stopping = True

    said = said_to(request_bytes, ends=False, prepare=stop)
    assert said.startswith(b"HTTP/1.1 20")
    assert b"\r\nconnection: close\r\n" in said


def test_a_request_that_never_ends_is_refused_and_counted() -> None:
    website = make_website(body_timeout=0.05)
    said = said_to(POST[:-1], ends=False, website=website)
    assert said.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b'"code":"incomplete_body"' in said
    assert refusals(website) == {"incomplete_body": 1}


class SlowDisk(MemoryEventLog):
    """A log whose appends are never done. ``taken`` says whether a commit has taken them."""

    taken = False

    def begin(self, *_args: Any, **_kwargs: Any) -> Any:
        log = self

        class Never:
            def wait(self) -> Any:
                raise AssertionError("nobody waits for the disk here")

            def when_done(self, call: Callable[[], object]) -> None:
                pass

            def withdraw(self) -> bool:
                return not log.taken

        return Never()


@pytest.mark.parametrize(("taken", "code"), [(False, b"overloaded"), (True, b"unconfirmed")])
def test_an_event_that_is_not_stored_in_time_gets_503(code: bytes, *, taken: bool) -> None:
    log = SlowDisk(ManualClock())
    log.taken = taken
    said = said_to(POST, website=make_website(log=log), answer_s=0.05)
    assert said.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b'"code":"%b"' % code in said
    assert b"\r\nretry-after: 1\r\n" in said


def test_an_unexpected_error_of_an_event_is_answered_without_its_text() -> None:
    class Faulty(MemoryEventLog):
        def begin(self, *_args: Any, **_kwargs: Any) -> Any:
            raise ZeroDivisionError("an unexpected error")

    website = make_website(log=Faulty(ManualClock()))
    said = said_to(POST, website=website)
    assert said.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert b"unexpected error" not in said
    (kept,) = website.log.rejects()
    assert (kept.code, kept.body) == ("internal_error", WARN)


@pytest.mark.parametrize("external_url", [None, "https://example.org/monitor"], ids=["at the root", "behind a prefix"])
def test_events_are_taken_with_and_without_the_prefix_of_the_proxy(external_url: str | None) -> None:
    paths = ["/burrow", "/burrow/", "//burrow"] + (["/monitor/burrow"] if external_url else [])
    for path in paths:
        website = make_website(external_url=external_url)
        said = said_to(POST.replace(b"/burrow", path.encode(), 1), website=website)
        assert said.startswith(b"HTTP/1.1 202 Accepted\r\n"), path


def app_that_answers(
    status: str, headers: Sequence[tuple[str, str]], pieces: Iterable[bytes]
) -> Callable[..., Iterable[bytes]]:
    def application(_environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        start_response(status, list(headers))
        return pieces

    return application


def test_an_application_gets_what_the_standard_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIPT_NAME", "/not-of-this-request")
    seen: dict[str, Any] = {}

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        seen.update(environ)
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "2")])
        return [b"ok"]

    said = said_to(get("/a%20b?c=d", "X-A: 1", "X_B: 2"), application=validator(application))
    assert said.endswith(b"\r\n\r\nok")
    assert (seen["PATH_INFO"], seen["QUERY_STRING"], seen["HTTP_HOST"], seen["HTTP_X_A"]) == ("/a b", "c=d", "k", "1")
    assert not {name for name in seen if name.endswith("X_B")}
    assert (seen["wsgi.url_scheme"], seen["SCRIPT_NAME"]) == ("http", "")


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_long_answer_without_a_length_shows_where_it_ends(version: str) -> None:
    pieces = (b"x" * 1_000 for _ in range(500))
    application = app_that_answers("200 OK", [("Content-Type", "text/plain")], pieces)
    said = said_to(get("/", "Connection: close").replace(b"1.1", version.encode(), 1), application=application)
    head, _, body = said.partition(b"\r\n\r\n")
    if version == "1.0":
        assert b"content-length: 500000" in head
        assert body == b"x" * 500_000
    else:
        assert b"transfer-encoding: chunked" in head
        assert body.count(b"x") == 500_000
        assert body.endswith(b"\r\n0\r\n\r\n")


def test_a_client_that_resets_the_connection_leaves_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    servers: list[HttpServer] = []

    async def client(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(POST)
        reset = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        writer.transport.abort()
        await asyncio.to_thread(wait_for, lambda: not (servers[0].server_state.connections or servers[0].idle))

    with capture_logs() as logs:
        talk(client, prepare=lambda server, _app: servers.append(server))
    assert (caplog.text, logs) == ("", [])


def test_a_client_that_reads_slowly_gets_the_whole_answer() -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        writer.write(get("/", "Connection: close"))
        size = 0
        while data := await reader.read(1 << 18):
            size += len(data)
            await asyncio.sleep(0)
        return size

    pieces = (b"x" * 100_000 for _ in range(50))
    (size,) = talk(client, application=app_that_answers("200 OK", [], pieces))
    assert size > 5_000_000


@pytest.mark.parametrize("requests", [1, 2])
def test_a_client_that_does_not_read_gets_an_answer_that_looks_cut(
    requests: int, caplog: pytest.LogCaptureFixture
) -> None:
    ended = threading.Event()

    def pieces() -> Iterable[bytes]:
        try:
            while True:
                yield b"x" * 100_000
        finally:
            ended.set()

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(get("/") * requests)
        assert await asyncio.to_thread(ended.wait, 20)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        return await reader.read()

    with capture_logs() as logs:
        (said,) = talk(client, body_s=0.1, application=app_that_answers("200 OK", [], pieces()))
    assert b"transfer-encoding: chunked" in said
    assert not said.endswith(b"0\r\n\r\n")
    assert (caplog.text, logs) == ("", [])


def test_an_answer_that_fails_halfway_looks_cut() -> None:
    def pieces() -> Iterable[bytes]:
        yield b"x" * 100_000
        raise ZeroDivisionError

    with capture_logs() as logs:
        said = said_to(get("/x"), application=app_that_answers("200 OK", [], pieces()))
    assert b"transfer-encoding: chunked" in said
    assert not said.endswith(b"0\r\n\r\n")
    assert [each["code"] for each in logs] == ["application_failed"]


@pytest.mark.parametrize(
    ("method", "status", "length"), [("HEAD", "200 OK", "7"), ("GET", "304 Not Modified", None)], ids=["HEAD", "304"]
)
def test_a_connection_is_kept_after_an_answer_without_a_body(method: str, status: str, length: str | None) -> None:
    headers = [("Content-Length", length)] if length else []
    request = get("/", method=method)
    said = said_to(request, request, application=app_that_answers(status, headers, []))
    assert said.count(f"HTTP/1.1 {status}\r\n".encode()) == 2
    assert said.count(b"content-length: ") == (2 if length else 0)


def test_a_body_that_no_route_reads_closes_the_connection() -> None:
    said = said_to(get("/healthz", "Content-Length: 3") + b"abc" + get("/healthz"))
    assert said.count(b"HTTP/1.1 200 OK\r\n") == 1
    assert b"\r\nconnection: close\r\n" in said


def test_an_application_that_fails_gives_500_and_a_log_line() -> None:
    def application(_environ: dict[str, Any], _start_response: Callable[..., Any]) -> Iterable[bytes]:
        raise ZeroDivisionError

    with capture_logs() as logs:
        assert said_to(get("/x"), application=application).startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    [failed] = logs
    assert (failed["code"], failed["method"], failed["path"]) == ("application_failed", "GET", "/x")


def test_a_request_without_a_free_thread_gets_503() -> None:
    refused = threading.Event()

    def application(_environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        refused.wait(20)
        start_response("200 OK", [("Content-Length", "0")])
        return []

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(get("/slow", "Connection: close"))
        said = await reader.read()
        refused.set()
        return said

    website = make_website()
    how: dict[str, Any] = {"website": website, "application": application, "threads": 1}  # there are two threads
    said = talk(client, client, client, answer_s=0.2, **how)
    assert sorted(each.partition(b"\r\n")[0] for each in said) == [
        *[b"HTTP/1.1 200 OK"] * 2,
        b"HTTP/1.1 503 Service Unavailable",
    ]
    assert b'"code":"overloaded"' in b"".join(said)
    assert refusals(website) == {}  # only events are counted


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/metrics/", "/karrot/metrics", "/karrot/readyz"])
def test_health_checks_and_scrapes_do_not_wait_for_a_thread_that_makes_a_page(path: str) -> None:
    busy: list[str] = []
    checked = threading.Event()

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/slow":
            busy.append("a thread")
            checked.wait(20)
        start_response("200 OK", [("Content-Length", "0")])
        return []

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(get("/slow", "Connection: close"))
        return await reader.read()

    async def check(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        await asyncio.to_thread(wait_for, lambda: len(busy) == 2)
        writer.write(get(path, "Connection: close"))
        said = await reader.read()
        checked.set()
        return said

    said = talk(ask, ask, check, application=application, threads=1)  # two threads make pages
    assert [each.partition(b"\r\n")[0] for each in said] == [b"HTTP/1.1 200 OK"] * 3


def said_at_once(sent: bytes, website: Website | None = None) -> bytes:
    """What a client reads that has sent everything before the worker accepts its connection."""
    clients: list[socket.socket] = []

    def connect(server: HttpServer, _app: AsgiApplication) -> None:
        server._at_once = 16  # as if other clients had waited too
        clients.append(socket.create_connection(server._listeners[0].getsockname()))
        clients[0].sendall(sent)
        clients[0].shutdown(socket.SHUT_WR)

    async def client(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> bytes:
        with clients[0] as ours:
            return await asyncio.to_thread(lambda: b"".join(iter(lambda: ours.recv(65536), b"")))

    (said,) = talk(client, website=website, prepare=connect)
    return bytes(said)


def test_an_event_on_a_new_connection_is_refused_if_too_many_requests_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_FULL", ((100, 0.0), (0, 0.0)))
    website = make_website()
    said = said_at_once(POST, website)
    assert status_of(said) == 503
    assert b'"code":"overloaded"' in said
    assert b"\r\nretry-after: 1\r\n" in said
    assert refusals(website) == {"overloaded": 1}


@pytest.mark.parametrize("sent", [get("/healthz"), POST + POST, b"?\r\n\r\n"], ids=["health", "two", "not HTTP"])
def test_only_one_whole_event_is_refused_without_a_coroutine(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(http, "_FULL", ((0, 0.0),))
    assert b'"code":"overloaded"' not in said_at_once(sent)


def test_many_requests_are_accepted_if_the_answer_before_came_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_FULL", ((100, 0.0), (0, 0.1)))
    assert status_of(said_at_once(POST)) == 202
