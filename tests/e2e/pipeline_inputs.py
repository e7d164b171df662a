"""Writes small inputs for all commands of the pipeline, and reads the tables back to compare them."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from support.kafka.offset_records import commit_key, commit_value
from support.pipeline.archive_segments import HOUR_MS, segment_line, write_segment
from support.pipeline.duckdb_scan import scan
from support.pipeline.kafka_source_rows import KAFKA_SOURCE_SCHEMA
from support.pipeline.table_files import files_of

_DAY_MS = 86_400_000
_GROUPS = ("orders-svc", "mail", "search")
_START = datetime.fromtimestamp(HOUR_MS / 1000, UTC)

EVENTS: Final = 360
"""The number of different events in the inputs."""


def write_inputs(directory: Path) -> None:
    """Write the archive ``first``, ``second`` (all of the first and more), ``records`` and ``ends``."""
    for name, days, minutes in (("first", range(2), range(40)), ("second", range(1, 3), range(40, 60))):
        _events(directory / name, 1 if name == "first" else 1000, days, minutes)
    shutil.copytree(directory / "first", directory / "second", dirs_exist_ok=True)
    _offsets(directory / "records", directory / "ends")


def _events(archive: Path, first: int, days: range, minutes: range) -> None:
    """Write a segment with a bad line, and an event of each group for each of these minutes of these days."""
    lines = [
        segment_line(
            first + number,
            received_at_ms=HOUR_MS + day * _DAY_MS + minute * 60_000 + at,
            observed_at_ms=HOUR_MS + day * _DAY_MS + minute * 60_000,
            consumer=group,
            status_text="ERR" if minute % 7 == 0 else "WARN",
        )
        for number, (day, minute, at, group) in enumerate(
            (day, minute, at, group) for day in days for minute in minutes for at, group in enumerate(_GROUPS)
        )
    ]
    write_segment(archive, first, [*lines, b"no event\n"])


def _offsets(records: Path, ends: Path) -> None:
    """Write an hour of commits of one partition that stands still for a while, and its log ends."""
    times = [_START + timedelta(seconds=10 * number) for number in range(360)]
    for directory in (records, ends):
        directory.mkdir()
    rows = [
        {
            "key": commit_key("g", "t", 0),
            "value": commit_value(3, min(number, 150), commit_ts=int(at.timestamp() * 1000)),
            "topic": "__consumer_offsets",
            "partition": 3,
            "offset": number,
            "timestamp": at,
        }
        for number, at in enumerate(times)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=KAFKA_SOURCE_SCHEMA), records / "1.parquet")
    samples = {
        "topic": ["t"] * 360,
        "partition": pa.array([0] * 360, pa.int32()),
        "start_offset": [0] * 360,
        "end_offset": [*range(10, 370)],
        "observed_at": pa.array(times, pa.timestamp("us", "UTC")),
    }
    pq.write_table(pa.table(samples), ends / "1.parquet")


def table_rows(tables: Path, name: str) -> list[str]:
    """The rows of a table without what names the place and the batch, in order."""
    if not files_of(tables, name):
        return []
    of_place = "'batch_id', 'piece'" + (", 'source'" if name == "quarantine" else "")
    query = f"SELECT COLUMNS(lambda c: c NOT IN ({of_place})) FROM {scan(tables, name)}"
    return sorted(map(str, duckdb.execute(query).fetchall()))
