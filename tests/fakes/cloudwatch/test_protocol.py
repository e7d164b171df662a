import gzip
import json
import math
from typing import Any

import pytest

from support.reporters.cloudwatch_service.metric_store import Call, MetricId, StoredPoint
from support.reporters.fake_cloudwatch_client import (
    NOW_MS,
    boto3_client,
    client_error,
    datum_dict,
    put_json,
    put_metric_data,
    send_http,
    utc_time,
)
from support.reporters.scripted_cloudwatch import ScriptedCloudWatch

GOOD = {"Namespace": "Karrot", "MetricData": [{"MetricName": "Lag", "Value": 1.5, "Timestamp": NOW_MS / 1000}]}


def test_json_of_the_real_client_is_understood(fake: ScriptedCloudWatch) -> None:
    put_metric_data(fake, datum_dict(Value=7.0, Unit="Count", Dimensions=[{"Name": "Cluster", "Value": "prod"}]))
    assert fake.points("Karrot", "Lag", {"Cluster": "prod"}) == [StoredPoint(NOW_MS, 7.0)]
    (call,) = fake.calls
    assert call == Call(
        at_ms=NOW_MS,
        status=200,
        code="",
        data=1,
        kept=True,
        bytes=call.wire_bytes,
        wire_bytes=call.wire_bytes,
        gzip=False,
        access_key="AKIDTEST",
        region="eu-west-1",
    )


def test_compressed_bodies_of_the_real_client_are_understood(fake: ScriptedCloudWatch) -> None:
    put_metric_data(fake, *[datum_dict(Value=float(number)) for number in range(1000)])
    (call,) = fake.calls
    assert call.gzip
    assert call.wire_bytes < 10_000
    assert call.bytes > 60_000
    assert [point.value for point in fake.points("Karrot", "Lag")] == [float(number) for number in range(1000)]


def test_a_batch_is_kept_as_a_whole_or_not_at_all(fake: ScriptedCloudWatch) -> None:
    client_error(fake, datum_dict(), datum_dict(Value=math.nan), datum_dict())
    assert (fake.accepted, fake.metrics()) == ([], [])


def test_several_mistakes_are_joined_by_newlines(fake: ScriptedCloudWatch) -> None:
    bad = {"Name": "group", "Value": "ä" * 1025}
    code, message = client_error(fake, datum_dict(Dimensions=[bad]), datum_dict(), datum_dict(Timestamp=utc_time(0)))
    assert code == "InvalidParameterValue"
    assert message.split("\n") == [
        "The parameter MetricData.member.1.Dimensions.member.1.Value must be shorter than 1025 characters.",
        "The value for parameter MetricData.member.1.Dimensions.member.1.Value contains non-ASCII characters.",
        "The parameter MetricData.member.3.Timestamp must specify a time within the past two weeks.",
    ]


def test_mistakes_of_one_kind_are_reported_before_the_next_kind(fake: ScriptedCloudWatch) -> None:
    data: list[Any] = [{"MetricName": "m"}, {"MetricName": "m", "Value": "NaN"}, {"Value": 1}]
    codes = []
    while data:
        answer = put_json(fake, {"Namespace": "N", "MetricData": data})
        codes.append(answer.code)
        data.pop()
    assert codes == ["MissingParameter;Sender", "InvalidParameterValue;Sender", "InvalidParameterCombination;Sender"]


def test_the_error_has_the_shape_of_the_model_and_the_code_of_the_query_protocol(fake: ScriptedCloudWatch) -> None:
    with (
        boto3_client(fake) as cloudwatch,
        pytest.raises(cloudwatch.exceptions.InvalidParameterValueException) as caught,
    ):
        cloudwatch.put_metric_data(Namespace="Karrot", MetricData=[{"MetricName": "m", "Value": math.nan}])
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"


def test_messages_can_leave_out_the_name_of_the_member() -> None:
    with ScriptedCloudWatch(clock_ms=lambda: NOW_MS, names_members=False) as fake:
        code, message = client_error(fake, datum_dict(), datum_dict(Value=math.nan))
    assert (code, message) == ("InvalidParameterValue", "The value ? for parameter Value is invalid.")


