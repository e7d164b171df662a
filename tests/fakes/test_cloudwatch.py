"""The fake CloudWatch is a judge: it accepts a value at each published limit, and refuses one beyond it.

A refusal has AWS's code and message. A request is stored as a whole or not at all.
"""

import gzip
import json
import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from support.reporters import injected_faults as aws
from support.reporters.cloudwatch_service.request_validation import REQUEST_BYTES
from support.reporters.injected_faults import Fault
from support.reporters.scripted_cloudwatch import NO_ANSWER, ScriptedCloudWatch
from support.waiting import wait_for

if TYPE_CHECKING:
    from types_boto3_cloudwatch.client import CloudWatchClient

NOW_MS = 1_800_000_000_000
SIGNED = (
    "AWS4-HMAC-SHA256 Credential=AKIDRAW/20270115/eu-west-1/monitoring/aws4_request, SignedHeaders=host, Signature=0"
)


@cache
def _session() -> boto3.Session:
    return boto3.Session(aws_access_key_id="AKIDTEST", aws_secret_access_key="secret", region_name="eu-west-1")


@contextmanager
def boto3_client(fake: ScriptedCloudWatch, **config: Any) -> Iterator["CloudWatchClient"]:
    settings = Config(retries={"mode": "standard", "total_max_attempts": 1}, **config)
    with closing(_session().client("cloudwatch", endpoint_url=fake.url, config=settings)) as opened:
        yield opened


def utc_time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def datum_dict(**members: Any) -> dict[str, Any]:
    """Make a valid datum, with some fields replaced."""
    return {"MetricName": "Lag", "Timestamp": utc_time(NOW_MS), "Value": 1.0, **members}


def put_metric_data(
    fake: ScriptedCloudWatch, *data: dict[str, Any], namespace: str = "Karrot", **more: Any
) -> dict[str, Any]:
    """Send data with the real client; raises its ClientError."""
    request: Any = {"Namespace": namespace, "MetricData": list(data), **more}
    with boto3_client(fake) as cloudwatch:
        return dict(cloudwatch.put_metric_data(**request)["ResponseMetadata"])


def client_error(fake: ScriptedCloudWatch, *data: dict[str, Any], **more: Any) -> tuple[str, str]:
    """Return the code and message of the refusal; fail if the fake accepts the data."""
    try:
        put_metric_data(fake, *data, **more)
    except ClientError as error:
        return error.response["Error"]["Code"], error.response["Error"]["Message"]
    raise AssertionError("it was accepted")


@dataclass(frozen=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        return self.headers.get("x-amzn-query-error", "")

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def send_http(fake: ScriptedCloudWatch, body: bytes, **headers: Any) -> Response:
    """Send plain HTTP. Underscores in header names become dashes; None removes a header."""
    usual = {
        "authorization": SIGNED,
        "content-type": "application/x-amz-json-1.0",
        "x-amz-target": "GraniteServiceVersion20100801.PutMetricData",
        "x-amzn-query-mode": "true",
    }
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    used = {name: value for name, value in (usual | told).items() if value is not None}
    with closing(HTTPConnection(urlsplit(fake.url).netloc, timeout=10)) as connection:
        connection.request("POST", "/", body, used)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Response(answer.status, found, answer.read())


def put_json(fake: ScriptedCloudWatch, request: Any) -> Response:
    """Send JSON unchanged, for requests that the real client refuses."""
    return send_http(fake, json.dumps(request).encode())


MEMBER = "MetricData.member.1"
DIMENSION = f"{MEMBER}.Dimensions.member.1"
TWO_WEEKS, TWO_HOURS = 14 * 24 * 3600 * 1000, 2 * 3600 * 1000
UNITS = (
    "Seconds, Microseconds, Milliseconds, Bytes, Kilobytes, Megabytes, Gigabytes, Terabytes, Bits, Kilobits, Megabits, "
    "Gigabits, Terabits, Percent, Count, Bytes/Second, Kilobytes/Second, Megabytes/Second, Gigabytes/Second, "
    "Terabytes/Second, Bits/Second, Kilobits/Second, Megabits/Second, Gigabits/Second, Terabits/Second, Count/Second, "
    "None"
)
TOO_OLD = f"The parameter {MEMBER}.Timestamp must specify a time within the past two weeks."


@pytest.fixture
def fake() -> Iterator[ScriptedCloudWatch]:
    with ScriptedCloudWatch(clock_ms=lambda: NOW_MS) as serving:
        yield serving


def dimensions(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"Name": name, "Value": value} for name, value in pairs]


