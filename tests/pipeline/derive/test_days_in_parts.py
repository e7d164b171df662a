"""A day in parts has the rows of a whole day, and only the parts that can change are derived again."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from karrot.pipeline.derive.job import DeriveRules, derive
from karrot.pipeline.schemas import DERIVED
from karrot.pipeline.store.table_files import Tables
from support.pipeline.event_rows import event_row, events_frame, partitions_frame
from support.pipeline.expected_tables.all_tables import Records, Rules, derived_tables
from support.pipeline.expected_tables.archive_lines import event_of
from support.pipeline.expected_tables.comparison import assert_equal_tables
from support.pipeline.offset_rows import log_end_row, write_batch
from support.pipeline.row_times import DAY

_EVERY_MINUTES = 4
_PART_ROWS = 180

Rows = list[dict[str, Any]]


def _verdicts(first: int, until: int, **columns: Any) -> Rows:
    """A verdict every four minutes, with the one partition. From 07:40 to 12:32, the group has an incident."""
    return [
        event_row(
            60 * minute,
            "warn" if 460 <= minute < 752 else "ok",
            "i" if 460 <= minute < 752 else None,
            total_lag=minute % 100,
            partition_count=1,
            listed=[{"topic": "t", "partition": 0, "end_offset": 9 * minute, "current_lag": minute % 100}],
            **columns,
        )
        for minute in range(first, until, _EVERY_MINUTES)
    ]


def _parts(tables: Tables) -> dict[str, int]:
    """The parts of the day by the time at which they begin, each with the inode of its file."""
    found = Path(tables.directory, "lag_minute", f"day={DAY}").glob("*.parquet")
    return {path.stem.partition("-")[2] or "0000": path.stat().st_ino for path in found}


def test_a_day_that_grows_is_derived_in_parts_and_has_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    tables, so_far = Tables(str(tmp_path)), Rows()

    def kept_after(batch: str, rows: Rows) -> list[str]:
        """Derive after a new batch, and check all rows. Return the parts that were not written again."""
        tables.write_batch(events_frame(spark, rows), "events", batch)
        tables.write_batch(partitions_frame(spark, rows), "partitions", batch)
        so_far.extend(rows)
        before = _parts(tables)
        assert derive(spark, tables, DeriveRules(), part_rows=_PART_ROWS) == [DAY]
        events = [event_of(row | {"partitions": [{"status": "OK"} | one for one in row["listed"]]}) for row in so_far]
        expected = derived_tables(events, Records(), Rules())
        assert_equal_tables(tmp_path, {name: expected[name] for name in DERIVED.keys() - {"verdict_runs"}})
        return sorted(begins for begins, inode in _parts(tables).items() if before.get(begins) == inode)

    assert kept_after("b-0", _verdicts(0, 720)) == []
    assert sorted(_parts(tables)) == ["0000", "0600"]
    # The second part has too many rows now, but its rows were derived, so they stay in it.
    late = _verdicts(372, 720, consumer="late", log_id="another")
    assert kept_after("b-12", [*_verdicts(720, 1_020), *late]) == ["0000"]
    assert sorted(_parts(tables)) == ["0000", "0600", "1200"]

    # Log ends make the day one part again.
    write_batch(spark, tables, "b-ends", "ends", [log_end_row(0, 1, "u")])
    assert kept_after("b-17", _verdicts(1_020, 1_080)) == []
    assert list(_parts(tables)) == ["0000"]
