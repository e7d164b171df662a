from collections.abc import Sequence
from typing import NoReturn

import apsw
import pytest
from hypothesis import given

from karrot.burrow.payload import to_wire
from karrot.event import AgeKind, GroupKey, LagAge, LagEvent, LogEnd, OffsetSample, Source, TopicPartition
from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.log_end_history import MOST_PARTITIONS, LogEndHistory, lag_age
from karrot.eventlog.sqlite.store import MemoryEventLog, SqliteTransaction
from karrot.eventlog.transaction_rules import LOG_END_BYTES
from support.burrow.lag_age_scenarios import ROWS, errors
from support.burrow.lag_events import event_strategy, make_event, make_partition
from support.manual_clock import ManualClock

LOG_MS = 5_000_000
WALL_MS = 1_800_000_000_000
FEW_READINGS = {"0.1 messages/s"}
"""The rows of `ROWS` that need several seeds for a mean."""


class Histories(dict[TopicPartition, LogEndHistory]):
    """The histories of all partitions, without a database."""

    def age(self, event: LagEvent, log_ms: int = LOG_MS) -> LagAge | None:
        return lag_age(event, log_ms, lambda _place, _now: None, self.record)

    def record(self, place: TopicPartition, ends: Sequence[LogEnd]) -> LogEndHistory:
        history = self.setdefault(place, LogEndHistory())
        history.record(ends)
        return history


def verdict(*partitions: tuple[int, int, int], source: Source = Source.KAFKA, at_ms: int = WALL_MS) -> LagEvent:
    """Return a verdict on partitions (number, committed offset, lag)."""
    listed = tuple(
        make_partition(
            topic="orders", partition=number, start=None, end=OffsetSample(committed, at_ms, lag=None), current_lag=lag
        )
        for number, committed, lag in partitions
    )
    return make_event(source=source, observed_at_ms=at_ms, partitions=listed, max_lag=None)


def test_the_largest_age_counts_not_the_largest_lag() -> None:
    histories = Histories()
    histories.age(verdict((0, 0, 0), (1, 0, 0)), LOG_MS - 100_000)
    histories.age(verdict((0, 900, 100), (1, 0, 10)), LOG_MS - 50_000)
    age = histories.age(verdict((0, 900, 1100), (1, 0, 20)))
    assert age == LagAge(100.0, AgeKind.EXACT, TopicPartition("orders", 1))


def test_every_group_of_a_topic_feeds_the_same_history() -> None:
    clock = ManualClock()
    log = MemoryEventLog(clock)
    fast = verdict((0, 1000, 0))._replace(consumer="fast")
    log.append(fast, to_wire(fast))
    clock.advance(600_000)
    fast = verdict((0, 7000, 0), at_ms=clock.wall_ms())._replace(consumer="fast")
    log.append(fast, to_wire(fast))
    clock.advance(10_000)
    slow = verdict((0, 4000, 3000), at_ms=clock.wall_ms())._replace(consumer="slow")
    log.append(slow, to_wire(slow))
    state = log.group(GroupKey(slow.cluster, "slow"))
    assert state is not None
    assert state.summary.signals.lag_seconds == 310.0
    assert state.summary.signals.lag_seconds_kind is AgeKind.EXACT


def told(log: MemoryEventLog, clock: ManualClock, event: LagEvent) -> None:
    clock.advance(1000)
    log.append(event._replace(observed_at_ms=clock.wall_ms()), to_wire(event))


def stored_bytes(log: MemoryEventLog) -> tuple[int, int]:
    """Return the number of bytes that the log counts, and those of the stored histories."""
    with log._file.reading() as connection:
        counted: int = connection.execute("SELECT log_end_bytes FROM log").get
        stored: int = connection.execute(f"SELECT coalesce(sum({LOG_END_BYTES}), 0) FROM log_ends").get
    return counted, stored


def stored_partitions(log: MemoryEventLog) -> list[int]:
    """Return the partitions that have a history."""
    with log._file.reading() as connection:
        return [int(number) for (number,) in connection.execute("SELECT partition FROM log_ends")]


