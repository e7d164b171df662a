import json
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given

from karrot.burrow.payload import parse_webhook, to_wire
from karrot.event import AgeKind, LagAge, LagEvent, Source, TopicPartition
from karrot.event_json_line import EventLine, MalformedLine, PartitionLine, decode, encode, event_of, line_of
from karrot.eventlog.base import StoredEvent
from karrot.eventlog.next_group_state import summarize
from karrot.signals import signals_of
from support.burrow.lag_events import event_strategy, make_event, make_partition
from support.burrow.recorded_bodies import recorded_body

LOG_ID = "9f3c1b7a5d2e4f60"


def stored(event: LagEvent, body: bytes | None = None) -> StoredEvent:
    at_ms = 1_746_950_405_120
    return StoredEvent(LOG_ID, 7, at_ms, summarize(event, at_ms), to_wire(event) if body is None else body, event)


def test_a_recorded_body_gives_the_documented_line() -> None:
    body = recorded_body("karrot_v1.9.5_warn.json")
    line = encode(stored(parse_webhook(body, observed_at_ms=1_746_950_405_000), body))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    said = json.loads(line)
    partition = {
        "topic": "orders.v1",
        "partition": 1,
        "status": "WARN",
        "owner": "/10.20.30.40",
        "client_id": "consumer-orders-1",
        "start_offset": 501_000,
        "start_ts_ms": 1_746_950_250_000,
        "start_lag": 1_200,
        "end_offset": 508_100,
        "end_ts_ms": 1_746_950_399_000,
        "end_lag": 9_800,
        "current_lag": 10_440,
        "complete": 1.0,
    }
    assert list(said.items()) == list(
        {
            "v": 1,
            "event_id": f"{LOG_ID}-7",
            "log_id": LOG_ID,
            "seq": 7,
            "received_at_ms": 1_746_950_405_120,
            "observed_at_ms": 1_746_950_405_000,
            "source": "webhook",
            "cluster": "prod-eu",
            "consumer": "orders-svc",
            "status": "WARN",
            "kind": "incident",
            "incident_id": "8d5c0c9e-52a1-4d67-9a54-0f6a2b6f3c11",
            "incident_start_ms": 1_746_950_292_304,
            "total_lag": 11_020,
            "max_lag": 10_440,
            "scalable_lag": 11_020,
            "lag_seconds": said["lag_seconds"],
            "produce_rate": said["produce_rate"],
            "consume_rate": said["consume_rate"],
            "catch_up_seconds": None,
            "complete": 1.0,
            "partition_count": 12,
            "bad_partitions": len(said["partitions"]),
            "max_partition": partition,
            "partitions": said["partitions"],
            "body": body.decode(),
            "lag_seconds_kind": None,
            "lag_seconds_topic": None,
            "lag_seconds_partition": None,
        }.items()
    )
    assert partition in said["partitions"]


def test_a_line_says_how_the_lag_in_seconds_is_known_and_gives_the_same_age_back() -> None:
    age = LagAge(123.5, AgeKind.AT_LEAST, TopicPartition("orders.v1", 3))
    told = make_event()
    line = decode(encode(replace(stored(told), summary=summarize(told, 0, age))))
    found = (line.lag_seconds, line.lag_seconds_kind, line.lag_seconds_topic, line.lag_seconds_partition)
    assert found == (123.5, "at_least", "orders.v1", 3)
    assert event_of(line).summary.signals == signals_of(told).with_age(age)


def test_a_line_has_no_time_of_a_commit_that_only_a_poll_saw() -> None:
    sampled = make_partition(moved_at_ms=0)
    line = decode(encode(stored(make_event(source=Source.KAFKA, max_lag=sampled, partitions=(sampled,)))))
    assert line.max_partition is not None
    assert (line.max_partition.end_offset, line.max_partition.end_ts_ms) == (508_100, None)
    assert (line.max_partition.start_offset, line.max_partition.start_ts_ms) == (501_000, None)


def test_a_line_of_an_older_karrot_has_no_kind() -> None:
    keys = json.loads(encode(stored(make_event())))
    old = {key: value for key, value in keys.items() if not key.startswith("lag_seconds_")}
    line = decode(json.dumps(old).encode())
    assert line.lag_seconds == keys["lag_seconds"]
    assert event_of(line).summary.signals.lag_seconds_kind is None


def test_a_line_without_its_body_has_every_other_value_but_gives_no_event_back() -> None:
    told = stored(make_event())
    line = decode(encode(told, body=False))
    assert line == msgspec.structs.replace(line_of(told), body=None)
    with pytest.raises(MalformedLine, match="KARROT_ARCHIVE_BODY"):
        event_of(line)


def test_a_deleted_group_has_no_lag() -> None:
    gone = make_event(status_text="NOTFOUND", total_lag=0, max_lag=None, partitions=(), incident_id=None)
    line = line_of(stored(gone))
    assert line.kind.value == "deleted"
    assert {line.total_lag, line.max_lag, line.scalable_lag, line.lag_seconds} == {None}


@given(event_strategy())
def test_any_event_can_be_read_back_from_its_line(event: LagEvent) -> None:
    before = stored(event)
    line = decode(encode(before))
    assert line == line_of(before)
    assert event_of(line) == before


@given(event_strategy())
def test_every_line_has_every_key_in_the_order_of_the_format(event: LagEvent) -> None:
    said = json.loads(encode(stored(event)))
    assert tuple(said) == EventLine.__struct_fields__
    for partition in [said["max_partition"], *said["partitions"]]:
        assert partition is None or tuple(partition) == PartitionLine.__struct_fields__


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "Input data was truncated"),
        (b"lag is high", "JSON is malformed: invalid character (byte 0)"),
        (b"{}", "Object missing required field `event_id`"),
        (b'{"v":2}', "Invalid enum value 2 - at `$.v`"),
        (b'{"v":1,"event_id":"\xff"}', "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    ],
    ids=["an empty line", "text that is not JSON", "no event id", "an unknown version", "not UTF-8"],
)
def test_any_other_line_is_refused_with_the_reason(line: bytes, why: str) -> None:
    with pytest.raises(MalformedLine) as caught:
        decode(line)
    assert str(caught.value) == why


def test_a_line_whose_body_is_not_from_burrow_is_refused() -> None:
    line = msgspec.structs.replace(line_of(stored(make_event())), body="{}")
    with pytest.raises(MalformedLine, match="Event"):
        event_of(line)
