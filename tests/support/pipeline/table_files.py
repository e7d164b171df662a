"""Writes and lists the data files of the pipeline's tables, without Spark."""

import json
import uuid
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction

from karrot.history.delta_tables import DataFile, data_files, open_table
from karrot.history.duckdb_reader import STREAMED
from karrot.pipeline.schemas_and_conversions import TABLES
from support.pipeline.row_times import minute_at

_TYPES = {
    "string": pa.string(),
    "array<string>": pa.list_(pa.string()),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
"""The columns of files, by Spark's name of the type."""


def lag_minute_row(at: float, lag: int | None, status: str = "OK", **columns: Any) -> dict[str, Any]:
    """Make a row of ``lag_minute``: group ``g`` of cluster ``c``, that many minutes after midnight."""
    known = {
        "cluster": "c",
        "consumer": "g",
        "minute": minute_at(at),
        "count": 1,
        "lag_min": lag,
        "lag_max": lag,
        "lag_avg": lag,
        "lag_last": lag,
        "worst_status": status,
        "not_ok": int(status not in ("OK", "NOTFOUND")),
    }
    return known | columns


def incident_row(at: float, until: float | None, incident_id: str | None = "i", **columns: Any) -> dict[str, Any]:
    """Make a row of ``incidents`` of that group."""
    known = {
        "incident_id": incident_id,
        "cluster": "c",
        "consumer": "g",
        "started_at": minute_at(at),
        "ended_at": None if until is None else minute_at(until),
        "ended_by": None if until is None else "close",
        "worst_status": "ERR",
        "peak_lag": 10,
        "events": 2,
        "topics": ["t"],
    }
    return known | columns


def verdict_run_row(at: float, until: float | None = None, /, status: str = "OK", **columns: Any) -> dict[str, Any]:
    """Make a row of ``verdict_runs`` of that group, on the day of its start."""
    known = {
        "cluster": "c",
        "consumer": "g",
        "run": 1,
        "kind": "observation",
        "status": status,
        "first_at": minute_at(at),
        "last_at": minute_at(at if until is None else until),
        "events": 1,
    }
    return known | columns


def write_note(directory: Path) -> None:
    """Write the note of a run of derive that has ended: the derived tables belong together as they are now."""
    tables = {log.parent.name: open_table(str(log.parent), {}) for log in directory.glob("*/_delta_log")}
    versions = {name: table.version() for name, table in tables.items() if table and name not in STREAMED}
    aside = directory / "._derived.json"
    aside.write_text(json.dumps({"rules": "silence 0:05:00", "versions": versions}), encoding="utf-8")
    aside.replace(directory / "_derived.json")


def files_of(directory: Path, table: str, version: int | None = None) -> list[str]:
    """The data files of a version of a table, by default the newest."""
    opened = open_table(str(directory / table), {}, version)
    return [] if opened is None else [str(directory / table / file.path) for file in data_files(opened)]


def write_rows(directory: Path, table: str, rows: Iterable[Mapping[str, Any]], *, batch: str = "") -> None:
    """Write rows into their ``day``, or the day of their first time; rows of a ``batch`` go below it."""
    by_day: dict[date, list[Mapping[str, Any]]] = {}
    for row in rows:
        day = row.get("day") or next(value for value in row.values() if isinstance(value, datetime)).date()
        by_day.setdefault(day, []).append(row)
    for day, of_day in by_day.items():
        write_day(directory, table, day, of_day, batch=batch)


def write_day(
    directory: Path,
    table: str,
    day: date,
    rows: Iterable[Mapping[str, Any]],
    without: Iterable[str] = (),
    *,
    batch: str = "",
) -> Path:
    """Replace a day of a table, or a batch of it, like the pipeline: write a file and commit it. Return the file."""
    columns = (column for column in TABLES[table] if column.name not in set(without))
    schema = pa.schema([(column.name, _TYPES[column.dataType.simpleString()]) for column in columns])
    file = f"batch_id={batch or 'written'}.{uuid.uuid4().hex[:8]}/day={day}/part-0.parquet"
    path = directory / table / file
    path.parent.mkdir(parents=True)
    of_day = pa.Table.from_pylist([dict(row) for row in rows], schema)
    pq.write_table(of_day, path, compression="zstd", use_deprecated_int96_timestamps=True)
    added = DataFile.at(file, path.stat().st_size, of_day.num_rows)
    with_day = Schema.from_arrow(schema.append(pa.field("day", pa.date32())))
    log = DeltaTable.create(directory / table, with_day, mode="ignore", partition_by=["day"])
    old = [each for each in data_files(log) if each.day == day and (not batch or each.batch_id == batch)]
    stats = json.dumps({"numRecords": added.rows})
    actions: list[AddAction | RemoveAction] = [
        *(RemoveAction(each.path, True, 0, each.size, each.partition) for each in old),
        *([AddAction(added.path, added.size, added.partition, 0, True, stats)] if added.rows else []),
    ]
    log.create_write_transaction(actions, "append", log.schema(), ["day"])
    return path
