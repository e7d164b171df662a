"""The driver keeps the newest log ends of each partition, and gives a bucket those of its own partitions."""

import numpy as np

from karrot.event import LogEnd, TopicPartition
from karrot.pipeline.evaluate.bucket_state import source_key
from karrot.pipeline.evaluate.recent_log_ends import RecentLogEnds
from karrot.pipeline.offsets.log_ends import LogEndLook
from support.pipeline.log_end_looks import look_of


def _look(at_ms: int, **ends: int) -> LogEndLook:
    return look_of([(TopicPartition(topic, 0), LogEnd(at_ms, end)) for topic, end in ends.items()], {*ends})


def test_each_partition_keeps_its_newest_log_ends_in_order_of_time() -> None:
    history = RecentLogEnds(intervals=2, topic_keys={"a": 9, "b": 5, "gone": 7})
    history.add(_look(1, a=10, b=1, gone=1))
    for number in range(40):
        history.add(_look(100 + number, a=100 + number, b=number))
        history.add(_look(100 + number, a=101 + number, b=number))  # the second look of the batch
    assert len(history.as_arrays().ends.source) == 82
    history.forget_old()
    kept = range(137, 140)
    for each in (history, RecentLogEnds(2).load(history.to_table())):
        each.topic_keys = {"a": 9, "b": 5}
        found = each.as_arrays()
        keys = source_key(np.array([9, 5]), np.array([0, 0]))
        assert found.keys.tolist() == sorted(keys.tolist())
        assert found.topics == {"a": 1, "b": 1}
        rows = [*zip(*(column.tolist() for column in found.ends), strict=True)]
        assert rows == [
            (source, at_ms, at_ms + 1 if source == found.source_of(keys)[0] else at_ms - 100, 0)
            for source in (0, 1)
            for at_ms in kept
        ]


def test_a_deleted_topic_has_no_log_ends() -> None:
    history = RecentLogEnds(intervals=2, topic_keys={"a": 9, "b": 5})
    history.add(_look(1, a=10, b=1))
    history.add(_look(2, a=11))
    assert history.topic_keys == {"a": 9}
    assert history.to_table().to_pylist() == [
        {"topic": "a", "partition": 0, "at_ms": 1, "offset": 10, "start": 0},
        {"topic": "a", "partition": 0, "at_ms": 2, "offset": 11, "start": 0},
    ]
    history.add(_look(3))
    assert [len(column) for column in history.as_arrays().ends] == [0, 0, 0, 0]


def test_a_bucket_gets_only_the_log_ends_of_its_own_partitions() -> None:
    history = RecentLogEnds(intervals=2, topic_keys={"a": 9, "b": 5, "c": 7})
    for at_ms in (1, 2):
        history.add(_look(at_ms, a=10 * at_ms, b=at_ms, c=100 * at_ms))
    everything = history.as_arrays()
    keys = source_key(np.array([7, 9, 7, 4]), np.zeros(4, np.int64))
    own = everything.only(keys)
    assert own.topics == everything.topics
    assert sorted(own.keys.tolist()) == sorted({*keys[:3].tolist()})
    expected = {keys[0]: [(1, 100), (2, 200)], keys[1]: [(1, 10), (2, 20)]}
    rows = [*zip(*(column.tolist() for column in own.ends), strict=True)]
    assert rows == sorted(rows)
    for key, found in expected.items():
        [source] = own.source_of(np.array([key]))
        assert [row[1:3] for row in rows if row[0] == source] == found
    assert own.source_of(keys[3:]).tolist() == [-1]
    assert [len(column) for column in everything.only(keys[3:]).ends] == [0, 0, 0, 0]
