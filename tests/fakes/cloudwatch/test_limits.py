"""The fake CloudWatch accepts a value at each limit.

It refuses one beyond the limit with AWS's code and message, and keeps nothing.
"""

import json
import math
from typing import Any

import pytest

from support.reporters.cloudwatch_service import request_validation as limits
from support.reporters.fake_cloudwatch_client import (
    NOW_MS,
    client_error,
    datum_dict,
    put_json,
    put_metric_data,
    utc_time,
)
from support.reporters.scripted_cloudwatch import ScriptedCloudWatch

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


def dimensions(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"Name": name, "Value": value} for name, value in pairs]


def dimension(name: str = "Cluster", value: str = "prod") -> dict[str, Any]:
    return datum_dict(Dimensions=dimensions((name, value)))


def thirty(more: int = 0) -> list[dict[str, str]]:
    return dimensions(*((f"d{number}", "x") for number in range(30 + more)))


def statistics(**changed: float) -> dict[str, float]:
    return {"SampleCount": 2.0, "Sum": 3.0, "Minimum": 1.0, "Maximum": 2.0} | changed


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
    "150 values": datum_dict(Values=[float(number) for number in range(150)]),
    "150 values with counts": datum_dict(Values=[1.0] * 150, Counts=[2.0] * 150),
    "a statistic set": datum_dict(StatisticValues=statistics()),
    "a statistic set of one value": datum_dict(StatisticValues=statistics(Maximum=1.0)),
    "resolution 1": datum_dict(StorageResolution=1),
    "resolution 60": datum_dict(StorageResolution=60),
    **{f"unit {unit}": datum_dict(Unit=unit) for unit in UNITS.split(", ")},
}


@pytest.mark.parametrize("sent", EDGES.values(), ids=EDGES.keys())
def test_a_value_at_a_limit_is_accepted(fake: ScriptedCloudWatch, sent: dict[str, Any]) -> None:
    assert put_metric_data(fake, sent)["HTTPStatusCode"] == 200
    assert len(fake.accepted) == 1


VALUE = "InvalidParameterValue"
COMBINATION = "InvalidParameterCombination"
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
    "151 values": (
        datum_dict(Values=[1.0] * 151),
        f"The collection {MEMBER}.Values must not have a size greater than 150.",
    ),
    "not a number among values": (
        datum_dict(Values=[1.0, math.nan]),
        f"The value ? for parameter {MEMBER}.Values.member.2 is invalid.",
    ),
    "fewer counts than values": (
        datum_dict(Values=[1.0, 2.0], Counts=[1.0]),
        f"The parameters {MEMBER}.Values and {MEMBER}.Counts must be of the same size.",
    ),
    "counts of nothing": (
        datum_dict(Value=1.0, Counts=[1.0]),
        f"The parameters {MEMBER}.Values and {MEMBER}.Counts must be of the same size.",
    ),
    "a maximum below the minimum": (
        datum_dict(StatisticValues=statistics(Maximum=0.0)),
        f"The parameter {MEMBER}.StatisticValues.Maximum must be greater than {MEMBER}.StatisticValues.Minimum.",
    ),
    "no sample": (
        datum_dict(StatisticValues=statistics(SampleCount=0.0)),
        f"The parameter {MEMBER}.StatisticValues.SampleCount must be greater than 0.",
    ),
    "infinity in a statistic set": (
        datum_dict(StatisticValues=statistics(Sum=math.inf)),
        f"The value Infinity for parameter {MEMBER}.StatisticValues.Sum is invalid.",
    ),
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


def both(first: str, second: str) -> str:
    return f"The parameters {MEMBER}.{first} and {MEMBER}.{second} are mutually exclusive and you have specified both."


COMBINATIONS = {
    "no value": (
        {"MetricName": "Lag"},
        f"At least one of the parameters {MEMBER}.Value and {MEMBER}.StatisticValues must be specified.",
    ),
    "an empty list of values": (
        datum_dict(Values=[]),
        f"At least one of the parameters {MEMBER}.Value and {MEMBER}.StatisticValues must be specified.",
    ),
    "a value and values": (datum_dict(Value=1.0, Values=[1.0]), both("Value", "Values")),
    "a value and statistics": (datum_dict(Value=1.0, StatisticValues=statistics()), both("Value", "StatisticValues")),
    "values and statistics": (
        datum_dict(Values=[1.0], StatisticValues=statistics()),
        both("Values", "StatisticValues"),
    ),
}


