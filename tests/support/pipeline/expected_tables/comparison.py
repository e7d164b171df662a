"""Compares a table of Spark, row by row and column by column, with the expected rows."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame

from karrot.history.delta_tables import data_files, open_table
from karrot.pipeline.schemas_and_conversions import ABOUT, TABLES

_MOST_SHOWN = 5
_TOLERANCE = 2e-3
"""The tables round to three or more digits after the point."""

_ROUNDED_TO_WHOLE = "produced", "consumed"
"""The expected number is not rounded, because the sum of the same numbers in another order can round the other way."""

KEYS: Mapping[str, Sequence[str]] = {name: about.key for name, about in ABOUT.items()} | {
    "quarantine": ("source", "reason", "position")
}
"""The columns that identify a row."""

Row = Mapping[str, Any]


def table_rows(tables: Path, name: str) -> list[dict[str, Any]]:
    """Read the newest version of a table with DuckDB; times become epoch milliseconds."""
    table = open_table(str(tables / name), {})
    files = [] if table is None else [str(tables / name / file.path) for file in data_files(table)]
    if not files:
        return []
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT * FROM read_parquet(?, hive_partitioning = true, hive_types_autocast = false)",
            [files],
        )
        columns = [column[0] for column in found.description or ()]
        rows = [dict(zip(columns, map(_plain, row), strict=True)) for row in found.fetchall()]
    for row in rows:
        for in_path in ("batch_id", "piece"):
            row.pop(in_path, None)
        if name == "quarantine":
            row["source"] = row["source"].rpartition("/")[2]
    return rows


def frame_rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Collect a frame; times become epoch milliseconds."""
    return [{name: _plain(value) for name, value in row.asDict().items()} for row in frame.collect()]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    return str(value) if isinstance(value, date) else value


def differences(name: str, expected: Iterable[Row], found: Iterable[Row]) -> list[str]:
    """Return a line for each row that is missing, unexpected or different; an empty list if the tables are equal."""
    keys = KEYS[name]
    wanted, read = _by_key(expected, keys), _by_key(found, keys)
    lines = []
    for key in sorted(wanted.keys() | read.keys(), key=repr):
        place = f"{name} " + ", ".join(
            f"{column}={_shown(column, part)}" for column, part in zip(keys, key, strict=True)
        )
        of_key, of_table = wanted.get(key, []), read.get(key, [])
        if len(of_key) != len(of_table):
            lines.append(f"{place}: {len(of_key)} rows expected, {len(of_table)} found")
            continue
        for row, other in zip(of_key, of_table, strict=True):
            lines += [
                f"{place}: {column} is {_shown(column, other.get(column))}, expected {_shown(column, row.get(column))}"
                for column in sorted(row.keys() | other.keys())
                if not _equal(column, row.get(column), other.get(column))
            ]
    return lines


def broken_promises(name: str, found: Sequence[Row]) -> list[str]:
    """Return a line if the key of a table repeats, and one for each column with a NULL that has no meaning."""
    keys = Counter(tuple(row[column] for column in ABOUT[name].key) for row in found if ABOUT[name].key)
    never = [column.name for column in TABLES[name] if not column.metadata["null"]]
    nulls = [column for column in never if any(row[column] is None for row in found)]
    return [
        *(f"{name}: the key {key} has {count} rows" for key, count in keys.most_common(1) if count > 1),
        *(f"{name}: {column} is NULL, which has no meaning there" for column in nulls),
    ]


def assert_equal_tables(tables: Path, expected: Mapping[str, Iterable[Row]]) -> dict[str, int]:
    """Fail with the first rows that differ in each table. Return the number of rows of each table."""
    wrong, counts = [], {}
    for name, rows in expected.items():
        wanted = list(rows)
        found = table_rows(tables, name)
        lines = [*broken_promises(name, found), *differences(name, wanted, found)]
        wrong += lines[:_MOST_SHOWN]
        if len(lines) > _MOST_SHOWN:
            wrong.append(f"{name}: and {len(lines) - _MOST_SHOWN} more differences")
        counts[name] = len(wanted)
    if wrong:
        pytest.fail("\n".join(["the tables differ from the definitions:", *wrong]))
    return counts


def _by_key(rows: Iterable[Row], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    found = defaultdict[tuple[Any, ...], list[Row]](list)
    for row in rows:
        found[tuple(row.get(column) for column in keys)].append(row)
    for several in found.values():
        several.sort(key=lambda row: repr(sorted(row.items(), key=lambda item: item[0])))
    return found


def _equal(column: str, expected: Any, found: Any) -> bool:
    if not isinstance(expected, float) and not isinstance(found, float):
        return bool(expected == found)
    if expected is None or found is None:
        return False
    tolerance = 0.5 + _TOLERANCE if column in _ROUNDED_TO_WHOLE else _TOLERANCE
    return math.isclose(expected, found, rel_tol=1e-9, abs_tol=tolerance)


def _shown(column: str, value: Any) -> str:
    if isinstance(value, int) and (column == "minute" or column.endswith("_at") or column == "at"):
        return f"{datetime.fromtimestamp(value / 1000).astimezone():%F %T.%f}"
    return repr(value)
