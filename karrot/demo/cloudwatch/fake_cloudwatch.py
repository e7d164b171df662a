"""Serves the fake CloudWatch over HTTP on loopback, scripts its faults and reads what it stored.

Each connection has a thread; answers are broken if asked for.
"""

import socket
import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from karrot.demo.cloudwatch.injected_faults import Fault, Hang, Reset, SlowDrip
from karrot.demo.cloudwatch.metric_store import (
    Call,
    MetricId,
    MetricStore,
    StoredDatum,
    StoredPoint,
    all_points,
    sorted_dimensions,
)
from karrot.demo.cloudwatch.request_handler import AwsAnswer, CallerKeys, Handler, HandlerReply, HandlerRequest

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class _Handler(BaseHTTPRequestHandler):
    """One connection, kept alive."""

    protocol_version = "HTTP/1.1"
    server_version = "FakeCloudWatch"
    sys_version = ""
    wbufsize = -1  # an answer leaves in one piece
    disable_nagle_algorithm = True
    server: "LoopbackServer"

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:  # the caller has gone, as callers of a slow server do
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Calls are recorded, not logged."""

    def do_GET(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdigit():
            self.send_error(411)
            return
        body = self.rfile.read(int(length))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._send(self.server.answer(HandlerRequest(self.command, self.path, headers, body)))

    do_POST = do_GET  # noqa: N815 (the name that http.server calls)

    def _send(self, reply: HandlerReply) -> None:
        match reply.fault:
            case Hang():
                self.close_connection = True
                self.connection.recv(1, socket.MSG_PEEK)  # until the caller or the server hangs up
            case Reset():
                self.close_connection = True
                self.server.will_reset(self.connection)
            case SlowDrip(seconds):
                self._drip(reply.answer, seconds)
            case _:
                self._head(reply.answer)
                self.wfile.write(reply.answer.body)

    def _head(self, answer: AwsAnswer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()

    def _drip(self, answer: AwsAnswer, seconds: float) -> None:
        """The head at once, each byte of the body after a pause."""
        self._head(answer)
        self.wfile.flush()
        for byte in answer.body:
            if self.server.closing.wait(seconds):
                self.close_connection = True
                return
            self.wfile.write(bytes([byte]))
            self.wfile.flush()


class LoopbackServer(ThreadingHTTPServer):
    """Listens on loopback from the start, serves between `start` and `close`."""

    daemon_threads = False  # closing joins them: no thread outlives the server
    request_queue_size = 128

    def __init__(self, port: int, answer: Callable[[HandlerRequest], HandlerReply]) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.answer = answer
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._to_reset: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, name="fake-cloudwatch")

    def start(self) -> None:
        """Serve in threads."""
        self._thread.start()

    def close(self) -> None:
        """Hang up on everybody; returns when every thread has ended."""
        self.closing.set()
        if self._thread.is_alive():
            socket.create_connection(("127.0.0.1", self.server_port)).close()  # wakes the one that waits for callers
            self._thread.join()
        with self._lock:
            for connection in self._open:
                with suppress(OSError):  # the other side was faster
                    connection.shutdown(socket.SHUT_RDWR)
        self.server_close()

    def _accept(self) -> None:
        while not self.closing.is_set():
            self.handle_request()

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 (socketserver's)
        """Nobody is let in at the end."""
        return not self.closing.is_set()

    def will_reset(self, connection: socket.socket) -> None:
        """Close with a reset instead of an orderly end."""
        with self._lock:
            self._to_reset.add(connection)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection, then hand it to a thread."""
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        with self._lock:
            self._open.discard(request)
            reset = request in self._to_reset
            self._to_reset.discard(request)
        if reset:
            request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            request.close()
        else:
            super().shutdown_request(request)


class FakeCloudWatch:
    """CloudWatch's PutMetricData over HTTP on 127.0.0.1, stricter than any client may be loose.

    ``port`` 0 takes a free one. Timestamps are judged by ``clock_ms`` (epoch milliseconds), which is asked from the
    fake's own threads. At most ``keep`` data and calls are remembered. ``credentials`` gives out what
    callers sign with; without it every key holds.

    It serves from ``with`` or `start` on, until `close`. Raises OSError where the port is taken.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        clock_ms: Callable[[], int],
        keep: int = 1_000_000,
        names_members: bool = True,
        credentials: CallerKeys | None = None,
    ) -> None:
        self._store = MetricStore(keep)
        self._handler = Handler(self._store, clock_ms, credentials, names_members=names_members)
        self._server = LoopbackServer(port, self._handler.answer)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Serve, in threads."""
        self._server.start()

    def close(self) -> None:
        """Hang up on everybody and end every thread; what was kept can still be read."""
        self._server.close()

    # --- where it is ---

    @property
    def url(self) -> str:
        """For ``AWS_ENDPOINT_URL_CLOUDWATCH`` and ``AWS_ENDPOINT_URL_STS``; a page for people."""
        return f"http://127.0.0.1:{self._server.server_port}"

    # --- what it kept ---

    @property
    def accepted(self) -> list[StoredDatum]:
        """All data that were taken, in that order."""
        return self._store.data()

    @property
    def calls(self) -> list[Call]:
        """All requests to PutMetricData, faults among them."""
        return self._store.calls()

    def metrics(self) -> list[MetricId]:
        """Every metric that has stored data, sorted."""
        return self._store.metrics()

    def points(
        self,
        namespace: str,
        metric: str,
        dimensions: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        *,
        since_ms: int = 0,
    ) -> list[StoredPoint]:
        """The points of one metric in the order in which they were taken, none with a timestamp before ``since_ms``.

        A datum with several values is so many points; of a statistic set these are its minimum and its maximum.
        """
        data = self._store.data_of(MetricId(namespace, metric, sorted_dimensions(dimensions)))
        return [point for datum in data if datum.timestamp_ms >= since_ms for point in datum.points()]

    def as_json(self) -> dict[str, Any]:
        """What ``GET /points`` answers."""
        return all_points(self._store)

    def forget(self) -> None:
        """Forget data and calls; faults stay."""
        self._store.forget()

    # --- what it does wrong ---

    def script(self, *faults: Fault | None) -> None:
        """One for each of the next PutMetricData requests; None lets one pass."""
        self._handler.faults.add(*faults)

    def stand(self, fault: Fault) -> None:
        """For every PutMetricData request that finds the script empty, until `clear`."""
        self._handler.faults.stand(fault)

    def clear(self) -> None:
        """No fault stands or is scripted any more; no datum is poisonous."""
        self._handler.faults.clear()
        self._handler.poison.clear()

    def poison(self, *texts: str) -> None:
        """Refuse data with such a metric name or dimension value, for a reason that no document tells."""
        self._handler.poison.update(texts)
