"""Prints a table as JSON, or as text with aligned columns."""

import json
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
_WIDEST = 80
"""The width up to which a column is padded. A longer name makes only its own line longer."""


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


@dataclass(frozen=True, slots=True)
class PrintedTable:
    """Rows with their JSON fields, and the columns of the text."""

    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]

    def lines(self) -> Iterator[str]:
        """Yield the lines of the table, the headings first."""
        texts = [[column.head for column in self.columns]]
        texts += [[each.text(row[each.field] if each.field else row) for each in self.columns] for row in self.rows]
        widths = [
            max(cells for text in column if (cells := width_of(text)) <= _WIDEST) for column in zip(*texts, strict=True)
        ]
        for row in texts:
            yield _GAP.join(map(_padded, row, widths, self.columns)).rstrip()


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


def _padded(text: str, width: int, column: Column) -> str:
    padding = " " * (width - width_of(text))
    return padding + text if column.is_number else text + padding
