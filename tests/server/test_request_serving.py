"""The server's own rules, over one connection; `test_gunicorn_worker.py` tests the whole service."""

import asyncio
import re
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any
from wsgiref.validate import validator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.server.connection import Connection, LargeBodies
from karrot.server.request_serving import Patience, RequestServing, Turns
from karrot.web import create_app
from karrot.web.webhook import Webhook
from support.burrow.recorded_bodies import recorded_body
from support.manual_clock import ManualClock
from support.waiting import wait_for
from support.web.website import Website, make_website

WARN = recorded_body("karrot_v1.9.5_warn.json")
PATIENCE = Patience(headers_s=60, body_s=60)
"""Longer than any test. A test that needs an end of a time sets that time."""

LARGE_WARN = WARN.replace(b'"Extras"', b'"Filler":"%b","Extras"' % (b"x" * 200_000))


def post(body: bytes) -> bytes:
    return b"POST /burrow HTTP/1.1\r\nHost: k\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


POST = post(WARN)


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: k", *headers, "", ""]).encode()


def connected_pair() -> tuple[socket.socket, socket.socket]:
    """A connection's two ends: the server's and the client's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        return listener.accept()[0], theirs


Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Any]]


def talk(
    *clients: Client,
    website: Website | None = None,
    application: Any = None,
    threads: int = 2,
    large_bodies: LargeBodies | None = None,
    stopping: bool = False,
    **patience: float,
) -> list[Any]:
    """Serve each client on its own connection with Karrot's application, or another; return what they return."""
    bodies = large_bodies or LargeBodies()

    async def serve_all() -> list[Any]:
        site = website or make_website()
        app = application or create_app(site.context)
        serving = RequestServing(app, Webhook(site.context), PATIENCE._replace(**patience), threads=threads)
        serving.stopping = stopping

        async def serve(client: Client) -> Any:
            ours, theirs = connected_pair()
            conn = Connection(bodies, send_s=1)
            await asyncio.get_running_loop().connect_accepted_socket(lambda: conn, ours)
            served = asyncio.create_task(serving.serve(conn))
            reader, writer = await asyncio.open_connection(sock=theirs)
            try:
                return await client(reader, writer)
            finally:
                writer.close()
                await writer.wait_closed()
                await served

        try:
            async with asyncio.timeout(60):
                return list(await asyncio.gather(*map(serve, clients)))
        finally:
            serving.close()

    return asyncio.run(serve_all())


def said_to(*pieces: bytes, **how: Any) -> bytes:
    """Send the pieces, each on its own, then nothing more; return everything that the server sends."""

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        writer.write_eof()
        return await reader.read()

    (said,) = talk(client, **how)
    return bytes(said)


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

    said = said_to(POST * 5, website=make_website(log=Late(ManualClock())), turn_s=20)
    assert said.count(b"HTTP/1.1 202 Accepted\r\n") == 5


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
    bodies, request = LargeBodies(), post(LARGE_WARN)

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(request[:-1])
        await asyncio.to_thread(wait_for, lambda: bodies.held == len(LARGE_WARN) - 1)
        writer.write(request[-1:])
        answer = await reader.readuntil(b'"accepted"}')
        await asyncio.to_thread(wait_for, lambda: bodies.held == 0)
        return answer

    (answer,) = talk(client, large_bodies=bodies)
    assert answer.startswith(b"HTTP/1.1 202 Accepted\r\n")


@pytest.mark.parametrize("body", [LARGE_WARN[:-1] + b"x", LARGE_WARN[:-1]], ids=["not valid", "not complete"])
def test_a_large_body_that_is_not_stored_does_not_count_any_longer(body: bytes) -> None:
    bodies = LargeBodies()
    said_to(post(LARGE_WARN).removesuffix(LARGE_WARN) + body, large_bodies=bodies)
    assert bodies.held == 0