def test_a_poisonous_name_is_refused_for_no_documented_reason(fake: ScriptedCloudWatch) -> None:
    fake.poison("hemlock")
    poisonous = datum_dict(Dimensions=[{"Name": "ConsumerGroup", "Value": "hemlock"}])
    message = "The value for parameter MetricData.member.2.Value is not supported."
    assert client_error(fake, datum_dict(), poisonous) == ("InvalidParameterValue", message)
    assert client_error(fake, datum_dict(), datum_dict(MetricName="hemlock")) == ("InvalidParameterValue", message)
    fake.clear()
    put_metric_data(fake, datum_dict(), poisonous)


def test_a_poisonous_name_is_found_in_an_entitys_data_too(fake: ScriptedCloudWatch) -> None:
    fake.poison("hemlock")
    entity = {"Entity": {"KeyAttributes": {"a": "b", "c": "d"}}, "MetricData": [datum_dict(MetricName="hemlock")]}
    assert client_error(fake, datum_dict(), EntityMetricData=[entity]) == (
        "InvalidParameterValue",
        "The value for parameter EntityMetricData.member.1.MetricData.member.1.Value is not supported.",
    )


def test_timestamps_are_judged_by_the_given_clock() -> None:
    now = NOW_MS
    with ScriptedCloudWatch(clock_ms=lambda: now) as fake:
        put_metric_data(fake, datum_dict())
        now += 15 * 24 * 3600 * 1000
        assert client_error(fake, datum_dict())[0] == "InvalidParameterValue"
        put_metric_data(fake, {"MetricName": "Lag", "Value": 2.0})
        assert fake.points("Karrot", "Lag") == [StoredPoint(NOW_MS, 1.0), StoredPoint(now, 2.0)]
        assert [call.at_ms for call in fake.calls] == [NOW_MS, now, now]


def test_the_order_of_dimensions_does_not_change_the_metric(fake: ScriptedCloudWatch) -> None:
    pairs = [{"Name": "ConsumerGroup", "Value": "billing"}, {"Name": "Cluster", "Value": "prod"}]
    put_metric_data(fake, datum_dict(Value=1.0, Dimensions=pairs), datum_dict(Value=2.0, Dimensions=pairs[::-1]))
    dimensions = (("Cluster", "prod"), ("ConsumerGroup", "billing"))
    assert fake.metrics() == [MetricId("Karrot", "Lag", dimensions)]
    assert [point.value for point in fake.points("Karrot", "Lag", dimensions[::-1])] == [1.0, 2.0]


def test_points_since_a_moment_can_be_requested(fake: ScriptedCloudWatch) -> None:
    put_metric_data(
        fake,
        datum_dict(Timestamp=utc_time(NOW_MS - 2)),
        datum_dict(Timestamp=utc_time(NOW_MS)),
        datum_dict(Timestamp=utc_time(NOW_MS - 1)),
    )
    points = fake.points("Karrot", "Lag", since_ms=NOW_MS - 1)
    assert [point.timestamp_ms for point in points] == [NOW_MS, NOW_MS - 1]


