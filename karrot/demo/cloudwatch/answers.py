"""Writes the fake CloudWatch's answers, in AWS JSON 1.0 and in the XML of the query protocol."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from xml.sax.saxutils import escape

from karrot.demo.cloudwatch.injected_faults import Refuse

_CLOUDWATCH_XML = "http://monitoring.amazonaws.com/doc/2010-08-01/"
_SHAPES = "com.amazonaws.cloudwatch.v2010_08_01"
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
    body = json.dumps({"__type": f"{_SHAPES}#{refuse.shape}", "message": refuse.text})
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


def html(page: str) -> AwsAnswer:
    """A page."""
    return AwsAnswer(200, page.encode(), {"Content-Type": "text/html; charset=utf-8"})


def _typed(protocol: Protocol) -> dict[str, str]:
    return {"Content-Type": protocol.value, "x-amzn-RequestId": _REQUEST_ID}


def _xml_error(refuse: Refuse, namespace: str) -> bytes:
    blame = "Sender" if refuse.sender else "Receiver"
    text = (
        f'<ErrorResponse xmlns="{namespace}"><Error><Type>{blame}</Type><Code>{refuse.code}</Code>'
        f"<Message>{escape(refuse.text)}</Message></Error><RequestId>{_REQUEST_ID}</RequestId></ErrorResponse>"
    )
    return text.encode()
