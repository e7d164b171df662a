from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.cli.print_table import Column, PrintedTable, json_line, shown, width_of


@given(st.text(max_size=30))
def test_any_name_is_shown_in_printable_cells(name: str) -> None:
    assert shown(name).isprintable()
    assert shown(name, "ascii").isascii()
    assert shown(name).strip() == shown(name) != ""


COLUMNS = (
    Column("NAME", "name", str),
    Column("NUMBER", "number", str, is_number=True),
    Column("OWNER", "owner", str),
)


@given(st.lists(st.tuples(*[st.text(max_size=40).map(shown)] * 3), max_size=5))
def test_a_table_lines_up_and_cuts_nothing(rows: list[tuple[str, str, str]]) -> None:
    table = PrintedTable(COLUMNS, [dict(zip(("name", "number", "owner"), row, strict=True)) for row in rows])
    head, *lines = table.lines()
    assert len(lines) == len(rows)
    before = head.index("OWNER")
    for line, row in zip(lines, rows, strict=True):
        assert all(cell in line for cell in row)
        assert width_of(line) - width_of(row[2]) in {before, before - 2}  # a number can be wider than its heading


def test_one_table_can_be_printed_as_text_or_json() -> None:
    table = PrintedTable(
        [
            Column("GROUP", "group"),
            Column("LAG", "lag", is_number=True),
            Column("SINCE", "since", "{:%H:%M}".format),
            Column("TWICE", text=lambda row: f"{2 * (row['lag'] or 0):,}", is_number=True),
        ],
        [
            {"group": "a\n", "lag": 1234, "since": datetime(2026, 11, 20, 10, 30, tzinfo=UTC), "hidden": 1.5},
            {"group": "b", "lag": None, "since": datetime(2026, 11, 20, 11, 0, 0, 250_000, tzinfo=UTC), "hidden": None},
        ],
    )
    assert list(table.lines()) == [
        "GROUP   LAG  SINCE  TWICE",
        "a\\n    1234  10:30  2,468",
        "b         -  11:00      0",
    ]
    assert json_line({"of": 2, "groups": table}) == (
        '{"of": 2, "groups": [{"group": "a\\n", "lag": 1234, "since": "2026-11-20T10:30:00Z", "hidden": 1.5}, '
        '{"group": "b", "lag": null, "since": "2026-11-20T11:00:00.250000Z", "hidden": null}]}'
    )
    with pytest.raises(TypeError, match=r"^a value of type object cannot be written as JSON$"):
        json_line({"groups": object()})


@pytest.mark.parametrize(
    ("name", "cells"),
    [("orders", 6), ("注文", 4), ("e\u0301te", 3), ("🥕", 2), ("🇫🇷", 2)],
    ids=["letters", "wide letters", "an accent of its own", "an emoji", "a flag"],
)
def test_a_name_has_the_width_that_a_terminal_gives_it(name: str, cells: int) -> None:
    assert width_of(name) == cells