def dimension(name: str = "Cluster", value: str = "prod") -> dict[str, Any]:
    return datum_dict(Dimensions=dimensions((name, value)))


def thirty(more: int = 0) -> list[dict[str, str]]:
    return dimensions(*((f"d{number}", "x") for number in range(30 + more)))


EDGES = {
    "a metric name of 255": datum_dict(MetricName="m" * 255),
    "a metric name of any printable ASCII": datum_dict(MetricName="".join(map(chr, range(32, 127)))),
    "no dimension": datum_dict(Dimensions=[]),
    "30 dimensions": datum_dict(Dimensions=thirty()),
    "a dimension's name of 255": dimension(name="n" * 255),
    "a colon inside a dimension's name": dimension(name="a:b"),
    "a dimension's value of 1024": dimension(value="v" * 1024),
    "a dimension's value of any printable ASCII": dimension(value=":" + "".join(map(chr, range(32, 127)))),
    "two weeks old": datum_dict(Timestamp=utc_time(NOW_MS - TWO_WEEKS)),
    "two hours ahead": datum_dict(Timestamp=utc_time(NOW_MS + TWO_HOURS)),
    "no timestamp": {"MetricName": "Lag", "Value": 1.0},
    "the greatest value": datum_dict(Value=2.0**360),
    "the lowest value": datum_dict(Value=-(2.0**360)),
    "the value nearest to zero": datum_dict(Value=2.0**-360),
    "zero": datum_dict(Value=0.0),
    "resolution 1": datum_dict(StorageResolution=1),
    "resolution 60": datum_dict(StorageResolution=60),
    **{f"unit {unit}": datum_dict(Unit=unit) for unit in UNITS.split(", ")},
}


@pytest.mark.parametrize("sent", EDGES.values(), ids=EDGES.keys())
def test_a_value_at_a_limit_is_accepted(fake: ScriptedCloudWatch, sent: dict[str, Any]) -> None:
    assert put_metric_data(fake, sent)["HTTPStatusCode"] == 200
    assert len(fake.accepted) == 1


