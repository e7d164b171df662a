"""Prints a table as JSON, or as text with aligned columns that fit a narrow terminal."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from unicodedata import category, east_asian_width

import click

from karrot.text import iso, plain_amount

UNKNOWN = "-"
"""The cell of an unknown value. An unknown value is never shown as zero."""

_GAP = "  "
_LEGIBLE, _NARROWEST = 16, 8
_WIDEST = 80
"""The width up to which a column is padded if the output is not a terminal. Longer names are not cut."""
_CUT = "~"


def cell(value: str | float | None) -> str:
    """Format a name or a number as a cell. ``None`` is an unknown value."""
    if value is None:
        return UNKNOWN
    return safe(value) if isinstance(value, str) else plain_amount(value)


def safe(name: str) -> str:
    """Format a name as a cell, only with characters that standard output can write."""
    return shown(name, sys.stdout.encoding)


def shown(name: str, encoding: str = "utf-8") -> str:
    """Format a name as one line. Escape control characters, and characters that ``encoding`` lacks."""
    plain = "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode() for each in name
    )
    plain = plain.encode(encoding, "backslashreplace").decode(encoding)
    return plain if plain.strip() == plain and plain else f'"{plain}"'


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading, the JSON field that it shows, and a function that formats the field's value."""

    head: str
    field: str = ""
    """The JSON field. An empty string means that the column shows several fields."""
    text: Callable[[Any], str] = cell
    """Formats the field's value, or the whole row if ``field`` is empty."""
    is_number: bool = False
    """Numbers are aligned to the right."""
    may_be_cut: bool = False
    goes: int = 0
    """The position at which a narrow table drops the column: 1 before 2. A column with 0 is never dropped."""


@dataclass(frozen=True, slots=True)
class PrintedTable:
    """Rows with their JSON fields, and the columns of the text."""

    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]

    def lines(self, width: int | None = None) -> Iterator[str]:
        """Yield the lines of the table, the headings first. If possible, a line has at most ``width`` terminal cells.

        A table that is too wide becomes narrower in three steps. First, the widest names are cut to a legible length.
        Second, columns are left out. Third, names are cut further.
        """
        columns = self.columns
        texts = [[column.head for column in columns]]
        texts += [[each.text(row[each.field] if each.field else row) for each in columns] for row in self.rows]
        kept = list(range(len(columns)))
        most = _WIDEST if width is None else sys.maxsize
        widths = [max(cells for row in texts if (cells := width_of(row[at])) <= most) for at in kept]
        while width is not None and sum(widths[at] + len(_GAP) for at in kept) - len(_GAP) > width:
            optional = [at for at in kept if columns[at].goes]
            least = _LEGIBLE if optional else _NARROWEST
            if cuttable := [at for at in kept if columns[at].may_be_cut and widths[at] > least]:
                widths[max(cuttable, key=lambda at: widths[at])] -= 1
            elif optional:
                kept.remove(min(optional, key=lambda at: columns[at].goes))
            else:
                break
        for row in texts:
            fitted = [row[at] if width is None else _cut(row[at], widths[at]) for at in kept]
            padded = [_padded(text, widths[at], columns[at]) for text, at in zip(fitted, kept, strict=True)]
            yield _GAP.join(padded).rstrip()

    def print_text(self) -> None:
        """Print the table in the width of the terminal. Print nothing if there are no rows."""
        if self.rows:
            print_lines(self.lines(terminal_width()))


def json_line(fields: Mapping[str, Any]) -> str:
    """Encode ``fields`` as one line of JSON. A `PrintedTable` becomes its rows, and a time becomes a string."""

    def written(value: object) -> Any:
        if isinstance(value, PrintedTable):
            return value.rows
        if isinstance(value, datetime):
            return iso(value)
        raise TypeError(f"a value of type {type(value).__name__} cannot be written as JSON")

    return json.dumps(fields, default=written)


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def width_of(text: str) -> int:
    """Return the width of a printable string in terminal cells."""
    if text.isascii():
        return len(text)
    return sum(category(each) not in {"Mn", "Me"} and 1 + (east_asian_width(each) in "WF") for each in text)


def terminal_width() -> int | None:
    """Return the width of the terminal in cells; ``None`` without a terminal and without COLUMNS."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else None


def _padded(text: str, width: int, column: Column) -> str:
    padding = " " * (width - width_of(text))
    return padding + text if column.is_number else text + padding


def _cut(text: str, width: int) -> str:
    """Shorten a string that is wider than ``width``. Keep its beginning and end, where most names differ."""
    if width_of(text) <= width:
        return text
    behind = (width - len(_CUT)) // 2
    before = width - len(_CUT) - behind
    head, tail = text[:before], text[-behind:]
    while width_of(head) > before:
        head = head[:-1]
    while width_of(tail) > behind:
        tail = tail[1:]
    return f"{head}{_CUT}{tail}"