def test_an_event_is_refused_only_for_its_own_large_body() -> None:
    bodies = LargeBodies()
    bodies.grow(32 << 20)
    website = make_website()
    said = said_to(post(WARN), post(LARGE_WARN), website=website, large_bodies=bodies)
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
    said = said_to(POST, website=website, turn_s=0)
    assert said.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b'"code":"overloaded"' in said
    assert website.log.size().events == 0


def test_a_request_that_is_not_http_gets_a_problem_with_a_code() -> None:
    said = said_to(b"GARBAGE\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"\r\nConnection: close\r\n" in said
    assert b"\r\nRetry-After: " not in said
    assert b'"code":"bad_request"' in said


def said_by_itself(*pieces: bytes, **how: Any) -> bytes:
    """Send the pieces and wait; return everything that the server sends until it closes the connection."""

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"".join(pieces))
        return await reader.read()

    (said,) = talk(client, **how)
    return bytes(said)


def test_a_head_has_its_own_time() -> None:
    said = said_by_itself(POST[:9], headers_s=0.05)
    assert said.startswith(b"HTTP/1.1 408 Request Timeout\r\n")


def test_a_new_connection_has_the_time_of_a_head_and_a_kept_one_has_the_idle_time() -> None:
    assert said_by_itself(headers_s=0.05) == b""
    assert said_by_itself(POST, POST, idle_s=0.05).count(b"HTTP/1.1 202 Accepted\r\n") == 2


@pytest.mark.parametrize("request_bytes", [POST, get("/healthz")], ids=["an event", "a health check"])
def test_a_worker_that_stops_closes_the_connection_after_its_answer(request_bytes: bytes) -> None:
    said = said_by_itself(request_bytes, stopping=True)
    assert said.startswith(b"HTTP/1.1 20")
    assert b"\r\nConnection: close\r\n" in said


def test_a_request_that_never_ends_is_refused_and_counted() -> None:
    website = make_website()
    said = said_by_itself(POST[:-1], website=website, body_s=0.05)
    assert said.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b'"code":"incomplete_body"' in said
    assert {dict(each.labels).get("code") for each in website.log.counters()} == {"incomplete_body"}


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
    said = said_to(POST, website=make_website(log=log), turn_s=0.05)
    assert said.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b'"code":"%b"' % code in said
    assert b"\r\nRetry-After: 1\r\n" in said


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


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    pieces = (b"x" * 1_000 for _ in range(500))
    application = app_that_answers("200 OK", [("Content-Type", "text/plain")], pieces)
    head, _, body = said_to(get("/"), get("/"), application=application).partition(b"\r\n\r\n")
    assert b"Connection: close" in head
    assert body == b"x" * 500_000


def test_a_client_that_resets_the_connection_leaves_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    async def serve_reset() -> None:
        site = make_website()
        serving = RequestServing(create_app(site.context), Webhook(site.context), PATIENCE, threads=1)
        ours, theirs = connected_pair()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        conn = Connection(LargeBodies(), POST, send_s=1)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: conn, ours)
        await serving.serve(conn)
        serving.close()

    asyncio.run(serve_reset())
    assert caplog.text == ""


def test_a_client_that_reads_slowly_gets_the_whole_answer() -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        writer.write(get("/"))
        size = 0
        while data := await reader.read(1 << 18):
            size += len(data)
            await asyncio.sleep(0)
        return size

    pieces = (b"x" * 100_000 for _ in range(50))
    (size,) = talk(client, application=app_that_answers("200 OK", [], pieces))
    assert size > 5_000_000


