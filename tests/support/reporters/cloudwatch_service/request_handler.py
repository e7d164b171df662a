"""Handles one request to the fake CloudWatch: validates it, stores its data and makes the answer in AWS JSON 1.0."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from support.reporters.cloudwatch_service import request_validation
from support.reporters.cloudwatch_service.metric_store import (
    Call,
    MetricId,
    MetricStore,
    Statistics,
    StoredDatum,
    all_points,
    metrics_page,
    sorted_dimensions,
)
from support.reporters.cloudwatch_service.request_decoding import (
    Malformed,
    MetricDatum,
    PutMetricDataRequest,
    decode_json,
    inflate,
)
from support.reporters.cloudwatch_service.request_validation import (
    RequestProblem,
    Wrong,
    entity_problems,
    members,
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
_FIRST_SERVER_ERROR = 500


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


@dataclass(frozen=True, slots=True)
class Signature:
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
    def data(self) -> list[MetricDatum]:
        """All data of the request, in order."""
        return [] if isinstance(self.content, Refuse) else [datum for _, datum in members(self.content)]


_MISSING_TOKEN = Refuse(
    403, "MissingAuthenticationToken", "MissingAuthenticationTokenException", "Missing Authentication Token"
)
_UNKNOWN_OPERATION = Refuse(400, "InvalidAction", "UnknownOperationException", "Only PutMetricData is served here")
_NOT_FOUND = AwsAnswer(404, b"Not found\n", {"Content-Type": "text/plain"})


class Handler:
    """Answers requests. Several threads may use it at the same time."""

    def __init__(self, store: MetricStore, clock_ms: Callable[[], int]) -> None:
        self._store = store
        self._clock_ms = clock_ms

    def answer(self, request: HandlerRequest) -> AwsAnswer:
        """Answer a GET request with a page, and any other request as a call of PutMetricData."""
        return self.page(request.path.partition("?")[0]) if request.method == "GET" else self.put(request)

    def page(self, path: str) -> AwsAnswer:
        """The page at a path."""
        match path.rstrip("/").split("/"):
            case [""]:
                page = metrics_page(self._store).encode()
                return AwsAnswer(200, page, {"Content-Type": "text/html; charset=utf-8"})
            case ["", "points"]:
                return json_page(all_points(self._store))
            case _:
                return _NOT_FOUND

    def put(self, request: HandlerRequest) -> AwsAnswer:
        """Store all data of the request or none, and record the call."""
        now_ms, sent = self._clock_ms(), read(request)
        refuse = self.why_refused(sent, now_ms)
        answer = error(refuse) if refuse else _accepted(sent)
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
        found = problems(content, now_ms)
        return [*found, *entity_problems(content)] if content.strict_entity_validation else found

    def keep(self, sent: ReadRequest, now_ms: int) -> None:
        """Store the data of a request without a mistake."""
        if not isinstance(sent.content, Refuse):
            namespace = sent.content.namespace or ""
            self._store.keep([_kept_datum(namespace, datum, now_ms) for datum in sent.data])

    def record(self, sent: ReadRequest, now_ms: int, status: int, code: str, *, kept: bool) -> None:
        """Record the call and its answer."""
        self._store.record(
            Call(
                at_ms=now_ms,
                status=status,
                code=code,
                data=len(sent.data),
                kept=kept,
                bytes=sent.plain_bytes,
                wire_bytes=sent.wire_bytes,
                gzip=sent.gzip,
                access_key=sent.caller.access_key if sent.caller else "",
                region=sent.caller.region if sent.caller else "",
            )
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
    if len(plain) > request_validation.REQUEST_BYTES:
        text = f"Request size {len(plain)} exceeded {request_validation.REQUEST_BYTES} bytes"
        return Refuse(413, "RequestEntityTooLarge", "RequestEntityTooLarge", text)
    return decode_json(plain) if request.headers.get("x-amz-target") == _TARGET else _UNKNOWN_OPERATION


def signature(headers: Mapping[str, str]) -> Signature | None:
    """The signature of a request; ``None`` if the request is not signed with version 4."""
    found = _SIGNED.match(headers.get("authorization", ""))
    return Signature(*found.groups()) if found else None


def error(refuse: Refuse) -> AwsAnswer:
    """The HTTP answer for an error."""
    blame = "Sender" if refuse.status < _FIRST_SERVER_ERROR else "Receiver"
    body = json.dumps({"__type": f"{_SHAPE_PREFIX}#{refuse.shape}", "message": refuse.text})
    return AwsAnswer(refuse.status, body.encode(), {**_HEADERS, "x-amzn-query-error": f"{refuse.code};{blame}"})


def json_page(content: object) -> AwsAnswer:
    """An HTTP answer with plain JSON."""
    return AwsAnswer(200, json.dumps(content).encode(), {"Content-Type": "application/json"})


def _accepted(sent: ReadRequest) -> AwsAnswer:
    """PutMetricData's answer 200. A header names the entities that were not linked to their metrics."""
    failures = () if isinstance(sent.content, Refuse) else entity_problems(sent.content)
    failed = "; ".join(problem.text for problem in failures).replace("\n", " ")
    return AwsAnswer(200, b"{}", _HEADERS | ({"X-Amzn-Failure-Message": failed} if failed else {}))


def _kept_datum(namespace: str, datum: MetricDatum, now_ms: int) -> StoredDatum:
    dimensions = sorted_dimensions((entry.name or "", entry.value or "") for entry in datum.dimensions or ())
    values = tuple(float(value) for value in datum.values or ()) if datum.value is None else (float(datum.value),)
    sent = datum.statistic_values
    return StoredDatum(
        id=MetricId(namespace, datum.metric_name or "", dimensions),
        timestamp_ms=now_ms if datum.timestamp is None else round(datum.timestamp * 1000),
        values=values,
        counts=tuple(float(value) for value in datum.counts or ()) or (1.0,) * len(values),
        statistics=Statistics(
            *(float(value or 0) for value in (sent.sample_count, sent.sum, sent.minimum, sent.maximum))
        )
        if sent
        else None,
        unit=datum.unit,
        resolution=datum.storage_resolution or 60,
    )
