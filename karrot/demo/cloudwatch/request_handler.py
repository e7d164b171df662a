"""Handles one request to the fake CloudWatch: checks it, stores its data and writes the answer.

Answers are in AWS JSON 1.0 or in the XML of the query protocol, as the caller speaks.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol as Contract
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from karrot.demo.cloudwatch import request_validation
from karrot.demo.cloudwatch.injected_faults import EXPIRED_TOKEN, Fault, Hang, Refuse, Reset, Script
from karrot.demo.cloudwatch.metric_store import (
    Call,
    MetricId,
    MetricStore,
    Statistics,
    StoredDatum,
    all_points,
    metrics_page,
    sorted_dimensions,
)
from karrot.demo.cloudwatch.put_metric_data import (
    Malformed,
    MetricDatum,
    PutMetricDataRequest,
    decode_json,
    decode_query,
    inflate,
)
from karrot.demo.cloudwatch.request_validation import RequestProblem, Wrong, entity_problems, members, problems

_CLOUDWATCH_XML = "http://monitoring.amazonaws.com/doc/2010-08-01/"
_SHAPE_PREFIX = "com.amazonaws.cloudwatch.v2010_08_01"
_REQUEST_ID = "00000000-0000-4000-8000-000000000000"


class Protocol(Enum):
    """How the caller speaks."""

    JSON = "application/x-amz-json-1.0"
    QUERY = "text/xml"


@dataclass(frozen=True, slots=True)
class AwsAnswer:
    """What goes back."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def accepted(protocol: Protocol, failure: str = "") -> AwsAnswer:
    """PutMetricData's 200. ``failure`` tells of entities that were not associated with their metrics."""
    headers = {"X-Amzn-Failure-Message": failure.replace("\n", " ")} if failure else {}
    body = b"{}"
    if protocol is Protocol.QUERY:
        body = xml_result("PutMetricData", "", _CLOUDWATCH_XML).body
    return AwsAnswer(200, body, _typed(protocol) | headers)


def error(protocol: Protocol, refuse: Refuse, *, namespace: str = _CLOUDWATCH_XML) -> AwsAnswer:
    """The error in the caller's protocol; no body where the error has no shape."""
    if not refuse.shape:
        return AwsAnswer(refuse.status)
    if protocol is Protocol.QUERY:
        return AwsAnswer(refuse.status, _xml_error(refuse, namespace), _typed(protocol))
    headers = _typed(protocol)
    if refuse.query_error:
        headers["x-amzn-query-error"] = f"{refuse.code};{'Sender' if refuse.sender else 'Receiver'}"
    body = json.dumps({"__type": f"{_SHAPE_PREFIX}#{refuse.shape}", "message": refuse.text})
    return AwsAnswer(refuse.status, body.encode(), headers)


def xml_result(action: str, result: str, namespace: str) -> AwsAnswer:
    """A query protocol's 200; ``result`` is XML."""
    inside = f"<{action}Result>{result}</{action}Result>" if result else ""
    body = (
        f'<{action}Response xmlns="{namespace}">{inside}'
        f"<ResponseMetadata><RequestId>{_REQUEST_ID}</RequestId></ResponseMetadata></{action}Response>"
    )
    return AwsAnswer(200, body.encode(), _typed(Protocol.QUERY))


def json_page(content: object) -> AwsAnswer:
    """Plain JSON, for people and for credentials."""
    return AwsAnswer(200, json.dumps(content).encode(), {"Content-Type": "application/json"})


def _typed(protocol: Protocol) -> dict[str, str]:
    return {"Content-Type": protocol.value, "x-amzn-RequestId": _REQUEST_ID}


def _xml_error(refuse: Refuse, namespace: str) -> bytes:
    blame = "Sender" if refuse.sender else "Receiver"
    text = (
        f'<ErrorResponse xmlns="{namespace}"><Error><Type>{blame}</Type><Code>{refuse.code}</Code>'
        f"<Message>{escape(refuse.text)}</Message></Error><RequestId>{_REQUEST_ID}</RequestId></ErrorResponse>"
    )
    return text.encode()