VALUE = "InvalidParameterValue"
BEYOND = {
    "a metric name of 256": (
        datum_dict(MetricName="m" * 256),
        f"The parameter {MEMBER}.MetricName must be shorter than 256 characters.",
    ),
    "a metric name that is not ASCII": (
        datum_dict(MetricName="lâg"),
        f"The value for parameter {MEMBER}.MetricName contains non-ASCII characters.",
    ),
    "a blank metric name": (
        datum_dict(MetricName="  "),
        f"The value for parameter {MEMBER}.MetricName must contain a non-whitespace character.",
    ),
    "a control character in a metric name": (
        datum_dict(MetricName="a\x7fb"),
        f"The value for parameter {MEMBER}.MetricName contains control characters.",
    ),
    "31 dimensions": (
        datum_dict(Dimensions=thirty(1)),
        f"The collection {MEMBER}.Dimensions must not have a size greater than 30.",
    ),
    "a dimension's name of 256": (
        dimension(name="n" * 256),
        f"The parameter {DIMENSION}.Name must be shorter than 256 characters.",
    ),
    "a dimension's name that starts with a colon": (
        dimension(name=":a"),
        f"The value :a for parameter {DIMENSION}.Name is invalid.",
    ),
    "a dimension's name that is not ASCII": (
        dimension(name="Clüster"),
        f"The value for parameter {DIMENSION}.Name contains non-ASCII characters.",
    ),
    "a dimension's name twice": (
        datum_dict(Dimensions=dimensions(("a", "1"), ("a", "2"))),
        "No metric may specify the same dimension name twice.",
    ),
    "a dimension's value of 1025": (
        dimension(value="v" * 1025),
        f"The parameter {DIMENSION}.Value must be shorter than 1025 characters.",
    ),
    "a dimension's value that is not ASCII": (
        dimension(value="bestell-gruppe-ä"),
        f"The value for parameter {DIMENSION}.Value contains non-ASCII characters.",
    ),
    "a control character in a dimension's value": (
        dimension(value="a\nb"),
        f"The value for parameter {DIMENSION}.Value contains control characters.",
    ),
    "a blank dimension's value": (
        dimension(value=" "),
        f"The value for parameter {DIMENSION}.Value must contain a non-whitespace character.",
    ),
    "older than two weeks": (datum_dict(Timestamp=utc_time(NOW_MS - TWO_WEEKS - 1)), TOO_OLD),
    "more than two hours ahead": (datum_dict(Timestamp=utc_time(NOW_MS + TWO_HOURS + 1)), TOO_OLD),
    "beyond the greatest value": (
        datum_dict(Value=math.nextafter(2.0**360, math.inf)),
        f"The value {math.nextafter(2.0**360, math.inf)} for parameter {MEMBER}.Value is invalid.",
    ),
    "below the lowest value": (
        datum_dict(Value=math.nextafter(-(2.0**360), -math.inf)),
        f"The value {math.nextafter(-(2.0**360), -math.inf)} for parameter {MEMBER}.Value is invalid.",
    ),
    "nearer to zero than allowed": (
        datum_dict(Value=2.0**-361),
        f"The value {2.0**-361} for parameter {MEMBER}.Value is invalid.",
    ),
    "not a number": (datum_dict(Value=math.nan), f"The value ? for parameter {MEMBER}.Value is invalid."),
    "infinity": (datum_dict(Value=math.inf), f"The value Infinity for parameter {MEMBER}.Value is invalid."),
    "minus infinity": (datum_dict(Value=-math.inf), f"The value -Infinity for parameter {MEMBER}.Value is invalid."),
    "resolution 30": (
        datum_dict(StorageResolution=30),
        f"The parameter {MEMBER}.StorageResolution must be a value in the set [ 1, 60 ].",
    ),
    "an unknown unit": (
        datum_dict(Unit="count"),
        f"The parameter {MEMBER}.Unit must be a value in the set [ {UNITS} ].",
    ),
}


@pytest.mark.parametrize(("sent", "message"), BEYOND.values(), ids=BEYOND.keys())
def test_a_value_one_beyond_a_limit_is_refused(fake: ScriptedCloudWatch, sent: dict[str, Any], message: str) -> None:
    assert client_error(fake, sent) == (VALUE, message)
    assert fake.accepted == []


def test_a_datum_without_a_value_is_refused(fake: ScriptedCloudWatch) -> None:
    words = f"At least one of the parameters {MEMBER}.Value and {MEMBER}.StatisticValues must be specified."
    assert client_error(fake, {"MetricName": "Lag"}) == ("InvalidParameterCombination", words)


NAMESPACES = {
    "n" * 256: "The parameter Namespace must be shorter than 256 characters.",
    "AWS/ECS": "The value AWS/ for parameter Namespace is invalid.",
    ":Karrot": "The value :Karrot for parameter Namespace is invalid.",
    "Kar*rot": "The value Kar*rot for parameter Namespace is invalid.",
    "Kärrot": "The value for parameter Namespace contains non-ASCII characters.",
    "Kar\trot": "The value for parameter Namespace contains control characters.",
    "  ": "The value for parameter Namespace must contain a non-whitespace character.",
}


@pytest.mark.parametrize(
    ("namespace", "message"),
    NAMESPACES.items(),
    ids=["256 characters", "AWS's own", "a colon", "an asterisk", "not ASCII", "a tab", "only spaces"],
)
def test_a_namespace_against_the_rules_is_refused(fake: ScriptedCloudWatch, namespace: str, message: str) -> None:
    assert client_error(fake, datum_dict(), namespace=namespace) == (VALUE, message)
    assert fake.accepted == []


@pytest.mark.parametrize(
    "namespace",
    [pytest.param("n" * 255, id="255 characters"), "GumGum/Kafka/Burrow/ConsumerLag", "aA0.-_/#: z", "AWSx", "aws/x"],
)
def test_other_namespaces_are_accepted(fake: ScriptedCloudWatch, namespace: str) -> None:
    put_metric_data(fake, datum_dict(), namespace=namespace)
    assert [kept.id.namespace for kept in fake.accepted] == [namespace]


