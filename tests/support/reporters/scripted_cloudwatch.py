"""Runs the fake CloudWatch with faults that a test injects, and gives access to its stored data."""

import re
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from support.reporters.cloudwatch_service.fake_cloudwatch import CallerConnection, FakeCloudWatch
from support.reporters.cloudwatch_service.metric_store import (
    Call,
    MetricId,
    MetricStore,
    StoredDatum,
    StoredPoint,
    all_points,
    sorted_dimensions,
)
from support.reporters.cloudwatch_service.request_decoding import MetricDatum, PutMetricDataRequest
from support.reporters.cloudwatch_service.request_handler import (
    AwsAnswer,
    Handler,
    HandlerRequest,
    ReadRequest,
    Refuse,
    read,
)
from support.reporters.cloudwatch_service.request_validation import RequestProblem, Wrong, members
from support.reporters.injected_faults import HANG, UNAVAILABLE, Fault, Hang, Reset, Script, SlowDrip, answer_of

NO_ANSWER = 0
"""The status of a call that was not answered."""
_MEMBER = re.compile(r"(?:Entity)?MetricData\.member\.\d+\.?")
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class FaultyAnswer(AwsAnswer):
    """An answer that ``fault`` delays, or that is never sent."""

    fault: Hang | Reset | SlowDrip = HANG


class ScriptedConnection(CallerConnection):
    """A connection that hangs, resets or sends slowly if the answer has such a fault."""

    server: "ScriptedCloudWatch"

    def send_answer(self, answer: AwsAnswer) -> None:
        match answer:
            case FaultyAnswer(fault=Hang()):
                self.close_connection = True
                self.connection.recv(1, socket.MSG_PEEK)  # until the caller or the server closes the connection
            case FaultyAnswer(fault=Reset()):
                self.close_connection = True
                self.server.will_reset(self.connection)
            case FaultyAnswer(fault=SlowDrip(seconds)):
                self._drip(answer, seconds)
            case _:
                super().send_answer(answer)

    def _drip(self, answer: AwsAnswer, seconds: float) -> None:
        """Send the head at once, and each byte of the body after a pause."""
        self.send_head(answer)
        self.wfile.flush()
        for byte in answer.body:
            if self.server.closing.wait(seconds):
                self.close_connection = True
                return
            self.wfile.write(bytes([byte]))
            self.wfile.flush()


class ScriptedHandler(Handler):
    """A handler that runs the scripted faults.

    With ``names_members`` false, messages do not name the wrong member of the request.
    """

    def __init__(self, store: MetricStore, clock_ms: Callable[[], int], *, names_members: bool) -> None:
        super().__init__(store, clock_ms)
        self.faults = Script()
        self.poison: set[str] = set()
        self.choking: set[str] = set()
        self._names_members = names_members

    def put(self, request: HandlerRequest) -> AwsAnswer:
        fault = self.faults.take()
        if fault is None:
            return super().put(request)
        if isinstance(fault, SlowDrip):
            answer = super().put(request)
            return FaultyAnswer(answer.status, answer.body, answer.headers, fault)
        now_ms, sent = self._clock_ms(), read(request)
        if isinstance(fault, Refuse):
            self.record(sent, now_ms, fault.status, fault.code, kept=False)
            return answer_of(fault)
        kept = fault.after_keeping and self.why_refused(sent, now_ms) is None
        if kept:
            self.keep(sent, now_ms)
        self.record(sent, now_ms, NO_ANSWER, type(fault).__name__, kept=kept)
        return FaultyAnswer(NO_ANSWER, fault=fault)

    def why_refused(self, sent: ReadRequest, now_ms: int) -> Refuse | None:
        if self.choking and any(self.choking & _texts(datum) for datum in sent.data):
            return UNAVAILABLE
        refuse = super().why_refused(sent, now_ms)
        return refuse and (refuse if self._names_members else replace(refuse, text=_MEMBER.sub("", refuse.text)))

    def mistakes(self, content: PutMetricDataRequest, now_ms: int) -> list[RequestProblem]:
        return [*super().mistakes(content, now_ms), *self._poisonous(content)]

    def _poisonous(self, content: PutMetricDataRequest) -> Iterator[RequestProblem]:
        for path, datum in members(content) if self.poison else ():
            if _texts(datum) & self.poison:
                yield RequestProblem(Wrong.VALUE, f"The value for parameter {path}.Value is not supported.")


def _texts(datum: MetricDatum) -> set[str | None]:
    return {datum.metric_name, *(dimension.value for dimension in datum.dimensions or ())}


class _ReadableStore(MetricStore):
    """A store that a test can read whole and empty."""

    def data(self) -> list[StoredDatum]:
        with self._lock:
            return list(self._data)

    def forget(self) -> None:
        with self._lock:
            self._data.clear()
            self._by_metric.clear()
            self._calls.clear()


class ScriptedCloudWatch(FakeCloudWatch):
    """The fake CloudWatch of the tests.

    Timestamps are judged by ``clock_ms`` (epoch milliseconds), which is called from the server's own threads. At most
    ``keep`` data and calls are remembered. ``handler`` makes the handler from the store and the clock.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        clock_ms: Callable[[], int],
        keep: int = 1_000_000,
        names_members: bool = True,
        handler: Callable[..., ScriptedHandler] = ScriptedHandler,
    ) -> None:
        self._store = _ReadableStore(keep)
        self._script = handler(self._store, clock_ms, names_members=names_members)
        self._reset_lock = threading.Lock()
        self._to_reset: set[socket.socket] = set()
        super().__init__(self._script, port=port, connection=ScriptedConnection)

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
        return self._store.metrics()

    def points(
        self,
        namespace: str,
        metric: str,
        dimensions: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        *,
        since_ms: int = 0,
    ) -> list[StoredPoint]:
        """The points of one metric in the order of their acceptance, none with a timestamp before ``since_ms``.

        A datum with several values is as many points; a statistic set is two, its minimum and its maximum.
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
        self._script.faults.add(*faults)

    def stand(self, fault: Fault) -> None:
        """For every PutMetricData request that finds the script empty, until `clear`."""
        self._script.faults.stand(fault)

    def clear(self) -> None:
        """Remove all faults and all poison."""
        self._script.faults.clear()
        self._script.poison.clear()
        self._script.choking.clear()

    def poison(self, *texts: str) -> None:
        """Refuse data with such a metric name or dimension value, for a reason that no document gives."""
        self._script.poison.update(texts)

    def choke(self, *texts: str) -> None:
        """Answer 503 to every request with such a metric name or dimension value."""
        self._script.choking.update(texts)

    def will_reset(self, connection: socket.socket) -> None:
        """End the connection with a reset instead of an orderly end."""
        with self._reset_lock:
            self._to_reset.add(connection)

    def shutdown_request(self, request: Any) -> None:
        with self._reset_lock:
            reset = request in self._to_reset
            self._to_reset.discard(request)
        if reset:
            request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            request.close()
        super().shutdown_request(request)  # does nothing to a closed connection
