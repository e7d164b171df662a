from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

from karrot.history.days_with_data import Derived
from karrot.pipeline.derive.job import DayLayout, Layouts, chunks, parts_from, split
from karrot.pipeline.store.table_files import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DAY = date(2026, 11, 20)
_ROWS = dict.fromkeys(range(0, 1_440, 10), 100)


def test_a_day_with_few_rows_is_one_part() -> None:
    assert split([0], _ROWS, 0, 14_400) == [0]


def test_a_new_part_begins_as_soon_as_the_part_before_it_has_enough_rows() -> None:
    assert split([0], _ROWS, 0, 4_800) == [0, 480, 960]


def test_rows_that_were_derived_stay_in_their_part() -> None:
    assert split([0], _ROWS, 725, 4_800) == [0, 730, 1_210]


def test_new_parts_begin_after_the_last_known_part() -> None:
    assert split([0, 480], _ROWS, 725, 4_800) == [0, 480, 960]
    assert split([0, 480], _ROWS, 1_440, 4_800) == [0, 480]


@given(
    rows=st.dictionaries(st.integers(0, 143).map(lambda step: step * 10), st.integers(1, 1_000), min_size=1),
    free=st.integers(0, 1_440),
    most=st.integers(1, 2_000),
)
def test_every_part_but_the_last_has_enough_rows_and_none_has_a_step_too_many(
    rows: dict[int, int], free: int, most: int
) -> None:
    begins = split([0], rows, free, most)
    parts = parts_from(_DAY, begins)
    assert [part.begins for part in parts] == begins == sorted({*begins})
    assert [part.ends for part in parts] == [*begins[1:], 1_440]
    assert all(begin == 0 or begin >= free for begin in begins)
    for part in parts:
        steps = [minute for minute in sorted(rows) if part.begins <= minute < part.ends]
        new = [minute for minute in steps if minute >= max(free, part.begins)]
        assert sum(rows[minute] for minute in steps if minute not in new[-1:]) < most or len(new) <= 1
        assert part.is_last or sum(rows[minute] for minute in steps) >= most


def test_a_chunk_has_each_day_once_and_the_parts_of_a_day_stay_in_order() -> None:
    first, second = parts_from(_DAY, [0, 480, 960]), parts_from(_DAY + timedelta(days=1), [0, 600])
    assert list(chunks([*second, *first])) == [[first[0], second[0]], [first[1], second[1]], [first[2]]]
    days = [parts_from(_DAY + timedelta(days=number), [0])[0] for number in range(10)]
    assert list(chunks(days)) == [days[:8], days[8:]]


def test_a_part_changes_with_batches_that_begin_less_than_the_margin_after_its_end(
    spark: "SparkSession", tmp_path: Path
) -> None:
    written = tmp_path / "verdict_runs" / f"day={_DAY}"
    written.mkdir(parents=True)
    for name in ("verdict_runs.parquet", "verdict_runs-0820.parquet"):
        (written / name).touch()
    midnight_ms = int(datetime.combine(_DAY, time(), UTC).timestamp()) * 1000
    last_ms = midnight_ms + 86_399_999

    def layout(*first_ms: int) -> DayLayout:
        """The layout of the day with batches that begin at these times."""
        batches = [
            Row(table="events", day=_DAY, batch_id=f"b-{number}", rows=9, first_ms=midnight_ms + each, last_ms=last_ms)
            for number, each in enumerate(first_ms)
        ]
        files = [f"events/{_DAY}/batch_id={each.batch_id}/part-0.parquet" for each in batches]
        layouts = Layouts(spark, Tables(str(tmp_path)), batches, timedelta(minutes=10), 1_000_000)
        return layouts.of(_DAY, files, None, stays_whole=False)

    first, second = parts_from(_DAY, [0, 500])
    before = Derived("", parts=layout(0).noted)
    assert layout(0).changed(before) == []
    assert layout(0, 510 * 60_000 - 1).changed(before) == [first, second]
    assert layout(0, 510 * 60_000).changed(before) == [second]
