import gzip
import json
import socket
import threading
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from support.reporters.fake_cloudwatch_client import NOW_MS, SIGNED, boto3_client, datum_dict, put_metric_data
from support.reporters.scripted_cloudwatch import ScriptedCloudWatch

HEADERS = {
    "Authorization": SIGNED,
    "Content-Type": "application/x-amz-json-1.0",
    "Content-Encoding": "gzip",
    "X-Amz-Target": "GraniteServiceVersion20100801.PutMetricData",
}


def full_request() -> bytes:
    """Return a request with 1,000 data, about 250 kB."""
    data = [
        {
            "MetricName": "Lag",
            "Value": float(number),
            "Timestamp": NOW_MS / 1000,
            "Unit": "Count",
            "Dimensions": [
                {"Name": "Cluster", "Value": "production-eu-west-1-kafka"},
                {"Name": "ConsumerGroup", "Value": f"billing-consumer-group-of-the-warehouse-{number}"},
            ],
        }
        for number in range(1000)
    ]
    return json.dumps({"Namespace": "Karrot", "MetricData": data}).encode()


def test_twenty_full_requests_are_kept(fake: ScriptedCloudWatch) -> None:
    body = full_request()
    assert 240_000 < len(body) < 270_000
    compressed = gzip.compress(body)
    with closing(HTTPConnection(urlsplit(fake.url).netloc)) as connection:
        for _ in range(20):
            connection.request("POST", "/", compressed, HEADERS)
            assert connection.getresponse().read() == b"{}"
    assert len(fake.accepted) == 20_000
    assert len(fake.metrics()) == 1000


def test_many_concurrent_callers_lose_and_duplicate_nothing(fake: ScriptedCloudWatch) -> None:
    def call(caller: int) -> None:
        with boto3_client(fake) as cloudwatch:
            for number in range(5):
                point = {"MetricName": f"m{caller}", "Value": float(number)}
                cloudwatch.put_metric_data(Namespace="Karrot", MetricData=[point])  # type: ignore[list-item]

    callers = [threading.Thread(target=call, args=(caller,)) for caller in range(8)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    for caller in range(8):
        assert [point.value for point in fake.points("Karrot", f"m{caller}")] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_all_threads_end_with_the_fake_though_callers_keep_their_connections() -> None:
    before = threading.active_count()
    with ScriptedCloudWatch(clock_ms=lambda: NOW_MS) as fake, boto3_client(fake) as cloudwatch:
        cloudwatch.put_metric_data(Namespace="Karrot", MetricData=[{"MetricName": "Lag", "Value": 1.0}])
        idle = socket.create_connection(("127.0.0.1", urlsplit(fake.url).port or 0))
        fake.close()
        assert threading.active_count() == before
        idle.close()


def test_kept_points_can_be_read_after_the_end() -> None:
    with ScriptedCloudWatch(clock_ms=lambda: NOW_MS) as fake:
        put_metric_data(fake, datum_dict())
    assert len(fake.accepted) == 1


def test_a_fake_that_never_served_can_be_closed() -> None:
    ScriptedCloudWatch(clock_ms=lambda: NOW_MS).close()


def test_a_port_can_be_chosen_and_used_again_at_once() -> None:
    with ScriptedCloudWatch(clock_ms=lambda: NOW_MS) as fake:
        put_metric_data(fake, datum_dict())
        port = urlsplit(fake.url).port or 0
        with pytest.raises(OSError, match="in use"):
            ScriptedCloudWatch(port=port, clock_ms=lambda: NOW_MS)
    with ScriptedCloudWatch(port=port, clock_ms=lambda: NOW_MS) as again:
        assert again.url == fake.url
        put_metric_data(again, datum_dict())


def test_a_caller_that_disconnects_early_does_not_affect_others(fake: ScriptedCloudWatch) -> None:
    with socket.create_connection(("127.0.0.1", urlsplit(fake.url).port or 0)) as caller:
        caller.sendall(b"POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf")
    put_metric_data(fake, datum_dict())
    assert [call.kept for call in fake.calls if call.data] == [True]
