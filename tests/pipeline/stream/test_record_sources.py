import pytest

from karrot.pipeline.stream.record_sources import OffsetRange, lost_offsets, ranges_of_batch

_CHECKPOINT = {
    "sources/0/0": '\0v1\n{"topic":{"0":5,"1":0}}',
    "offsets/0": 'v1\n{"batchWatermarkMs":0}\n{"topic":{"0":9,"1":0}}',
    "offsets/1": 'v1\n{"batchWatermarkMs":0}\n{"topic":{"0":20,"1":3,"2":4}}',
}


def test_a_batch_starts_at_the_end_of_the_one_before_and_the_first_at_the_start_of_the_stream() -> None:
    assert ranges_of_batch(_CHECKPOINT.get, 0, "topic") == {0: OffsetRange(5, 9), 1: OffsetRange(0, 0)}
    assert ranges_of_batch(_CHECKPOINT.get, 1, "topic") == {
        0: OffsetRange(9, 20),
        1: OffsetRange(0, 3),
        2: OffsetRange(4, 4),
    }
    with pytest.raises(FileNotFoundError, match="offsets/2"):
        ranges_of_batch(_CHECKPOINT.get, 2, "topic")


@pytest.mark.parametrize(
    ("passed", "log_start", "first_read", "offsets", "gone"),
    [
        (OffsetRange(10, 20), 0, 10, 10, 0),
        (OffsetRange(10, 20), 10, 14, 10, 0),  # the four records before are compacted away
        (OffsetRange(10, 20), 15, 15, 10, 5),
        (OffsetRange(10, 20), 15, 12, 10, 2),  # the read began at 12, and the log start moved on to 15 later
        (OffsetRange(10, 20), 15, None, 10, 5),
        (OffsetRange(10, 20), 30, None, 10, 10),
        (OffsetRange(10, 10), 30, None, 0, 0),
        (OffsetRange(50, 8), 0, None, 8, 8),  # the topic was recreated: its records so far are skipped
        (OffsetRange(50, 8), 3, None, 5, 5),
    ],
)
def test_unread_records_before_the_log_start_count_as_lost(
    passed: OffsetRange, log_start: int, first_read: int | None, offsets: int, gone: int
) -> None:
    assert passed.offsets(log_start) == offsets
    assert passed.lost(log_start, first_read) == gone


def test_a_partition_with_an_unknown_log_start_has_no_known_losses() -> None:
    ranges = {0: OffsetRange(0, 10), 1: OffsetRange(0, 10)}
    assert lost_offsets(ranges, {1: 4, 9: 100}, {0: 5}) == 4
