"""Serves a strict fake of Amazon CloudWatch over HTTP on loopback, with faults that a test injects.

It accepts PutMetricData in AWS JSON 1.0, plain or gzipped, with every documented limit, the real error codes and, where
they are known, the real messages. A request is stored completely or not at all.
"""

import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from typing import Any, Self

from support.reporters.cloudwatch_service.request_handler import (
    AwsAnswer,
    Call,
    Handler,
    HandlerRequest,
    MetricId,
    MetricStore,
    Refuse,
    StoredDatum,
    StoredPoint,
    read,
)
from support.reporters.cloudwatch_service.request_validation import (
    MetricDatum,
    PutMetricDataRequest,
    RequestProblem,
    Wrong,
)
from support.reporters.injected_faults import HANG, Fault, Hang, Reset, Script, answer_of

NO_ANSWER = 0
"""The status of a call that was not answered."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class FaultyAnswer(AwsAnswer):
    """An answer that is never sent."""

    fault: Hang | Reset = HANG


class ScriptedConnection(BaseHTTPRequestHandler):
    """One kept-alive connection. It hangs or resets if the answer has such a fault."""

    protocol_version = "HTTP/1.1"
    server_version = "FakeCloudWatch"
    sys_version = ""
    wbufsize = -1  # an answer leaves in one piece
    disable_nagle_algorithm = True
    server: "ScriptedCloudWatch"

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:  # the client has closed the connection
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Log nothing, because the handler records each call."""

    def do_GET(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdigit():
            self.send_error(411)
            return
        body = self.rfile.read(int(length))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = HandlerRequest(self.command, self.path, headers, body)
        match answer := self.server.handler.answer(request):
            case FaultyAnswer(fault=Hang()):
                self.close_connection = True
                self.connection.recv(1, socket.MSG_PEEK)  # until the caller or the server closes the connection
            case FaultyAnswer(fault=Reset()):
                self.close_connection = True
                self.server.will_reset(self.connection)
            case _:
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

    do_POST = do_GET  # noqa: N815 (the name that http.server calls)


class ScriptedHandler(Handler):
    """A handler that runs the scripted faults."""

    def __init__(self, store: MetricStore, clock_ms: Callable[[], int]) -> None:
        super().__init__(store, clock_ms)
        self.faults = Script()
        self.poison: set[str] = set()

    def answer(self, request: HandlerRequest) -> AwsAnswer:
        """Answer a request, which is one to PutMetricData unless a subclass knows better."""
        return self.put(request)

    def put(self, request: HandlerRequest) -> AwsAnswer:
        fault = self.faults.take()
        if fault is None:
            return super().put(request)
        now_ms, sent = self._clock_ms(), read(request)
        if isinstance(fault, Refuse):
            self.record(sent, now_ms, fault.status, fault.code, kept=False)
            return answer_of(fault)
        kept = fault.after_keeping and self.why_refused(sent, now_ms) is None
        if kept:
            self.keep(sent, now_ms)
        self.record(sent, now_ms, NO_ANSWER, type(fault).__name__, kept=kept)
        return FaultyAnswer(NO_ANSWER, fault=fault)

    def mistakes(self, content: PutMetricDataRequest, now_ms: int) -> list[RequestProblem]:
        return [*super().mistakes(content, now_ms), *self._poisonous(content)]

    def _poisonous(self, content: PutMetricDataRequest) -> Iterator[RequestProblem]:
        for number, datum in enumerate(content.metric_data or (), 1):
            if _texts(datum) & self.poison:
                path = f"MetricData.member.{number}.Value"
                yield RequestProblem(Wrong.VALUE, f"The value for parameter {path} is not supported.")


def _texts(datum: MetricDatum) -> set[str | None]:
    return {datum.metric_name, *(dimension.value for dimension in datum.dimensions or ())}


class ScriptedCloudWatch(ThreadingHTTPServer):
    """The fake CloudWatch on 127.0.0.1, with a thread for each connection.

    Timestamps are judged by ``clock_ms`` (epoch milliseconds), which is called from the server's own threads. At most
    ``keep`` data and calls are remembered. ``handler`` makes the handler from the store and the clock. ``port`` 0 takes
    a free port.
    """

    daemon_threads = False  # `close` waits for them, so no thread outlives the server
    request_queue_size = 128

    def __init__(
        self,
        *,
        port: int = 0,
        clock_ms: Callable[[], int],
        keep: int = 1_000_000,
        handler: Callable[..., ScriptedHandler] = ScriptedHandler,
    ) -> None:
        super().__init__(("127.0.0.1", port), ScriptedConnection)
        self._store = MetricStore(keep)
        self.handler = handler(self._store, clock_ms)
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._to_reset: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, name="fake-cloudwatch")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The URL for ``AWS_ENDPOINT_URL_CLOUDWATCH``."""
        return f"http://127.0.0.1:{self.server_port}"

    def start(self) -> None:
        """Start to serve, until `close`."""
        self._thread.start()

    def close(self) -> None:
        """Close every connection. Returns when every thread has ended."""
        self.closing.set()
        if self._thread.is_alive():
            socket.create_connection(("127.0.0.1", self.server_port)).close()  # wakes the accepting thread
            self._thread.join()
        with self._lock:
            for connection in self._open:
                with suppress(OSError):  # the client has closed it already
                    connection.shutdown(socket.SHUT_RDWR)
        self.server_close()

    # --- what it kept ---

    @property
    def accepted(self) -> list[StoredDatum]:
        """All data that were accepted, in that order."""
        return self._store.data()

    @property
    def calls(self) -> list[Call]:
        """All requests to PutMetricData, faults among them."""
        return self._store.calls()

    def metrics(self) -> list[MetricId]:
        """Every metric that has stored data, sorted."""
        return sorted({datum.id for datum in self.accepted})

    def points(
        self,
        namespace: str,
        metric: str,
        dimensions: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    ) -> list[StoredPoint]:
        """The points of one metric in the order of their acceptance."""
        pairs = dimensions.items() if isinstance(dimensions, Mapping) else dimensions
        wanted = MetricId(namespace, metric, tuple(sorted(pairs)))
        return [point for datum in self.accepted if datum.id == wanted for point in datum.points()]

    def as_json(self) -> dict[str, Any]:
        """Every metric with its points as ``[timestamp_ms, value]``, and the number of calls for each answer."""
        data = sorted(self.accepted, key=lambda datum: datum.id)
        return {
            "metrics": [_series(metric, list(of)) for metric, of in groupby(data, key=lambda datum: datum.id)],
            "calls": dict(Counter(f"{call.status} {call.code}".strip() for call in self.calls)),
        }

    def forget(self) -> None:
        """Forget data and calls; faults stay."""
        self._store.forget()

    # --- what it does wrong ---

    def script(self, *faults: Fault | None) -> None:
        """One for each of the next PutMetricData requests; None lets one pass."""
        self.handler.faults.add(*faults)

    def stand(self, fault: Fault) -> None:
        """For every PutMetricData request that finds the script empty, until `clear`."""
        self.handler.faults.stand(fault)

    def clear(self) -> None:
        """Remove all faults and all poison."""
        self.handler.faults.clear()
        self.handler.poison.clear()

    def poison(self, *texts: str) -> None:
        """Refuse data with such a metric name or dimension value, for a reason that no document gives."""
        self.handler.poison.update(texts)

    def will_reset(self, connection: socket.socket) -> None:
        """End the connection with a reset instead of an orderly end."""
        with self._lock:
            self._to_reset.add(connection)

    def _accept(self) -> None:
        while not self.closing.is_set():
            self.handle_request()

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 (socketserver passes both)
        """Refuse new connections after `close` has begun."""
        return not self.closing.is_set()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
            reset = request in self._to_reset
            self._to_reset.discard(request)
        if reset:
            request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            request.close()
        super().shutdown_request(request)  # does nothing to a closed connection


def _series(metric: MetricId, data: list[StoredDatum]) -> dict[str, Any]:
    points = [list(point) for datum in data for point in datum.points()]
    return {**metric._asdict(), "dimensions": dict(metric.dimensions), "unit": data[-1].unit, "points": points}