_TARGET = "GraniteServiceVersion20100801."
_FORM = "application/x-www-form-urlencoded"
_MEMBER = re.compile(r"(?:Entity)?MetricData\.member\.\d+\.?")
_SIGNED = re.compile(r"AWS4-HMAC-SHA256 Credential=([^/]+)/\d{8}/([^/]+)/([^/]+)/aws4_request,")
_SHAPES = {
    Wrong.MISSING: "MissingRequiredParameterException",
    Wrong.VALUE: "InvalidParameterValueException",
    Wrong.COMBINATION: "InvalidParameterCombinationException",
}
_MISSING_TOKEN = Refuse(
    403, "MissingAuthenticationToken", "MissingAuthenticationTokenException", "Missing Authentication Token"
)
_UNKNOWN_OPERATION = Refuse(400, "InvalidAction", "UnknownOperationException", "Only PutMetricData is served here")
_NOT_FOUND = AwsAnswer(404, b"Not found\n", {"Content-Type": "text/plain"})


@dataclass(frozen=True, slots=True)
class HandlerRequest:
    """Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class HandlerReply:
    """``fault`` tells how the answer is to be sent, or that it is not."""

    answer: AwsAnswer
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """What the Authorization header says of the caller; the signature itself is not verified."""

    access_key: str
    region: str
    service: str


def signature(headers: Mapping[str, str]) -> Signature | None:
    """None for a request that is not signed by version 4."""
    found = _SIGNED.match(headers.get("authorization", ""))
    return Signature(*found.groups()) if found else None


class CallerKeys(Contract):
    """Gives out the credentials that callers sign with; tests have such a thing."""

    def page(self, path: str) -> AwsAnswer | None:
        """The answer to a GET, ``None`` where nothing is."""

    def sts(self, parameters: Mapping[str, str], caller: Signature | None) -> HandlerReply:
        """The answer to AssumeRole and its like."""

    def is_expired(self, access_key: str) -> bool:
        """Whether a key does not hold any more."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """A PutMetricData request as far as it could be read."""

    protocol: Protocol
    plain_bytes: int
    content: PutMetricDataRequest | Refuse

    @property
    def data(self) -> list[MetricDatum]:
        return [] if isinstance(self.content, Refuse) else [datum for _, datum in members(self.content)]


class Handler:
    """Answers one request at a time per caller's thread; all it shares is safe to share.

    With ``names_members`` false, messages do not tell which member of the request they are about.
    """

    def __init__(
        self, store: MetricStore, clock_ms: Callable[[], int], credentials: CallerKeys | None, *, names_members: bool
    ) -> None:
        self.faults = Script()
        self.poison: set[str] = set()
        self.names_members = names_members
        self._store = store
        self._credentials = credentials
        self._clock_ms = clock_ms

    def answer(self, request: HandlerRequest) -> HandlerReply:
        """Routes."""
        if request.method == "GET":
            return HandlerReply(self._page(request.path.partition("?")[0]))
        if not request.headers.get("content-type", "").startswith(_FORM):
            return self._put(request, Protocol.JSON)
        parameters = _form(request.body)
        if self._credentials and parameters.get("Action", "").startswith("AssumeRole"):
            return self._credentials.sts(parameters, signature(request.headers))
        return self._put(request, Protocol.QUERY)

    def _page(self, path: str) -> AwsAnswer:
        match path.rstrip("/").split("/"):
            case [""]:
                page = metrics_page(self._store).encode()
                return AwsAnswer(200, page, {"Content-Type": "text/html; charset=utf-8"})
            case ["", "points"]:
                return json_page(all_points(self._store))
            case _:
                return (self._credentials and self._credentials.page(path)) or _NOT_FOUND

    def _put(self, request: HandlerRequest, protocol: Protocol) -> HandlerReply:
        fault, now_ms = self.faults.take(), self._clock_ms()
        caller = signature(request.headers)
        sent = _read(request, protocol)
        refuse = fault if isinstance(fault, Refuse) else self._why_refused(sent, caller, now_ms)
        silent = isinstance(fault, Hang | Reset)
        keeps = refuse is None and not (isinstance(fault, Hang | Reset) and not fault.after_keeping)
        if keeps and not isinstance(sent.content, Refuse):
            namespace = sent.content.namespace or ""
            self._store.keep([_kept_datum(namespace, datum, now_ms) for datum in sent.data])
        answer = error(protocol, refuse) if refuse else _accepted(sent)
        self._store.record(
            Call(
                at_ms=now_ms,
                status=None if silent else answer.status,
                code=type(fault).__name__ if silent else refuse.code if refuse else "",
                data=len(sent.data),
                kept=keeps,
                bytes=sent.plain_bytes,
                wire_bytes=len(request.body),
                gzip=request.headers.get("content-encoding") == "gzip",
                access_key=caller.access_key if caller else "",
                region=caller.region if caller else "",
            )
        )
        return HandlerReply(answer, fault)

    def _why_refused(self, sent: _Sent, caller: Signature | None, now_ms: int) -> Refuse | None:
        if caller is None:
            return _MISSING_TOKEN
        if self._credentials and self._credentials.is_expired(caller.access_key):
            return EXPIRED_TOKEN
        if isinstance(sent.content, Refuse):
            return sent.content
        found = [*problems(sent.content, now_ms), *self._poisonous(sent.content)]
        if sent.content.strict_entity_validation:
            found += entity_problems(sent.content)
        return _refusal(found, names_members=self.names_members) if found else None

    def _poisonous(self, content: PutMetricDataRequest) -> Iterator[RequestProblem]:
        for path, datum in members(content) if self.poison else ():
            texts = {datum.metric_name, *(dimension.value for dimension in datum.dimensions or ())}
            if texts & self.poison:
                yield RequestProblem(Wrong.VALUE, f"The value for parameter {path}.Value is not supported.")


def _form(body: bytes) -> dict[str, str]:
    return dict(parse_qsl(body.decode("utf-8", "replace")))


def _read(request: HandlerRequest, protocol: Protocol) -> _Sent:
    plain = request.body
    try:
        plain = inflate(plain, request.headers.get("content-encoding", ""))
        content = _content(request, protocol, plain)
    except Malformed as malformed:
        content = Refuse(400, "MalformedInput", "SerializationException", str(malformed))
    return _Sent(protocol, len(plain), content)


def _content(request: HandlerRequest, protocol: Protocol, plain: bytes) -> PutMetricDataRequest | Refuse:
    if len(plain) > request_validation.REQUEST_BYTES:
        return _too_large(len(plain))
    if protocol is Protocol.JSON:
        is_put = request.headers.get("x-amz-target") == f"{_TARGET}PutMetricData"
        return decode_json(plain) if is_put else _UNKNOWN_OPERATION
    parameters = _form(plain)
    return decode_query(parameters) if parameters.get("Action") == "PutMetricData" else _UNKNOWN_OPERATION


def _too_large(size: int) -> Refuse:
    text = f"Request size {size} exceeded {request_validation.REQUEST_BYTES} bytes"
    return Refuse(413, "RequestEntityTooLarge", "RequestEntityTooLarge", text)


def _refusal(found: Sequence[RequestProblem], *, names_members: bool) -> Refuse:
    """The first kind of mistake that was made, with every mistake of that kind."""
    wrong = next(kind for kind in Wrong if any(problem.wrong is kind for problem in found))
    text = "\n".join(problem.text for problem in found if problem.wrong is wrong)
    if not names_members:
        text = _MEMBER.sub("", text)
    return Refuse(400, wrong.value, _SHAPES[wrong], text)


def _accepted(sent: _Sent) -> AwsAnswer:
    failures = () if isinstance(sent.content, Refuse) else entity_problems(sent.content)
    return accepted(sent.protocol, "; ".join(problem.text for problem in failures))


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
