"""Handles one request to the fake CloudWatch: validates it, stores its data and makes the answer in AWS JSON 1.0."""

import json
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from support.reporters.cloudwatch_service.request_validation import (
    REQUEST_BYTES,
    Malformed,
    MetricDatum,
    PutMetricDataRequest,
    RequestProblem,
    Wrong,
    decode_json,
    inflate,
    problems,
)

_TARGET = "GraniteServiceVersion20100801.PutMetricData"
_SHAPE_PREFIX = "com.amazonaws.cloudwatch.v2010_08_01"
_HEADERS = {
    "Content-Type": "application/x-amz-json-1.0",
    "x-amzn-RequestId": "00000000-0000-4000-8000-000000000000",
}
_SIGNED = re.compile(r"AWS4-HMAC-SHA256 Credential=([^/]+)/\d{8}/([^/]+)/[^/]+/aws4_request,")
_SHAPES = {
    Wrong.MISSING: "MissingRequiredParameterException",
    Wrong.VALUE: "InvalidParameterValueException",
    Wrong.COMBINATION: "InvalidParameterCombinationException",
}
Dimensions = tuple[tuple[str, str], ...]


class MetricId(NamedTuple):
    """The identity of a metric. The order of dimensions does not matter in CloudWatch, so they are sorted."""

    namespace: str
    metric: str
    dimensions: Dimensions


class StoredPoint(NamedTuple):
    """One value of a metric."""

    timestamp_ms: int
    value: float