def test_a_history_of_a_refused_event_is_stored_with_the_next_event(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> NoReturn:
        raise apsw.IOError("disk I/O error")

    clock = ManualClock()
    log = MemoryEventLog(clock)
    with monkeypatch.context() as patched:
        patched.setattr(SqliteTransaction, "settle", fail)
        with pytest.raises(LogUnavailableError):
            told(log, clock, verdict((0, 5, 5)))
    assert stored_partitions(log) == []
    told(log, clock, verdict((0, 5, 5)))
    assert stored_partitions(log) == [0]


def test_histories_beyond_the_limit_are_not_stored_and_counted() -> None:
    clock = ManualClock()
    log = MemoryEventLog(clock, log_end_max_bytes=10_000)
    for topic in range(500):
        event = verdict((0, 5, 5))
        partitions = tuple(each._replace(topic=f"t{topic}") for each in event.partitions)
        told(log, clock, event._replace(partitions=partitions, consumer=f"g{topic}"))
    counted, stored = stored_bytes(log)
    assert counted == stored <= 10_000
    dropped = {each.labels: each.value for each in log.counters() if each.name == "karrot_log_ends_dropped_total"}
    assert dropped[("reason", "full"),] > 0
    kept = stored_partitions(log)
    log.prune()
    assert stored_partitions(log) == kept


def test_histories_that_grow_beyond_the_limit_are_deleted_least_recent_first() -> None:
    clock = ManualClock()
    log = MemoryEventLog(clock, log_end_max_bytes=70_000)
    for number in range(300):
        told(log, clock, verdict((number, 5, 5)))
    clock.advance(1_200_000)
    for step in range(200):
        clock.advance(60_000)
        told(log, clock, verdict(*((number, 5, 5 + 7 * step * step) for number in range(20))))
    assert stored_bytes(log)[0] > 70_000
    log.prune()
    counted, stored = stored_bytes(log)
    assert counted == stored <= 63_000
    assert set(range(20)) <= set(stored_partitions(log))


def test_histories_leave_room_for_events_in_a_small_log() -> None:
    clock = ManualClock()
    log = MemoryEventLog(clock, max_bytes=1 << 20)
    for number in range(60):
        told(log, clock, verdict(*((partition, 5, 5) for partition in range(number * 500, number * 500 + 500))))
        log.prune()
    assert log.size().events > 0
    assert stored_bytes(log)[1] <= 1 << 18


def test_histories_without_a_sample_for_the_retention_are_deleted() -> None:
    clock = ManualClock()
    log = MemoryEventLog(clock, retention_ms=3_600_000)
    told(log, clock, verdict((0, 5, 5)))
    clock.advance(3_600_000)
    told(log, clock, verdict((1, 5, 5)))
    clock.advance(1_200_000)
    log.prune()
    counted, stored = stored_bytes(log)
    assert counted == stored
    assert stored_partitions(log) == [1]


def test_a_group_without_lag_has_no_age() -> None:
    assert Histories().age(verdict((3, 500, 0))) == LagAge(0.0, AgeKind.EXACT, TopicPartition("orders", 3))


def test_a_deleted_group_has_an_unknown_age() -> None:
    assert Histories().age(verdict((0, 5, 5))._replace(status_text="NOTFOUND")) is None


def test_a_lag_without_a_commit_has_an_unknown_age() -> None:
    event = make_event(partitions=(make_partition(start=None, end=None, current_lag=5),), max_lag=None)
    assert Histories().age(event) is None


def test_the_max_lag_partition_counts_though_it_is_not_listed() -> None:
    event = verdict((0, 5, 0))
    worst = make_partition(
        topic="orders", partition=9, start=None, end=OffsetSample(5, WALL_MS, lag=None), current_lag=7
    )
    histories = Histories()
    histories.age(event._replace(max_lag=worst))
    assert set(histories) == {TopicPartition("orders", 0), TopicPartition("orders", 9)}


def test_only_the_partitions_with_the_largest_lags_of_a_huge_group_are_looked_up() -> None:
    histories = Histories()
    histories.age(verdict(*((number, 0, number) for number in range(3 * MOST_PARTITIONS))))
    assert sorted(place.partition for place in histories) == list(range(2 * MOST_PARTITIONS, 3 * MOST_PARTITIONS))


@given(event_strategy())
def test_any_event_gives_a_finite_age_or_none(event: LagEvent) -> None:
    age = Histories().age(event)
    assert age is None or 0 <= age.seconds < float("inf")


@pytest.mark.parametrize(
    ("row", "seeds"),
    [
        *((row, 3 if row in FEW_READINGS else 1) for row in ROWS),
        *(pytest.param(row, 3, marks=pytest.mark.deep) for row in ROWS if row not in FEW_READINGS),
    ],
)
def test_the_age_is_as_exact_as_the_page_says(row: str, seeds: int) -> None:
    """The goals of docs/signals.md: 5 %, half an offset-refresh or one gap between messages, whichever is largest."""
    found = [each for each in errors(ROWS[row], seeds=seeds if len(ROWS[row]) > 1 else 1) if each is not None]
    assert found
    for each in found:
        assert each.known == 1.0
        assert each.above_truth == 0
        assert each.goal_share <= 1.0
        if each.error is not None and each.readings >= 50:  # fewer say little about a mean
            assert all(each.error <= other for other in each.others.values() if other is not None)
