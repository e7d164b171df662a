"""A day in parts has the rows of a whole day, and only the parts that can change are derived again."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from karrot.pipeline.derive.job import DeriveRules, derive
from karrot.pipeline.schemas_and_conversions import DERIVED
from karrot.pipeline.store.table_files import Tables
from support.pipeline.event_rows import event_of_row, event_row, write_events
from support.pipeline.expected_tables.all_tables import Records, Rules, derived_tables
from support.pipeline.expected_tables.comparison import assert_equal_tables
from support.pipeline.offset_rows import log_end_row
from support.pipeline.row_times import DAY
from support.pipeline.table_files import write_rows

_EVERY_MINUTES = 4
_PART_ROWS = 180
_DAYS_LATER = 3

Rows = list[dict[str, Any]]


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


def _parts(tables: Tables, day: date = DAY) -> dict[str, int]:
    """The parts of a day by the time at which they begin, each with the inode of its file."""
    found = Path(tables.directory, "lag_minute", f"day={day}").glob("*.parquet")
    return {path.stem.partition("-")[2] or "0000": path.stat().st_ino for path in found}


def test_a_day_that_grows_is_derived_in_parts_and_has_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    tables, so_far, another_day = Tables(str(tmp_path)), Rows(), DAY + timedelta(days=_DAYS_LATER)

    def kept_after(batch: str, rows: Rows) -> list[str]:
        """Derive after a new batch, and check all rows. Return the parts that were not written again."""
        write_events(tmp_path, batch, rows)
        so_far.extend(rows)
        before = _parts(tables)
        assert derive(spark, tables, DeriveRules(), part_rows=_PART_ROWS) == [DAY, another_day]
        events = [*map(event_of_row, so_far)]
        expected = derived_tables(events, Records(), Rules())
        assert_equal_tables(tmp_path, {name: expected[name] for name in DERIVED.keys() - {"verdict_runs"}})
        return sorted(begins for begins, inode in _parts(tables).items() if before.get(begins) == inode)

    assert kept_after("b-0", [*_verdicts(0, 720), *_verdicts(0, 720, day=_DAYS_LATER)]) == []
    assert sorted(_parts(tables)) == sorted(_parts(tables, another_day)) == ["0000", "0600"]
    # The second part has too many rows now, but its rows were derived, so they stay in it.
    late = _verdicts(372, 720, consumer="late", log_id="another")
    # Log ends make the other day one part again.
    write_rows(tmp_path, "ends", [log_end_row(_DAYS_LATER * 86_400, 1, "u")], batch="b-ends")
    grown = [*_verdicts(720, 1_020), *late, *_verdicts(720, 1_080, day=_DAYS_LATER)]
    assert kept_after("b-12", grown) == ["0000"]
    assert sorted(_parts(tables)) == ["0000", "0600", "1200"]
    assert list(_parts(tables, another_day)) == ["0000"]
