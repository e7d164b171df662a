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
"""The largest padding of a column if the output is not a terminal. A longer name only makes its own line longer."""
_CUT = "~"


def cell(value: str | float | None) -> str:
    """The cell of a name or a number. ``None`` is an unknown value."""
    if value is None:
        return UNKNOWN
    return safe(value) if isinstance(value, str) else plain_amount(value)


def safe(name: str) -> str:
    """The cell of a name, in characters that standard output can write."""
    return shown(name, sys.stdout.encoding)


def shown(name: str, encoding: str = "utf-8") -> str:
    """A name on one line, with escapes for control characters and for characters that ``encoding`` does not have."""
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
    """Empty for a column that shows several fields."""
    text: Callable[[Any], str] = cell
    """Formats the field's value, or the whole row if there is no field."""
    is_number: bool = False
    """Numbers are aligned to the right."""
    may_be_cut: bool = False
    goes: int = 0
    """The order in which a narrow table leaves columns out: 1 before 2. A column with 0 always stays."""


@dataclass(frozen=True, slots=True)
class PrintedTable:
    """Rows with their JSON fields, and the columns of the text."""

    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]

    def lines(self, width: int | None = None) -> Iterator[str]:
        """The lines of the text, the headings first. A line has at most ``width`` terminal cells, if possible.

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
        """Print the text in the width of the terminal. Print nothing if there are no rows."""
        if self.rows:
            print_lines(self.lines(terminal_width()))


def json_line(fields: Mapping[str, Any]) -> str:
    """One line of JSON. A `PrintedTable` becomes its rows, and a time becomes a string."""

    def written(value: object) -> Any:
        if isinstance(value, PrintedTable):
            return value.rows
        if isinstance(value, datetime):
            return iso(value)
        raise TypeError(f"a value of type {type(value).__name__} cannot be written as JSON")

    return json.dumps(fields, default=written)


def print_lines(lines: Iterable[str]) -> None:
    """Print each line."""
    for line in lines:
        click.echo(line)


def width_of(text: str) -> int:
    """The width of a printable text in cells of a terminal."""
    if text.isascii():
        return len(text)
    return sum(category(each) not in {"Mn", "Me"} and 1 + (east_asian_width(each) in "WF") for each in text)


def terminal_width() -> int | None:
    """The width of the terminal in cells. ``None`` if the output is not a terminal and COLUMNS is not set."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else None


def _padded(text: str, width: int, column: Column) -> str:
    padding = " " * (width - width_of(text))
    return padding + text if column.is_number else text + padding


def _cut(text: str, width: int) -> str:
    """Shorten a text that is too wide. Keep the beginning and the end, where most names differ."""
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
