"""The comparison with the calculated tables finds each planted error."""

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from support.pipeline.expected_tables.all_tables import Rules, tables_of_archive
from support.pipeline.expected_tables.comparison import assert_equal_tables, differences
from support.pipeline.hostile_archive import write_archive
from support.pipeline.table_files import write_day

Tables = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the first stage of a hostile archive of five groups."""
    directory = tmp_path_factory.mktemp("archive")
    write_archive(directory, seed=4, groups=5)(0)
    return directory


@pytest.fixture(scope="module")
def tables(archive: Path) -> Tables:
    """Calculate the tables of this archive."""
    made = tables_of_archive(archive, Rules())
    return {name: rows for name, rows in made.items() if rows}


def test_a_wrong_value_in_any_column_of_any_table_is_found(tables: Tables) -> None:
    assert len(tables) == 10
    for name, every in tables.items():
        rows = every[-20:]
        assert differences(name, rows, [dict(row) for row in rows]) == []
        for column in rows[0]:
            wrong = [*rows[:-1], rows[-1] | {column: _other(rows[-1][column])}]
            assert differences(name, rows, wrong), (name, column)


def _other(value: Any) -> Any:
    if isinstance(value, list):
        return [*value, "other"]
    return value + 1 if isinstance(value, int | float) else f"{value}-other"


def test_a_missing_row_and_a_repeated_row_are_found(tables: Tables) -> None:
    for name, rows in tables.items():
        for wrong in (rows[1:], [*rows, rows[0]]):
            assert "rows expected" in differences(name, rows, wrong)[0]


def test_each_rule_changes_the_tables_that_depend_on_it(archive: Path, tables: Tables) -> None:
    def changed(rules: Rules) -> set[str]:
        made = tables_of_archive(archive, rules)
        return {name for name, rows in tables.items() if differences(name, rows, made[name])}

    assert changed(Rules()) == set()
    assert changed(Rules(silence_ms=100_000)) == {"verdict_runs", "incidents", "status_intervals"}
    assert changed(Rules(longest_ms=60_000)) >= {"rates_minute"}
    assert changed(Rules(target_seconds=10)) == {"slo_daily"}
    assert changed(Rules(objective=0.9)) == {"slo_daily"}


def test_the_failure_names_the_row_the_column_and_both_values(tables: Tables, tmp_path: Path) -> None:
    day = "2026-11-14"
    rows = [row for row in tables["slo_daily"] if row["day"] == day]
    write_day(tmp_path, "slo_daily", date.fromisoformat(day), rows)
    assert assert_equal_tables(tmp_path, {"slo_daily": rows}) == {"slo_daily": len(rows)}
    wrong = [rows[0] | {"minutes_ok": 999}, *rows[1:]]
    place = f"slo_daily cluster='prod', consumer={rows[0]['consumer']!r}, day='{day}'"
    told = re.escape(f"{place}: minutes_ok is {rows[0]['minutes_ok']}, expected 999")
    with pytest.raises(pytest.fail.Exception, match=told):
        assert_equal_tables(tmp_path, {"slo_daily": wrong})