@dataclass(frozen=True, slots=True)
class StoredDatum:
    """One accepted datum. ``unit`` is ``None`` if the request had no unit. ``values`` is one value."""

    id: MetricId
    timestamp_ms: int
    values: tuple[float]
    unit: str | None
    resolution: int

    def points(self) -> tuple[StoredPoint]:
        """The value as a point."""
        return (StoredPoint(self.timestamp_ms, *self.values),)


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request to PutMetricData.

    ``code`` is "" for an accepted request. ``kept`` says whether the ``data`` were stored. ``bytes`` is the size of the
    uncompressed body, ``wire_bytes`` the size as received. ``access_key`` and ``region`` come from the signature.
    """

    at_ms: int
    status: int
    code: str
    data: int
    kept: bool
    bytes: int
    wire_bytes: int
    gzip: bool
    access_key: str
    region: str


class MetricStore:
    """Keeps the newest ``most`` data and ``most`` calls. Several threads may use it."""

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._data: deque[StoredDatum] = deque(maxlen=most)
        self._calls: deque[Call] = deque(maxlen=most)

    def keep(self, data: Iterable[StoredDatum]) -> None:
        """Store all data of a request together, so that no reader sees half a request."""
        with self._lock:
            self._data.extend(data)

    def record(self, call: Call) -> None:
        """Add a call."""
        with self._lock:
            self._calls.append(call)

    def data(self) -> list[StoredDatum]:
        """The data, in the order in which they were accepted."""
        with self._lock:
            return list(self._data)

    def calls(self) -> list[Call]:
        """The calls, in the order in which they were answered."""
        with self._lock:
            return list(self._calls)

    def forget(self) -> None:
        """Forget data and calls."""
        with self._lock:
            self._data.clear()
            self._calls.clear()


@dataclass(frozen=True, slots=True)
class HandlerRequest:
    """An HTTP request. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class AwsAnswer:
    """An HTTP answer."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refuse:
    """An error answer. A header for older clients has the name ``code``, the service model has the name ``shape``."""

    status: int
    code: str
    shape: str
    text: str


class Signature(NamedTuple):
    """The client's access key and Region in the Authorization header. The signature itself is not verified."""

    access_key: str
    region: str


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A PutMetricData request, decoded as far as possible."""

    caller: Signature | None
    gzip: bool
    wire_bytes: int
    plain_bytes: int
    content: PutMetricDataRequest | Refuse

    @property
    def data(self) -> Sequence[MetricDatum]:
        """All data of the request, in order."""
        return () if isinstance(self.content, Refuse) else self.content.metric_data or ()


_MISSING_TOKEN = Refuse(
    403, "MissingAuthenticationToken", "MissingAuthenticationTokenException", "Missing Authentication Token"
)
_UNKNOWN_OPERATION = Refuse(400, "InvalidAction", "UnknownOperationException", "Only PutMetricData is served here")


class Handler:
    """Answers requests. Several threads may use it at the same time."""

    def __init__(self, store: MetricStore, clock_ms: Callable[[], int]) -> None:
        self._store = store
        self._clock_ms = clock_ms

    def put(self, request: HandlerRequest) -> AwsAnswer:
        """Store all data of the request or none, and record the call."""
        now_ms, sent = self._clock_ms(), read(request)
        refuse = self.why_refused(sent, now_ms)
        answer = error(refuse) if refuse else AwsAnswer(200, b"{}", _HEADERS)
        if refuse is None:
            self.keep(sent, now_ms)
        self.record(sent, now_ms, answer.status, refuse.code if refuse else "", kept=refuse is None)
        return answer

    def why_refused(self, sent: ReadRequest, now_ms: int) -> Refuse | None:
        """The error answer; ``None`` if the request is accepted."""
        if sent.caller is None:
            return _MISSING_TOKEN
        if isinstance(sent.content, Refuse):
            return sent.content
        found = self.mistakes(sent.content, now_ms)
        if not found:
            return None
        # Report the first kind of mistake, with every mistake of that kind.
        wrong = next(kind for kind in Wrong if any(problem.wrong is kind for problem in found))
        text = "\n".join(problem.text for problem in found if problem.wrong is wrong)
        return Refuse(400, wrong.value, _SHAPES[wrong], text)

    def mistakes(self, content: PutMetricDataRequest, now_ms: int) -> list[RequestProblem]:
        """All mistakes in a request that could be decoded."""
        return problems(content, now_ms)

    def keep(self, sent: ReadRequest, now_ms: int) -> None:
        """Store the data of a request without a mistake."""
        if not isinstance(sent.content, Refuse):
            namespace = sent.content.namespace or ""
            self._store.keep([_kept_datum(namespace, datum, now_ms) for datum in sent.data])

    def record(self, sent: ReadRequest, now_ms: int, status: int, code: str, *, kept: bool) -> None:
        """Record the call and its answer."""
        caller = sent.caller or Signature("", "")
        self._store.record(
            Call(now_ms, status, code, len(sent.data), kept, sent.plain_bytes, sent.wire_bytes, sent.gzip, *caller)
        )


def read(request: HandlerRequest) -> ReadRequest:
    """Decode a PutMetricData request."""
    encoding = request.headers.get("content-encoding", "")
    plain = request.body
    try:
        plain = inflate(plain, encoding)
        content = _content(request, plain)
    except Malformed as malformed:
        content = Refuse(400, "MalformedInput", "SerializationException", str(malformed))
    return ReadRequest(signature(request.headers), encoding == "gzip", len(request.body), len(plain), content)


def _content(request: HandlerRequest, plain: bytes) -> PutMetricDataRequest | Refuse:
    if len(plain) > REQUEST_BYTES:
        text = f"Request size {len(plain)} exceeded {REQUEST_BYTES} bytes"
        return Refuse(413, "RequestEntityTooLarge", "RequestEntityTooLarge", text)
    return decode_json(plain) if request.headers.get("x-amz-target") == _TARGET else _UNKNOWN_OPERATION


def signature(headers: Mapping[str, str]) -> Signature | None:
    """The signature of a request; ``None`` if the request is not signed with version 4."""
    found = _SIGNED.match(headers.get("authorization", ""))
    return Signature(*found.groups()) if found else None


def error(refuse: Refuse) -> AwsAnswer:
    """The HTTP answer for an error."""
    blame = "Sender" if refuse.status < 500 else "Receiver"
    body = json.dumps({"__type": f"{_SHAPE_PREFIX}#{refuse.shape}", "message": refuse.text})
    return AwsAnswer(refuse.status, body.encode(), {**_HEADERS, "x-amzn-query-error": f"{refuse.code};{blame}"})


def _kept_datum(namespace: str, datum: MetricDatum, now_ms: int) -> StoredDatum:
    dimensions = tuple(sorted((entry.name or "", entry.value or "") for entry in datum.dimensions or ()))
    return StoredDatum(
        id=MetricId(namespace, datum.metric_name or "", dimensions),
        timestamp_ms=now_ms if datum.timestamp is None else round(datum.timestamp * 1000),
        values=(float(datum.value or 0),),
        unit=datum.unit,
        resolution=datum.storage_resolution or 60,
    )