def test_a_thousand_data_are_accepted(fake: ScriptedCloudWatch) -> None:
    put_metric_data(fake, *[datum_dict()] * 1000)
    assert len(fake.accepted) == 1000


def test_one_datum_more_is_refused_before_members_are_checked(fake: ScriptedCloudWatch) -> None:
    message = "The collection MetricData must not have a size greater than 1000."
    assert client_error(fake, *[datum_dict(Unit="no such unit")] * 1001) == (VALUE, message)
    assert fake.accepted == []


MISSING = {
    "no namespace": ({"MetricData": [{"MetricName": "m", "Value": 1}]}, "Namespace"),
    "an empty namespace": ({"Namespace": "", "MetricData": [{"MetricName": "m", "Value": 1}]}, "Namespace"),
    "no data": ({"Namespace": "N"}, "MetricData"),
    "an empty list of data": ({"Namespace": "N", "MetricData": []}, "MetricData"),
    "no metric name": ({"Namespace": "N", "MetricData": [{"Value": 1}]}, f"{MEMBER}.MetricName"),
    "an empty metric name": (
        {"Namespace": "N", "MetricData": [{"MetricName": "", "Value": 1}]},
        f"{MEMBER}.MetricName",
    ),
    "no dimension's name": (
        {"Namespace": "N", "MetricData": [{"MetricName": "m", "Value": 1, "Dimensions": [{"Value": "v"}]}]},
        f"{DIMENSION}.Name",
    ),
    "an empty dimension's value": (
        {"Namespace": "N", "MetricData": [{"MetricName": "m", "Value": 1, "Dimensions": [{"Name": "n", "Value": ""}]}]},
        f"{DIMENSION}.Value",
    ),
}


@pytest.mark.parametrize(("request_body", "missing"), MISSING.values(), ids=MISSING.keys())
def test_a_missing_required_field_is_refused(fake: ScriptedCloudWatch, request_body: Any, missing: str) -> None:
    answer = put_json(fake, request_body)
    assert (answer.status, answer.code) == (400, "MissingParameter;Sender")
    assert answer.json["message"] == f"The parameter {missing} is required."
    assert fake.accepted == []


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "gzip"])
def test_a_request_is_at_most_a_megabyte_before_compression(fake: ScriptedCloudWatch, *, compress: bool) -> None:
    request = json.dumps({"Namespace": "N", "MetricData": [{"MetricName": "m", "Value": 1}]}).encode()
    encoding = {"content_encoding": "gzip"} if compress else {}
    for size, status in ((REQUEST_BYTES, 200), (REQUEST_BYTES + 1, 413)):
        body = request.ljust(size)
        answer = send_http(fake, gzip.compress(body) if compress else body, **encoding)
        assert answer.status == status
    assert answer.code == "RequestEntityTooLarge;Sender"
    assert answer.json["message"] == "Request size 1000001 exceeded 1000000 bytes"
    assert [(call.kept, call.bytes) for call in fake.calls] == [(True, 1_000_000), (False, 1_000_001)]


def test_a_batch_is_kept_as_a_whole_or_not_at_all(fake: ScriptedCloudWatch) -> None:
    bad = {"Name": "group", "Value": "ä" * 1025}
    code, message = client_error(fake, datum_dict(Dimensions=[bad]), datum_dict(), datum_dict(Timestamp=utc_time(0)))
    assert code == VALUE
    assert message.split("\n") == [
        f"The parameter {DIMENSION}.Value must be shorter than 1025 characters.",
        f"The value for parameter {DIMENSION}.Value contains non-ASCII characters.",
        "The parameter MetricData.member.3.Timestamp must specify a time within the past two weeks.",
    ]
    assert (fake.accepted, fake.metrics()) == ([], [])


def test_mistakes_of_one_kind_are_reported_before_the_next_kind(fake: ScriptedCloudWatch) -> None:
    data: list[Any] = [{"MetricName": "m"}, {"MetricName": "m", "Value": "NaN"}, {"Value": 1}]
    codes = []
    while data:
        answer = put_json(fake, {"Namespace": "N", "MetricData": data})
        codes.append(answer.code)
        data.pop()
    assert codes == ["MissingParameter;Sender", "InvalidParameterValue;Sender", "InvalidParameterCombination;Sender"]


