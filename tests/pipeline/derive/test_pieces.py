"""A day that is derived piece by piece has the rows of a day that is derived at once."""

import itertools
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from karrot.history.delta_tables import data_files, open_table
from karrot.pipeline.derive.day_pieces import piece_digests
from karrot.pipeline.derive.incidents import incidents, without_summary
from karrot.pipeline.derive.job import DeriveRules, derive
from karrot.pipeline.derive.status_intervals import status_intervals, verdict_runs
from karrot.pipeline.store.table_files import Tables
from support.pipeline.event_rows import event_of_row, event_row, events_frame, partitions_frame, write_events
from support.pipeline.expected_tables import verdicts
from support.pipeline.expected_tables.all_tables import Records, Rules, derived_tables
from support.pipeline.expected_tables.comparison import assert_equal_tables, differences, frame_rows
from support.pipeline.offset_rows import log_end_row
from support.pipeline.row_times import DAY
from support.pipeline.table_files import write_rows

pytestmark = pytest.mark.timeout(300)  # the first query of a JVM is slow on a busy machine

_EVERY_MINUTES = 4
_SILENCE = timedelta(minutes=5)

Rows = list[dict[str, Any]]


def test_a_piece_changes_with_batches_that_begin_less_than_the_margin_after_its_end() -> None:
    midnight_ms = int(datetime.combine(DAY, time(), UTC).timestamp()) * 1000
    six_ten_ms = 370 * 60_000

    def digests(*first_ms: int) -> dict[int, str]:
        """The digests of a day with batches that begin at these times of the day."""
        batches = {(DAY, f"events/b-{number}"): midnight_ms + each for number, each in enumerate(first_ms)}
        files = [f"{batch}.0f/day={DAY}/part-0.parquet".replace("/b-", "/batch_id=b-") for _, batch in batches]
        return piece_digests(DAY, files, batches, timedelta(minutes=10))

    def changed(*first_ms: int) -> list[int]:
        before, after = digests(0), digests(0, *first_ms)
        return [hour for hour in after if after[hour] != before[hour]]

    assert changed() == []
    assert changed(six_ten_ms - 1) == [0, 6, 12, 18]
    assert changed(six_ten_ms) == [6, 12, 18]
    assert changed(86_399_999) == [18]
    assert changed(86_399_999, six_ten_ms) == [6, 12, 18]


def _verdicts(first: int, until: int, *, day: int = 0, **columns: Any) -> Rows:
    """A verdict every four minutes, with the one partition. From 07:40 to 12:32, the group has an incident."""
    return [
        event_row(
            86_400 * day + 60 * minute,
            "warn" if 460 <= minute < 752 else "ok",
            "i" if 460 <= minute < 752 else None,
            total_lag=minute % 100,
            partition_count=1,
            listed=[{"topic": "t", "partition": 0, "end_offset": 9 * minute, "current_lag": minute % 100}],
            **columns,
        )
        for minute in range(first, until, _EVERY_MINUTES)
    ]


def _behind(minute: int, committed: int, end: int) -> dict[str, Any]:
    """A verdict whose lag in seconds is unknown."""
    worst = {"topic": "u", "partition": 0, "status": "WARN", "end_offset": committed, "current_lag": end - committed}
    columns = {
        "max_lag_topic": "u",
        "max_lag_partition": 0,
        "max_lag_committed": committed,
        "max_lag": end - committed,
        "lag_seconds_kind": "at_least",
        "lag_seconds_topic": "u",
        "lag_seconds_partition": 0,
    }
    group = {"consumer": "behind", "log_id": "a third"}
    return event_row(60 * minute, "warn", "j", max_partition=worst, **columns, **group)


def _files(tables: Tables, day: date = DAY) -> dict[int, str]:
    """The file of each piece of a day of ``lag_minute``."""
    table = open_table(f"{tables.directory}/lag_minute", {})
    assert table is not None
    return {file.piece: file.path for file in data_files(table) if file.day == day}


