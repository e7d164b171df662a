"""Sends requests to the fake CloudWatch, with boto3 or as plain HTTP."""

import gzip
import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from support.reporters.scripted_cloudwatch import ScriptedCloudWatch

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
def boto3_client(fake: ScriptedCloudWatch, *, attempts: int = 1, **config: Any) -> Iterator["CloudWatchClient"]:
    """Make boto3's own client, with this number of attempts in total."""
    settings = Config(retries={"mode": "standard", "total_max_attempts": attempts}, **config)
    with closing(_session().client("cloudwatch", endpoint_url=fake.url, config=settings)) as opened:
        yield opened


def utc_time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def datum_dict(**members: Any) -> dict[str, Any]:
    """Make a valid datum, with some fields replaced."""
    value = {} if {"Values", "StatisticValues"} & set(members) else {"Value": 1.0}
    return {"MetricName": "Lag", "Timestamp": utc_time(NOW_MS), **value, **members}


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


def send_http(fake: ScriptedCloudWatch, body: bytes = b"", *, get: str | None = None, **headers: Any) -> Response:
    """Send plain HTTP. Underscores in header names become dashes; None removes a header. ``get`` is a path to GET."""
    usual = {
        "authorization": SIGNED,
        "content-type": "application/x-amz-json-1.0",
        "x-amz-target": "GraniteServiceVersion20100801.PutMetricData",
        "x-amzn-query-mode": "true",
    }
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    used = {name: value for name, value in (usual | told).items() if value is not None}
    with closing(HTTPConnection(urlsplit(fake.url).netloc, timeout=10)) as connection:
        connection.request("POST" if get is None else "GET", get or "/", body, used)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Response(answer.status, found, answer.read())


def put_json(fake: ScriptedCloudWatch, request: Any, *, compress: bool = False, **headers: Any) -> Response:
    """Send JSON unchanged, for requests that the real client refuses."""
    body = json.dumps(request).encode()
    if compress:
        return send_http(fake, gzip.compress(body), content_encoding="gzip", **headers)
    return send_http(fake, body, **headers)
