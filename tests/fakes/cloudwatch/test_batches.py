"""The fake CloudWatch keeps every valid batch exactly once and nothing of an invalid batch."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from support.reporters.cloudwatch_service import request_validation as limits
from support.reporters.fake_cloudwatch_client import NOW_MS, boto3_client, put_json, utc_time
from support.reporters.scripted_cloudwatch import ScriptedCloudWatch

if TYPE_CHECKING:
    from types_boto3_cloudwatch.client import CloudWatchClient

DAY = 24 * 3600 * 1000
MISTAKES: dict[str, Any] = {
    "Unit": "Messages",
    "StorageResolution": 10,
    "Timestamp": utc_time(NOW_MS - 15 * DAY),
    "MetricName": "ü",
    "Dimensions": [{"Name": f"d{number}", "Value": "v"} for number in range(31)],
    "Counts": [1.0] * 151,
}


@pytest.fixture(scope="module")
def kept() -> Iterator[ScriptedCloudWatch]:
    with ScriptedCloudWatch(clock_ms=lambda: NOW_MS) as serving:
        yield serving


@pytest.fixture(scope="module")
def cloudwatch(kept: ScriptedCloudWatch) -> Iterator["CloudWatchClient"]:
    with boto3_client(kept) as opened:
        yield opened


def texts(most: int) -> st.SearchStrategy[str]:
    printable = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=most)
    return printable.filter(lambda text: text.strip() != "")


names = texts(255).filter(lambda name: not name.startswith(":"))
values = st.one_of(
    st.just(0.0),
    st.floats(limits.LEAST, limits.GREATEST),
    st.floats(-limits.GREATEST, -limits.LEAST),
    st.integers(0, 2**64).map(float),
)
dimensions = st.dictionaries(names, texts(60), max_size=30).map(
    lambda pairs: [{"Name": name, "Value": value} for name, value in pairs.items()]
)
data = st.fixed_dictionaries(
    {
        "MetricName": texts(255),
        "Timestamp": st.integers(NOW_MS - 14 * DAY, NOW_MS + 2 * 3600 * 1000).map(utc_time),
    },
    optional={
        "Dimensions": dimensions,
        "Unit": st.sampled_from(limits.UNITS),
        "StorageResolution": st.sampled_from(limits.RESOLUTIONS),
    },
)
valued = st.one_of(
    st.builds(lambda datum, value: {**datum, "Value": value}, data, values),
    st.builds(lambda datum, some: {**datum, "Values": some}, data, st.lists(values, min_size=1, max_size=150)),
)
batches = st.lists(valued, min_size=1, max_size=20)


def as_sent(datum: dict[str, Any]) -> tuple[Any, ...]:
    return (
        datum["MetricName"],
        tuple(sorted((pair["Name"], pair["Value"]) for pair in datum.get("Dimensions", []))),
        round(datum["Timestamp"].timestamp() * 1000),
        tuple(datum.get("Values", ())) or (datum["Value"],),
        datum.get("Unit"),
        datum.get("StorageResolution", 60),
    )


@settings(deadline=None)
@given(batches)
def test_a_valid_batch_is_kept_exactly_once_with_its_values(
    kept: ScriptedCloudWatch, cloudwatch: "CloudWatchClient", batch: list[Any]
) -> None:
    kept.forget()
    cloudwatch.put_metric_data(Namespace="Karrot", MetricData=batch)
    assert [
        (datum.id.metric, datum.id.dimensions, datum.timestamp_ms, datum.values, datum.unit, datum.resolution)
        for datum in kept.accepted
    ] == [as_sent(datum) for datum in batch]
    assert [(call.status, call.data, call.kept) for call in kept.calls] == [(200, len(batch), True)]


@settings(deadline=None)
@given(batches, st.sampled_from(sorted(MISTAKES)), st.data())
def test_one_mistake_refuses_the_whole_batch_and_is_named(
    kept: ScriptedCloudWatch, cloudwatch: "CloudWatchClient", batch: list[Any], mistake: str, choice: st.DataObject
) -> None:
    kept.forget()
    index = choice.draw(st.integers(0, len(batch) - 1))
    bad = [*batch[:index], {**batch[index], mistake: MISTAKES[mistake]}, *batch[index + 1 :]]
    with pytest.raises(ClientError) as caught:
        cloudwatch.put_metric_data(Namespace="Karrot", MetricData=bad)
    code, message = (caught.value.response["Error"][part] for part in ("Code", "Message"))
    assert code == "InvalidParameterValue"
    assert all(f"MetricData.member.{index + 1}." in line for line in message.splitlines())
    assert kept.accepted == []
    assert [(call.status, call.code, call.data, call.kept) for call in kept.calls] == [(400, code, len(batch), False)]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
members = [
    "Namespace", "MetricData", "MetricName", "Dimensions", "Name", "Value", "Values", "Counts", "Timestamp", "Unit",
    "StatisticValues", "StorageResolution", "EntityMetricData", "Entity", "KeyAttributes", "StrictEntityValidation",
]  # fmt: skip
near_requests = st.recursive(
    json_values,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(members), inner, max_size=5),
    max_leaves=20,
)


@settings(deadline=None)
@given(near_requests)
def test_any_json_is_answered_and_either_refused_or_kept_as_a_whole(kept: ScriptedCloudWatch, sent: Any) -> None:
    kept.forget()
    answer = put_json(kept, sent)
    assert answer.status in (200, 400)
    assert [(call.status, call.kept) for call in kept.calls] == [(answer.status, answer.status == 200)]
    assert (len(kept.accepted) > 0) == (answer.status == 200)