@pytest.mark.deep
def test_new_events_change_only_the_pieces_that_are_not_earlier_and_all_rows_are_right(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The running day has pieces, and a past day that is derived as a whole is one file."""
    tables, so_far, past, next_day = Tables(str(tmp_path)), Rows(), DAY - timedelta(days=3), DAY + timedelta(days=1)

    def kept_after(batch: str, rows: Rows, days: Sequence[date]) -> list[int]:
        """Derive these days after a new batch, and check all rows. Return the pieces that were not written again."""
        write_events(tmp_path, batch, rows)
        so_far.extend(rows)
        before = _files(tables) if batch != "first" else {}
        assert derive(spark, tables, DeriveRules()) == days
        assert_equal_tables(tmp_path, derived_tables([*map(event_of_row, so_far)], Records(), Rules()))
        return sorted(hour for hour, path in _files(tables).items() if before.get(hour) == path)

    first = [*_verdicts(0, 720), *_verdicts(0, 720, day=-3)]
    # By the log end that is twice as high, the age of this verdict would be extrapolated. That log end is later.
    first += [_behind(100, 400, 1_000)]
    assert kept_after("first", first, [past, DAY]) == []
    assert ([*_files(tables, past)], sorted(_files(tables))) == ([0], [0, 6])
    late = _verdicts(372, 720, consumer="late", log_id="another")
    grown = [*_verdicts(720, 1_100), *late, *_verdicts(720, 1_080, day=-3), _behind(900, 1_600, 1_700)]
    assert kept_after("grown", grown, [past, DAY]) == [0]
    assert ([*_files(tables, past)], sorted(_files(tables))) == ([0], [0, 6, 12, 18])
    # After midnight, the day keeps its pieces until an event changes the first one.
    assert kept_after("midnight", [*_verdicts(1_428, 1_440), *_verdicts(0, 12, day=1)], [DAY, next_day]) == [0, 6, 12]
    # These samples also change the rates on both sides of two midnights.
    late = [row for day, minute in ((-1, 1_439), (0, 1), (0, 1_437)) for row in _verdicts(minute, minute + 1, day=day)]
    assert kept_after("late", [row | {"log_id": "late"} for row in late], [DAY - timedelta(days=1), DAY]) == []
    assert [*_files(tables)] == [*_files(tables, DAY - timedelta(days=1))] == [0]
    assert sorted(_files(tables, next_day)) == [0]
    # Log ends change all pieces of the running day, because an event could list the partitions of a group with commits.
    write_rows(tmp_path, "ends", [log_end_row(86_400, 1, "u")], batch="ends")
    assert kept_after("running", _verdicts(700, 804, day=1), [next_day]) == [0]
    assert sorted(_files(tables, next_day)) == [0, 6, 12]


# --- Runs of verdicts ---

_WITHOUT_ID = [(word, None) for word in ("ok", "ok", "warn", "err", "gone")]
"""A verdict that closes an incident always names it: see `karrot.event.LagEvent.kind`."""

_EVENT = st.fixed_dictionaries(
    {
        # Near the borders of the pieces.
        "seconds": st.builds(lambda hour, after: hour * 3_600 + after, st.sampled_from([6, 12]), st.integers(-60, 60)),
        "late": st.sampled_from([0, 0, 30, 60, 4_000]),
        "said": st.sampled_from([*_WITHOUT_ID, *itertools.product(["warn", "err", "close"], "ab")]),
        "consumer": st.sampled_from("abcdefghijkl"),
    }
)


def _rows_of(spark: SparkSession, rows: Rows, cuts: Sequence[int]) -> DataFrame:
    """Make ``verdict_runs`` in runs that each derive the pieces from one of the ``cuts`` until the next."""
    made: list[DataFrame] = []
    for begins, ends in zip(cuts, [*cuts[1:], 24], strict=True):
        some = [row for row in rows if begins <= row["received_at"].hour < ends]
        earlier = reduce(DataFrame.unionByName, made) if made else None
        frames = events_frame(spark, some), partitions_frame(spark, some)
        made.append(verdict_runs(*frames, silence=_SILENCE, earlier=earlier).localCheckpoint())
    return reduce(DataFrame.unionByName, made)


@pytest.mark.parametrize("examples", [5, pytest.param(25, marks=pytest.mark.deep)])
def test_verdicts_give_the_same_rows_in_whatever_runs_their_pieces_are_derived(
    spark: SparkSession, examples: int
) -> None:
    @settings(max_examples=examples)
    @given(
        told=st.lists(_EVENT, min_size=120, max_size=360),
        cuts=st.sampled_from([[0], [0, 6], [0, 12], [0, 6, 12], [0, 6, 12, 18]]),
    )
    def check(told: Rows, cuts: list[int]) -> None:
        rows = [event_row(one["seconds"], *one["said"], consumer=one["consumer"], late=one["late"]) for one in told]
        events, silence_ms = [*map(event_of_row, rows)], _SILENCE // timedelta(milliseconds=1)
        runs = _rows_of(spark, rows, cuts)
        newest = datetime.fromtimestamp(verdicts.newest_verdict(events) / 1000, UTC)
        found = {
            "verdict_runs": runs.drop("piece"),
            "status_intervals": status_intervals(runs, silence=_SILENCE, as_of=newest),
            "incidents": incidents(without_summary(runs), silence=_SILENCE, as_of=newest),
        }
        for name, frame in found.items():
            expected = getattr(verdicts, name)(events, silence_ms)
            assert differences(name, expected, frame_rows(frame)) == []

    check()