MALFORMED = {
    "no JSON": b"{",
    "not UTF-8": b'{"Namespace": "\xff"}',
    "not an object": b"[]",
    "a boolean value": b'{"Namespace": "N", "MetricData": [{"MetricName": "m", "Value": true}]}',
    "a value in words": b'{"Namespace": "N", "MetricData": [{"MetricName": "m", "Value": "1"}]}',
    "a time in words": b'{"Namespace": "N", "MetricData": [{"MetricName": "m", "Value": 1, "Timestamp": "2027"}]}',
    "null among the data": b'{"Namespace": "N", "MetricData": [null]}',
    "a member that Karrot never sends": b'{"Namespace": "N", "MetricData": [{"MetricName": "m", "Values": [1]}]}',
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_body_of_the_wrong_shape_is_refused(fake: ScriptedCloudWatch, body: bytes) -> None:
    answer = send_http(fake, body)
    assert (answer.status, answer.json["__type"].partition("#")[2]) == (400, "SerializationException")
    assert fake.accepted == []


@pytest.mark.parametrize("body", [b"no gzip", gzip.compress(b"{}")[:-9], b""], ids=["plain", "cut", "empty"])
def test_a_broken_gzip_body_is_refused(fake: ScriptedCloudWatch, body: bytes) -> None:
    answer = send_http(fake, body, content_encoding="gzip")
    assert (answer.status, answer.json["__type"].partition("#")[2]) == (400, "SerializationException")


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"authorization": None}, 403, "MissingAuthenticationToken;Sender"),
        ({"x_amz_target": "GraniteServiceVersion20100801.ListMetrics"}, 400, "InvalidAction;Sender"),
        ({"content_encoding": "br"}, 400, "MalformedInput;Sender"),
        ({"transfer_encoding": "chunked"}, 411, ""),
    ],
    ids=["not signed", "another operation", "another encoding", "no length"],
)
def test_another_request_is_refused(fake: ScriptedCloudWatch, headers: dict[str, Any], status: int, code: str) -> None:
    answer = send_http(fake, b"" if status == 411 else b"{}", **headers)
    assert (answer.status, answer.code) == (status, code)
    assert fake.accepted == []


SILENT: dict[str, tuple[Fault, type[Exception], str, bool]] = {
    "hang": (aws.HANG, ReadTimeoutError, "Hang", False),
    "hang after keeping": (aws.HANG_AFTER_KEEPING, ReadTimeoutError, "Hang", True),
    "reset": (aws.RESET, ConnectionClosedError, "Reset", False),
    "reset after keeping": (aws.RESET_AFTER_KEEPING, ConnectionClosedError, "Reset", True),
}


@pytest.mark.parametrize(("fault", "error", "code", "kept"), SILENT.values(), ids=SILENT.keys())
def test_a_request_without_an_answer_was_kept_or_not(
    fake: ScriptedCloudWatch, fault: Fault, error: type[Exception], code: str, *, kept: bool
) -> None:
    fake.script(fault)
    patience: dict[str, Any] = {"read_timeout": 0.2} if isinstance(fault, aws.Hang) else {}
    with boto3_client(fake, **patience) as cloudwatch, pytest.raises(error):
        cloudwatch.put_metric_data(Namespace="Karrot", MetricData=[{"MetricName": "Lag", "Value": 1.0}])
    wait_for(lambda: len(fake.calls) > 0)  # the client may give up before the fake has read the request
    assert [(call.status, call.code, call.kept) for call in fake.calls] == [(NO_ANSWER, code, kept)]
    assert len(fake.accepted) == int(kept)


def test_many_concurrent_callers_lose_and_duplicate_nothing(fake: ScriptedCloudWatch) -> None:
    def call(caller: int) -> None:
        for number in range(5):
            put_metric_data(fake, datum_dict(MetricName=f"m{caller}", Value=float(number)))

    callers = [threading.Thread(target=call, args=(caller,)) for caller in range(8)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    for caller in range(8):
        assert [point.value for point in fake.points("Karrot", f"m{caller}")] == [0.0, 1.0, 2.0, 3.0, 4.0]
