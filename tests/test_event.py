from hypothesis import given
from hypothesis import strategies as st

from karrot.event import FirstUnread, readable
from karrot.history.offsets_at_time import lag_at
from support.burrow.lag_events import make_partition

OFFSETS = st.integers(0, 2**63 - 1)


@given(OFFSETS, OFFSETS, OFFSETS | st.none())
def test_what_can_be_read_is_never_negative_and_never_more_than_the_log_holds(
    end: int, committed: int, start: int | None
) -> None:
    unread = readable(end, committed, start)
    assert unread == max(0, min(end - committed, end - (committed if start is None else start)))


def test_the_log_end_offset_that_kafka_gave_is_never_replaced_by_a_derived_one() -> None:
    assert make_partition(current_lag=0, log_end=1_331).log_end_offset == 1_331


def test_the_position_is_the_committed_offset_or_the_log_start_after_it() -> None:
    assert make_partition().position == make_partition(log_start=508_100).position == 508_100
    assert make_partition(log_start=508_101).position == 508_101
    assert make_partition(end=None, log_start=7).position is None


def test_the_log_end_offset_is_the_commit_and_its_lag() -> None:
    assert make_partition(current_lag=40).log_end_offset == 508_140


def test_the_log_end_offset_is_unknown_without_a_commit_or_a_lag() -> None:
    assert make_partition(end=None).log_end_offset is None
    assert make_partition(current_lag=None).log_end_offset is None


def test_the_lag_of_a_commit_past_a_later_log_end_is_unknown() -> None:
    assert lag_at(90, 2_000, offset=100, committed_ms=1_000) is None
    assert lag_at(90, 1_000, offset=100, committed_ms=2_000) == 0  # the log end is older, so it says nothing
    assert lag_at(120, 2_000, offset=100, committed_ms=1_000) == 20


def test_the_position_is_the_first_unread_record_if_it_is_known() -> None:
    assert make_partition(log_start=508_100, first_unread=FirstUnread(508_120, 1)).position == 508_120
    assert make_partition(end=None, first_unread=FirstUnread(1, 1)).position is None
