"""A day of commits that is derived piece by piece has the rows of a day that is derived at once."""

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from karrot.history.delta_tables import data_files, open_table
from karrot.pipeline.derive.job import DeriveRules, derive
from karrot.pipeline.store.table_files import Tables
from support.pipeline.event_rows import event_of_row, event_row, write_events
from support.pipeline.expected_tables.all_tables import Records, Rules, derived_tables
from support.pipeline.expected_tables.commits import assignments_of, commits_of, log_ends_of
from support.pipeline.expected_tables.comparison import assert_equal_tables
from support.pipeline.offset_rows import commit_row, log_end_row, member_rows
from support.pipeline.row_times import DAY
from support.pipeline.table_files import write_rows

pytestmark = pytest.mark.timeout(1_200)  # the first query of a JVM is slow on a busy machine

_HOUR = 3_600
Rows = list[dict[str, Any]]


class _Day:
    """Tables that get batches, and are derived and compared with plain Python after each of them."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.path, self.batches = spark, path, 0
        self.rows: dict[str, Rows] = {name: [] for name in ("commits", "ends", "members", "events")}

    def derive(self, **batch: Rows) -> None:
        self.batches += 1
        for name, rows in batch.items():
            self.rows[name] += rows
            if name == "events":
                write_events(self.path, f"b-{self.batches}", rows)
            elif rows:
                write_rows(self.path, name, rows, batch=f"b-{self.batches}")
        derive(self.spark, Tables(str(self.path)), DeriveRules())
        told = self.rows
        records = Records(commits_of(told["commits"]), log_ends_of(told["ends"]), assignments_of(told["members"]))
        expected = derived_tables([*map(event_of_row, told["events"])], records, Rules())
        assert_equal_tables(self.path, expected)

    def kept(self, table: str, **batch: Rows) -> list[int]:
        """Derive after a batch. Return the pieces of this table that were not written again."""
        before = self._files(table)
        self.derive(**batch)
        return sorted(hour for hour, path in self._files(table).items() if before.get(hour) == path)

    def _files(self, name: str) -> dict[int, str]:
        table = open_table(str(self.path / name), {})
        assert table is not None
        return {file.piece: file.path for file in data_files(table) if file.day == DAY}


def _steady(begin: float, end: float, partition: int = 0) -> dict[str, Rows]:
    """A commit and a log-end sample every ten minutes between two hours."""
    times = range(int(begin * _HOUR), int(end * _HOUR), 600)
    return {
        "commits": [commit_row(at, "g", at // 2, partition=partition) for at in times],
        "ends": [log_end_row(at + 5, at, partition=partition) for at in times],
    }


def test_new_commits_change_only_the_pieces_that_are_not_earlier(spark: SparkSession, tmp_path: Path) -> None:
    day = _Day(spark, tmp_path)
    day.derive(**_steady(0, 13))
    assert day.kept("lag_minute", **_steady(13, 18.5)) == [0, 6]
    # A new partition counts for the coverage of the whole day.
    assert day.kept("lag_minute", **_steady(18.5, 19, partition=1)) == []
    assert day.kept("partition_lag_minute", **_steady(19, 20, partition=1)) == [0, 6, 12]
    # Before this sample, the log end of the last commit before 18:00 was unknown.
    late = {"ends": [log_end_row(18 * _HOUR + 400, 18 * _HOUR)], "commits": [commit_row(14 * _HOUR, "late", 7)]}
    assert day.kept("partition_lag_minute", **late) == [0, 6]


def test_a_row_without_lag_gets_no_lag_in_seconds_from_a_later_piece(spark: SparkSession, tmp_path: Path) -> None:
    known = [(17 * _HOUR, 50), (18 * _HOUR + 1_800, 80), (18 * _HOUR + 2_100, 120)]
    ends = [log_end_row(seconds, end) for seconds, end in known]
    _Day(spark, tmp_path).derive(ends=ends, commits=[commit_row(17 * _HOUR + 2_400, "g", 100)])


_BORDERS = (6, 12, 18)


def _records(rng: random.Random, groups: int) -> list[tuple[float, str, Rows]]:
    """Random records around the borders of the pieces: the time of arrival, the table and the rows of each."""
    found: list[tuple[float, str, Rows]] = []

    def at() -> float:
        return rng.choice(_BORDERS) * _HOUR + rng.choice([rng.randint(-1_500, 1_500), rng.randint(-9_000, 3_000)])

    def add(seconds: float, name: str, rows: Rows) -> None:
        late = rng.choice([0, 0, 0, 0, 0, 300, 4_000, 30_000])
        found.append((seconds + late, name, rows))

    for number in range(groups):
        group, topics = f"g{number}", [f"t{number % 7}", f"t{(number + 1) % 7}"]
        speed = rng.choice([0.2, 1, 1.2])
        for seconds in sorted(at() for _ in range(rng.randint(1, 14))):
            offset = None if rng.random() < 0.1 else int(seconds * speed) + rng.choice([0, 0, 5])
            topic = rng.choice(topics)  # with one partition that the group has left or not
            add(seconds, "commits", [commit_row(seconds, group, offset, topic, (number + topics.index(topic)) % 2)])
        for generation, seconds in enumerate(sorted({at() // 200 * 200 for _ in range(rng.choice([0, 0, 2, 6]))})):
            # Members that come and go soon: a topic is left only after they have read others for long enough.
            for later in (0, rng.choice([30, 60, 120])):
                one, other = [(topics[0], 0)], [(topics[1], 0)]
                choices: list[dict[str, list[tuple[str, int]]]] = [{}, {"a": one}, {"a": other}, {"a": other, "b": one}]
                owned = {} if later else rng.choice(choices)
                told = member_rows(seconds + later, group, 2 * generation + (later > 0), owned)
                add(seconds + later, "members", told)
    for number in range(7):
        for partition in (0, 1):
            base = 0
            for seconds in sorted(at() for _ in range(rng.randint(4, 40))):
                base = int(seconds) if rng.random() < 0.05 else base  # the topic was created again
                grown = int(min(seconds, 12 * _HOUR) if number == 3 else seconds) - base
                add(seconds, "ends", [log_end_row(seconds, grown, f"t{number}", partition)])
    return found


def _verdicts(rng: random.Random) -> list[tuple[float, str, Rows]]:
    """Verdicts on some groups. Some list all partitions of their group, and some partitions are never polled."""
    found: list[tuple[float, str, Rows]] = []
    for number in range(8):
        for hour in _BORDERS:
            for seconds in range(hour * _HOUR - 900, hour * _HOUR + 900, 240):
                one = {"topic": f"t{number}", "partition": 2 * (number % 2), "end_offset": seconds, "current_lag": 9}
                told = {"total_lag": 9, "partition_count": rng.choice([2, 2, 1 if number == 5 else 2]), "listed": [one]}
                row = event_row(seconds, "warn", "i", consumer=f"g{number}", log_id=f"log {number}", **told)
                found.append((seconds + rng.choice([0, 0, 4_000]), "events", [row]))
    return found


@pytest.mark.parametrize(
    ("seed", "also"),
    [
        (2, "verdicts"),
        *(pytest.param(n, ["", "verdicts"][n % 2], marks=pytest.mark.deep) for n in (1, *range(3, 11))),
    ],
)
def test_commits_give_the_same_rows_in_whatever_turns_they_arrive(
    seed: int, also: str, spark: SparkSession, tmp_path: Path
) -> None:
    rng, day = random.Random(seed), _Day(spark, tmp_path)
    records = [*_records(rng, 40), *(_verdicts(rng) if also else [])]
    turns = sorted(rng.choice(_BORDERS) * _HOUR + rng.randint(-600, 9_000) for _ in range(3))
    for begin, end in zip([0, *turns], [*turns, 4 * 24 * _HOUR], strict=True):
        batch: dict[str, Rows] = {"commits": [], "ends": [], "members": [], "events": []}
        for arrived, name, rows in records:
            if begin <= arrived < end:
                batch[name] += rows
        day.derive(**{name: rows for name, rows in batch.items() if rows})