@pytest.mark.parametrize(("sent", "message"), COMBINATIONS.values(), ids=COMBINATIONS.keys())
def test_a_datum_has_one_kind_of_value(fake: ScriptedCloudWatch, sent: dict[str, Any], message: str) -> None:
    assert client_error(fake, sent) == (COMBINATION, message)
    assert fake.accepted == []


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
    "an incomplete statistic set": (
        {
            "Namespace": "N",
            "MetricData": [
                {"MetricName": "m", "StatisticValues": {"Sum": 1, "SampleCount": 1, "Minimum": 1, "Maximum": None}}
            ],
        },
        f"{MEMBER}.StatisticValues.Maximum",
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
    request = {"Namespace": "N", "MetricData": [{"MetricName": "m", "Value": 1}], "Padding": ""}
    padding = "x" * (limits.REQUEST_BYTES - len(json.dumps(request)))
    assert put_json(fake, request | {"Padding": padding}, compress=compress).status == 200
    answer = put_json(fake, request | {"Padding": padding + "x"}, compress=compress)
    assert (answer.status, answer.code) == (413, "RequestEntityTooLarge;Sender")
    assert answer.json["message"] == "Request size 1000001 exceeded 1000000 bytes"
    assert [(call.kept, call.bytes) for call in fake.calls] == [(True, 1_000_000), (False, 1_000_001)]


ENTITY = {"KeyAttributes": {"Type": "Service", "Name": "karrot"}, "Attributes": {}}


def with_entities(*members: int) -> dict[str, Any]:
    return {"EntityMetricData": [{"Entity": ENTITY, "MetricData": [datum_dict()] * number} for number in members]}


def test_two_entities_with_a_thousand_data_in_total_are_accepted(fake: ScriptedCloudWatch) -> None:
    put_metric_data(fake, *[datum_dict()] * 997, StrictEntityValidation=True, **with_entities(1, 2))
    assert len(fake.accepted) == 1000


def test_more_than_a_thousand_data_in_total_are_refused(fake: ScriptedCloudWatch) -> None:
    message = "The collection MetricData must not have a size greater than 1000."
    assert client_error(fake, *[datum_dict()] * 998, **with_entities(1, 2)) == (VALUE, message)


def test_three_entities_are_refused(fake: ScriptedCloudWatch) -> None:
    message = "The collection EntityMetricData must not have a size greater than 2."
    assert client_error(fake, datum_dict(), **with_entities(1, 1, 1)) == (VALUE, message)


def test_a_datum_of_an_entity_has_the_same_limits(fake: ScriptedCloudWatch) -> None:
    entity = {"Entity": ENTITY, "MetricData": [datum_dict(Value=math.nan)]}
    message = "The value ? for parameter EntityMetricData.member.1.MetricData.member.1.Value is invalid."
    assert client_error(fake, datum_dict(), EntityMetricData=[entity]) == (VALUE, message)


BAD_ENTITY: dict[str, Any] = {
    "EntityMetricData": [{"Entity": {"KeyAttributes": {"Type": "Service"}}, "MetricData": [datum_dict()]}]
}
ENTITY_MESSAGE = "The collection EntityMetricData.member.1.Entity.KeyAttributes must have a size between 2 and 4."


def test_a_bad_entity_is_refused_under_strict_validation(fake: ScriptedCloudWatch) -> None:
    assert client_error(fake, datum_dict(), StrictEntityValidation=True, **BAD_ENTITY) == (VALUE, ENTITY_MESSAGE)
    assert fake.accepted == []


def test_a_bad_entity_is_reported_in_a_header_without_strict_validation(fake: ScriptedCloudWatch) -> None:
    answer = put_metric_data(fake, datum_dict(), **BAD_ENTITY)
    assert answer["HTTPHeaders"]["x-amzn-failure-message"] == ENTITY_MESSAGE
    assert len(fake.accepted) == 2