MALFORMED = {
    "no JSON": b"{",
    "not UTF-8": b'{"Namespace": "\xff"}',
    "a lone surrogate": b'{"Namespace": "\\ud800"}',
    "not an object": b"[]",
    "a boolean value": b'{"Namespace": "N", "MetricData": [{"MetricName": "m", "Value": true}]}',
    "a value in words": b'{"Namespace": "N", "MetricData": [{"MetricName": "m", "Value": "1"}]}',
    "a time in words": b'{"Namespace": "N", "MetricData": [{"MetricName": "m", "Value": 1, "Timestamp": "2027"}]}',
    "a number as a name": b'{"Namespace": "N", "MetricData": [{"MetricName": 1, "Value": 1}]}',
    "null among the data": b'{"Namespace": "N", "MetricData": [null]}',
    "one datum instead of a list": b'{"Namespace": "N", "MetricData": {"MetricName": "m", "Value": 1}}',
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_body_of_the_wrong_shape_is_refused(fake: ScriptedCloudWatch, body: bytes) -> None:
    answer = send_http(fake, body)
    assert (answer.status, answer.json["__type"].partition("#")[2]) == (400, "SerializationException")
    assert fake.accepted == []


def test_unknown_members_and_nulls_are_ignored(fake: ScriptedCloudWatch) -> None:
    request = {**GOOD, "New": 1, "EntityMetricData": None}
    request["MetricData"] = [{"MetricName": "Lag", "Value": 1.5, "Unit": None, "Timestamp": None, "Extra": []}]
    assert put_json(fake, request).status == 200
    assert fake.points("Karrot", "Lag") == [StoredPoint(NOW_MS, 1.5)]


@pytest.mark.parametrize("body", [b"no gzip", gzip.compress(b"{}")[:-9], b""], ids=["plain", "cut", "empty"])
def test_a_broken_gzip_body_is_refused(fake: ScriptedCloudWatch, body: bytes) -> None:
    answer = send_http(fake, body, content_encoding="gzip")
    assert (answer.status, answer.json["__type"].partition("#")[2]) == (400, "SerializationException")


def test_another_encoding_is_refused(fake: ScriptedCloudWatch) -> None:
    assert send_http(fake, b"{}", content_encoding="br").status == 400


def test_another_operation_is_refused(fake: ScriptedCloudWatch) -> None:
    answer = send_http(fake, b"{}", x_amz_target="GraniteServiceVersion20100801.ListMetrics")
    assert (answer.status, answer.code) == (400, "InvalidAction;Sender")


def test_the_query_protocol_is_refused(fake: ScriptedCloudWatch) -> None:
    form = {"content_type": "application/x-www-form-urlencoded", "x_amz_target": None}
    answer = send_http(fake, b"Action=PutMetricData&Namespace=Karrot", **form)
    assert (answer.status, answer.code) == (400, "InvalidAction;Sender")


def test_an_unsigned_request_is_refused(fake: ScriptedCloudWatch) -> None:
    answer = put_json(fake, GOOD, authorization=None)
    assert (answer.status, answer.code) == (403, "MissingAuthenticationToken;Sender")
    assert fake.accepted == []


def test_a_length_is_required(fake: ScriptedCloudWatch) -> None:
    assert send_http(fake, b"", transfer_encoding="chunked").status == 411


def test_the_kept_points_are_bounded_and_the_oldest_are_dropped() -> None:
    with ScriptedCloudWatch(clock_ms=lambda: NOW_MS, keep=3) as fake:
        put_metric_data(fake, datum_dict(MetricName="old"), *[datum_dict(Value=float(number)) for number in range(4)])
    assert [kept.values for kept in fake.accepted] == [(1.0,), (2.0,), (3.0,)]
    assert fake.metrics() == [MetricId("Karrot", "Lag", ())]
    assert [point.value for point in fake.points("Karrot", "Lag")] == [1.0, 2.0, 3.0]


def test_the_kept_points_can_be_cleared(fake: ScriptedCloudWatch) -> None:
    put_metric_data(fake, datum_dict())
    fake.forget()
    assert (fake.accepted, fake.calls, fake.metrics(), fake.points("Karrot", "Lag")) == ([], [], [], [])


def test_counts_and_statistics_are_kept(fake: ScriptedCloudWatch) -> None:
    statistics = {"SampleCount": 3.0, "Sum": 6.0, "Minimum": 1.0, "Maximum": 4.0}
    put_metric_data(fake, datum_dict(Values=[1.0, 2.0], Counts=[5.0, 6.0]), datum_dict(StatisticValues=statistics))
    values, summary = fake.accepted
    assert (values.values, values.counts, values.statistics) == ((1.0, 2.0), (5.0, 6.0), None)
    assert (summary.values, summary.counts, summary.statistics) == ((), (), (3.0, 6.0, 1.0, 4.0))
    assert [point.value for point in summary.points()] == [1.0, 4.0]


def test_bodies_larger_than_any_limit_do_not_fill_the_memory(fake: ScriptedCloudWatch) -> None:
    answer = send_http(fake, gzip.compress(bytes(80_000_000), 1), content_encoding="gzip")
    assert answer.status == 413
    assert json.loads(answer.body)["message"] == f"Request size {64 * 1024 * 1024} exceeded 1000000 bytes"
