import gzip
import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from karrot.demo.local_server import CloudWatchReceiver, serve_locally


@pytest.fixture
def url() -> Iterator[str]:
    receiver = CloudWatchReceiver()
    with serve_locally(receiver.page, receiver.put) as served:
        yield served


def put(url: str, body: bytes, **headers: str) -> tuple[int, Any]:
    with urlopen(Request(url, body, headers)) as answer:
        return answer.status, json.load(answer)


def page(url: str) -> str:
    with urlopen(url) as answer:
        return str(answer.read().decode())


def call(value: float) -> bytes:
    dimensions = [{"Name": "Cluster", "Value": "prod"}]
    datum = {"MetricName": "Lag", "Dimensions": dimensions, "Value": value, "Unit": "Count", "Timestamp": 1.0}
    return json.dumps({"Namespace": "Karrot", "MetricData": [datum]}).encode()


def test_the_page_lists_the_newest_value_of_each_metric(url: str) -> None:
    assert put(url, call(1)) == (200, {})
    assert put(url, gzip.compress(call(1234567)), **{"Content-Encoding": "gzip"}) == (200, {})
    assert "accepted 2 calls" in page(url)
    assert "Karrot Lag Cluster=prod  1234567 Count\n" in page(url)
    assert page(url).count("Lag") == 1


@pytest.mark.parametrize("body", [b"", b"x", gzip.compress(b"{}" * 99)[:-9]], ids=["empty", "other", "cut"])
def test_a_body_that_cannot_be_read_is_refused_without_a_traceback(
    url: str, body: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with closing(HTTPConnection(urlsplit(url).netloc)) as connection:
        connection.request("POST", "/", body, {"Content-Encoding": "gzip"})
        assert connection.getresponse().status == 400
    assert "accepted 0 calls" in page(url)
    assert "Traceback" not in capfd.readouterr().err


def test_a_call_that_is_not_put_metric_data_is_refused(url: str) -> None:
    with pytest.raises(HTTPError, match="400"):
        put(url, b'{"Namespace": 1}')
    assert "accepted 0 calls" in page(url)
