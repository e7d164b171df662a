"""Writes a table as text, whose columns line up and fit a narrow terminal, and as JSON."""

import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from karrot.text import iso, plain_amount

UNKNOWN = "-"
"""The cell of what is not known; never a zero."""

_GAP = "  "
_LEGIBLE, _NARROWEST = 16, 8
_WIDEST = 80
"""The widest padding of a column where no terminal limits the width: a longer name is whole and shifts its own line."""
_CUT = "~"


def cell(value: str | float | None) -> str:
    """The cell of a name or a number. ``None`` is what is not known."""
    if value is None:
        return UNKNOWN
    return safe(value) if isinstance(value, str) else plain_amount(value)


def safe(name: str) -> str:
    """The cell of a name, as standard output can write it."""
    return shown(name, sys.stdout.encoding)


def shown(name: str, encoding: str = "utf-8") -> str:
    """A name from outside on one line, without control characters and those that ``encoding`` cannot write."""
    plain = "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode() for each in name
    )
    plain = plain.encode(encoding, "backslashreplace").decode(encoding)
    return plain if plain.strip() == plain and plain else f'"{plain}"'


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a text: its heading, the JSON field that it shows, and how the field's value reads as text."""

    head: str
    field: str = ""
    """Empty for a column that is read from several fields."""
    text: Callable[[Any], str] = cell
    """Of the field's value, or of the whole row if there is no field."""
    is_number: bool = False
    """Numbers are on the right."""
    may_be_cut: bool = False
    goes: int = 0
    """The order in which columns are left out of a narrow table: 1 before 2. 0 stays."""


@dataclass(frozen=True, slots=True)
class PrintedTable:
    """Rows by the names of their JSON fields, and the columns that a text shows of them."""

    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]

    def lines(self, width: int | None = None) -> Iterator[str]:
        """The lines of the text, headings first, in at most ``width`` cells if that is possible.

        Names are cut first, the widest first, to what can still be read; then columns are left out; then names are cut
        further.
        """
        columns = self.columns
        texts = [[column.head for column in columns]]
        texts += [[each.text(row[each.field] if each.field else row) for each in columns] for row in self.rows]
        kept = list(range(len(columns)))
        most = _WIDEST if width is None else sys.maxsize
        widths = [max(cells for row in texts if (cells := width_of(row[at])) <= most) for at in kept]
        while width is not None and sum(widths[at] + len(_GAP) for at in kept) - len(_GAP) > width:
            if (widest := _to_cut(columns, widths, kept, _LEGIBLE)) is not None:
                widths[widest] -= 1
            elif leave_out := [at for at in kept if columns[at].goes]:
                kept.remove(min(leave_out, key=lambda at: columns[at].goes))
            elif (widest := _to_cut(columns, widths, kept, _NARROWEST)) is not None:
                widths[widest] -= 1
            else:
                break
        for row in texts:
            fits = [width is None or width_of(row[at]) <= widths[at] for at in kept]
            cut = [row[at] if whole else _cut(row[at], widths[at]) for at, whole in zip(kept, fits, strict=True)]
            padded = (_padded(text, widths[at], columns[at]) for text, at in zip(cut, kept, strict=True))
            yield _GAP.join(padded).rstrip()

    def print_text(self) -> None:
        """Print the text, as wide as the terminal is. Nothing if there are no rows."""
        if self.rows:
            print_lines(self.lines(terminal_width()))


def json_line(fields: Mapping[str, Any]) -> str:
    """One line of JSON. A `PrintedTable` in it is its rows, and a time is text."""
    return json.dumps(fields, default=_json_value)


def _json_value(value: object) -> Any:
    if isinstance(value, PrintedTable):
        return value.rows
    if isinstance(value, datetime):
        return iso(value)
    raise TypeError(f"{type(value).__name__} is not of JSON")


def print_lines(lines: Iterable[str]) -> None:
    """Print the lines of an answer."""
    for line in lines:
        click.echo(line)


def width_of(text: str) -> int:
    """How many cells of a terminal a printable text takes."""
    return sum(_cells(each) for each in text)


def terminal_width() -> int | None:
    """How many cells wide the terminal is; ``None`` if the output goes elsewhere and COLUMNS is not set."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else None


def _cells(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _to_cut(columns: Sequence[Column], widths: Sequence[int], kept: Sequence[int], least: int) -> int | None:
    cuttable = [at for at in kept if columns[at].may_be_cut and widths[at] > least]
    return max(cuttable, key=lambda at: widths[at], default=None)


def _padded(text: str, width: int, column: Column) -> str:
    padding = " " * (width - width_of(text))
    return padding + text if column.is_number else text + padding


def _cut(text: str, width: int) -> str:
    """The beginning and the end, which is where names differ."""
    cells = width - len(_CUT)
    head, tail = _beginning(text, cells - cells // 2), _beginning(text[::-1], cells // 2)[::-1]
    return head + _CUT + tail


def _beginning(text: str, cells: int) -> str:
    taken = 0
    for at, character in enumerate(text):
        taken += _cells(character)
        if taken > cells:
            return text[:at]
    return text