def test_a_client_that_does_not_read_ends_the_answer() -> None:
    ended = threading.Event()

    def pieces() -> Iterable[bytes]:
        try:
            while True:
                yield b"x" * 100_000
        finally:
            ended.set()

    async def client(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(get("/"))
        assert await asyncio.to_thread(ended.wait, 20)

    talk(client, application=app_that_answers("200 OK", [], pieces()))


@pytest.mark.parametrize(
    ("method", "status", "length"), [("HEAD", "200 OK", "7"), ("GET", "304 Not Modified", None)], ids=["HEAD", "304"]
)
def test_a_connection_is_kept_after_an_answer_without_a_body(method: str, status: str, length: str | None) -> None:
    headers = [("Content-Length", length)] if length else []
    request = get("/", method=method)
    said = said_to(request, request, application=app_that_answers(status, headers, []))
    assert said.count(f"HTTP/1.1 {status}\r\n".encode()) == 2
    assert said.count(b"Content-Length: ") == (2 if length else 0)


def test_a_body_that_no_route_reads_closes_the_connection() -> None:
    said = said_to(get("/healthz", "Content-Length: 3") + b"abc" + get("/healthz"))
    assert said.count(b"HTTP/1.1 200 OK\r\n") == 1
    assert b"\r\nConnection: close\r\n" in said


def test_an_application_that_fails_gives_500_and_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    def application(_environ: dict[str, Any], _start_response: Callable[..., Any]) -> Iterable[bytes]:
        raise ZeroDivisionError

    assert said_to(get("/x"), application=application).startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    [failed] = map(vars, caplog.records)
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
    said = talk(client, client, client, turn_s=0.2, **how)
    assert sorted(each.partition(b"\r\n")[0] for each in said) == [
        *[b"HTTP/1.1 200 OK"] * 2,
        b"HTTP/1.1 503 Service Unavailable",
    ]
    assert b'"code":"overloaded"' in b"".join(said)
    assert list(website.log.counters()) == []  # only events are counted


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


def test_a_client_that_sends_its_body_slowly_is_not_among_the_requests_that_wait() -> None:
    async def serve_half() -> None:
        site, head = make_website(), POST.removesuffix(WARN)
        serving = RequestServing(create_app(site.context), Webhook(site.context), PATIENCE, threads=1)
        assert serving.admit(head, "192.0.2.1") is None
        assert serving._waiting == 1
        ours, theirs = connected_pair()
        conn = Connection(LargeBodies(), head, send_s=1)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: conn, ours)
        served = asyncio.create_task(serving.serve(conn))
        await asyncio.to_thread(wait_for, lambda: serving._waiting == 0)
        theirs.close()
        await served
        serving.close()

    asyncio.run(serve_half())


def test_a_new_connection_is_refused_if_too_many_requests_wait() -> None:
    async def admit() -> tuple[list[bytes | None], Website]:
        site = make_website()
        serving = RequestServing(create_app(site.context), Webhook(site.context), PATIENCE, threads=1)
        while serving.admit(POST, "192.0.2.1") is None:
            pass
        answers = [
            serving.admit(received, "192.0.2.1")
            for received in (b"", POST[:9], POST[:-1], get("/healthz"), b"?\r\n\r\n")
        ]
        serving.close()
        return answers, site

    answers, site = asyncio.run(admit())
    assert answers == [None] * 5  # only a whole event can be refused without reading more
    (counter,) = site.log.counters()
    assert (dict(counter.labels), counter.value) == ({"code": "overloaded"}, 1)


def test_coroutines_get_their_turns_in_order_and_leave_time_for_others() -> None:
    served: list[int] = []
    turns_of_the_loop: list[int] = []

    async def work(turns: Turns, number: int) -> None:
        await turns.take()
        served.append(number)

    async def work_all() -> None:
        turns = Turns()
        tasks = [asyncio.create_task(work(turns, number)) for number in range(1_000)]
        while len(served) < len(tasks):
            await asyncio.sleep(0)
            turns_of_the_loop.append(len(served))
        await asyncio.gather(*tasks)

    asyncio.run(work_all())
    assert served == list(range(1_000))
    assert max(after - before for before, after in pairwise([0, *turns_of_the_loop])) <= 64
