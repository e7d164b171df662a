import json
from pathlib import Path
from typing import Any

import pytest

from karrot.burrow.rules import evaluate_group
from karrot.event import OffsetSample
from support.burrow.burrow_storage import Storage
from support.burrow.partition_model import delete_topic

CASES = json.loads((Path(__file__).parents[1] / "data/burrow/evaluation_cases.json").read_text())
NOW = 1_700_000_000


def storage_with(topic: str = "t", *, partitions: int = 1, end: int = 100, **settings: Any) -> Storage:
    storage = Storage(**settings)
    for partition in range(partitions):
        storage.put_log_end(topic, partition, end, partition_count=partitions)
    return storage


def commit(storage: Storage, offset: int, *, order: int = 1, group: str = "g", at: int = NOW, **where: Any) -> bool:
    place: dict[str, Any] = {"topic": "t", "partition": 0, "timestamp_ms": at * 1000, "now": NOW} | where
    return storage.put_commit(group, offset=offset, order=order, **place)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES["group_cases"]])
def test_a_group_gets_burrows_verdict(case: dict[str, Any]) -> None:
    topic, expected = case["topic"], case["expected"]
    storage = Storage(intervals=case["intervals"], min_distance=case["min_distance"])
    for offset in case["brokerOffsets"]:
        storage.put_log_end(topic, 0, offset, partition_count=case["topic_partition_count"])
    for row in case["commits"]:
        commit(
            storage,
            row["offset"],
            order=row["order"],
            group=case["group"],
            topic=topic,
            partition=row["partition"],
            timestamp_ms=row["timestamp"],
            now=case["timeNow"],
        )
    if "then" in case:
        delete_topic(storage, topic)

    partitions = storage.fetch(case["group"], case["timeNow"])
    if expected["status"] == "NOTFOUND":
        assert partitions is None
        return

    assert partitions is not None
    event = evaluate_group(
        case["cluster"], case["group"], partitions, case["timeNow"] * 1000, show_all=case["show_all"]
    )
    said = {
        "status": event.status_text,
        "complete": event.complete,
        "partition_count": event.partition_count,
        "totallag": event.total_lag,
        "cluster": event.cluster,
        "group": event.consumer,
        "len_partitions": len(event.partitions),
    }
    for key in said.keys() & expected.keys():
        assert said[key] == expected[key], key
    if "partition0" in expected:
        first = event.partitions[0]
        assert {"complete": first.complete, "status": first.status_text} == expected["partition0"]
    if "maxlag" in expected:
        assert event.max_lag is not None
        assert event.max_lag.start is not None
        assert event.max_lag.end is not None
        assert expected["maxlag"] == {
            "start_offset": event.max_lag.start.offset,
            "end_offset": event.max_lag.end.offset,
        }


def test_a_commit_older_than_the_expiry_is_dropped() -> None:
    storage = storage_with(expire_group=60)
    assert not commit(storage, 5, at=NOW - 61)
    assert storage.groups() == ()
    assert commit(storage, 5, at=NOW - 60)
    assert storage.groups() == ("g",)


@pytest.mark.parametrize(
    "where",
    [
        pytest.param({"topic": "unknown"}, id="an unknown topic"),
        pytest.param({"partition": 1}, id="a partition without a log end"),
        pytest.param({"partition": 2}, id="a partition above the topic's last"),
        pytest.param({"partition": -1}, id="a negative partition"),
    ],
)
def test_a_commit_without_a_known_log_end_is_dropped(where: dict[str, Any]) -> None:
    storage = Storage()
    storage.put_log_end("t", 0, 100, partition_count=2)
    assert not commit(storage, 5, **where)
    assert storage.fetch("g", NOW) is None


def test_a_commit_makes_its_siblings_known_without_slots() -> None:
    storage = storage_with(partitions=3, intervals=2)
    commit(storage, 40, partition=1)
    partitions = storage.fetch("g", NOW)
    assert partitions is not None
    assert [tracked.slots for tracked in partitions] == [
        (),
        (None, OffsetSample(40, NOW * 1000, lag=60, observed_at_ms=NOW * 1000)),
        (),
    ]


def test_new_partitions_of_a_topic_are_known_once_one_is_committed() -> None:
    storage = storage_with(partitions=1)
    commit(storage, 40)
    storage.put_log_end("t", 2, 7, partition_count=3)
    assert [tracked.partition for tracked in storage.fetch("g", NOW) or ()] == [0]
    commit(storage, 5, partition=2)
    assert [tracked.partition for tracked in storage.fetch("g", NOW) or ()] == [0, 1, 2]


def test_the_newest_log_ends_are_kept() -> None:
    storage = storage_with(intervals=3, end=1)
    for end in (2, 3, 4):
        storage.put_log_end("t", 0, end, partition_count=1)
    commit(storage, 1)
    assert [tracked.broker_offsets for tracked in storage.fetch("g", NOW) or ()] == [(2, 3, 4)]


def test_the_log_ends_of_a_topic_leave_out_partitions_without_one() -> None:
    storage = Storage()
    for partition, end in ((0, 5), (2, 7), (2, 9)):
        storage.put_log_end("t", partition, end, partition_count=4)
    assert storage.log_ends("t") == (5, 9)
    assert storage.log_ends("unknown") is None


def test_a_group_is_purged_when_its_last_commit_is_too_old() -> None:
    storage = storage_with(expire_group=60)
    commit(storage, 5)
    assert storage.fetch("g", NOW + 60) is not None
    assert storage.fetch("g", NOW + 61) is None
    assert storage.groups() == ()


def test_a_commit_out_of_order_does_not_keep_a_group_alive() -> None:
    storage = storage_with(expire_group=60)
    commit(storage, 5, order=9)
    commit(storage, 4, order=8, at=NOW + 30)
    assert storage.fetch("g", NOW + 61) is None


def test_the_raw_timestamp_of_a_merged_commit_keeps_a_group_alive() -> None:
    storage = storage_with(expire_group=60, min_distance=100)
    commit(storage, 5, order=1)
    commit(storage, 6, order=2, at=NOW + 30)
    assert storage.fetch("g", NOW + 90) is not None
    assert storage.fetch("g", NOW + 91) is None


def test_owners_alone_are_purged_by_the_first_fetch() -> None:
    storage = storage_with()
    storage.put_owner("g", "t", 0, "/10.0.0.1", "client")
    assert storage.groups() == ("g",)
    assert storage.fetch("g", NOW) is None
    assert storage.groups() == ()


def test_owners_of_known_partitions_are_returned() -> None:
    storage = storage_with()
    commit(storage, 5)
    storage.put_owner("g", "t", 0, "/10.0.0.1", "client")
    storage.put_owner("g", "unknown", 0, "/10.0.0.1", "client")
    assert [(p.topic, p.owner, p.client_id) for p in storage.fetch("g", NOW) or ()] == [("t", "/10.0.0.1", "client")]


def test_a_group_stays_after_its_topic_is_deleted_but_not_after_its_own_deletion() -> None:
    storage = storage_with()
    commit(storage, 5)
    delete_topic(storage, "t")
    assert storage.fetch("g", NOW) == ()
    storage.delete_group("g")
    storage.delete_group("g")
    assert storage.fetch("g", NOW) is None
