"""Writes tables for the terminal: the text of a cell, and columns that line up and fit a narrow terminal."""

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from karrot.text import plain_amount

UNKNOWN = "-"
"""The cell of what is not known; never a zero."""

_GAP = "  "
_LEGIBLE, _NARROWEST = 16, 8
_WIDEST = 80
"""The widest padding of a column where no terminal limits the width: a longer name is whole and shifts its own line."""
_CUT = "~"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. Numbers are on the right. ``goes`` is the order in which columns are left out of a narrow table."""

    head: str
    is_number: bool = False
    may_be_cut: bool = False
    goes: int = 0
    """1 is left out before 2; 0 stays."""


def number(value: float | None) -> str:
    """The cell of a number, which may not be known."""
    return UNKNOWN if value is None else plain_amount(value)


def safe(name: str) -> str:
    """The cell of a name, as standard output can write it."""
    return shown(name, sys.stdout.encoding)


def shown(name: str, encoding: str = "utf-8") -> str:
    """A name from a stranger: on one line, without characters that a terminal would obey or cannot write."""
    plain = "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode() for each in name
    )
    plain = plain.encode(encoding, "backslashreplace").decode(encoding)
    return plain if plain.strip() == plain and plain else f'"{plain}"'


def width_of(text: str) -> int:
    """How many cells of a terminal a printable text takes."""
    return sum(_cells(each) for each in text)


def terminal_width() -> int | None:
    """How many cells wide the terminal is; ``None`` if the output goes elsewhere and COLUMNS is not set."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else None


def laid_out(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None = None) -> Iterator[str]:
    """The lines of a table, head first, in at most ``width`` cells as far as that can be done.

    Names are cut first, the widest first, to what can still be read; then columns are left out; then names are cut
    further.
    """
    table = [[column.head for column in columns], *rows]
    kept = list(range(len(columns)))
    most = _WIDEST if width is None else sys.maxsize
    widths = [max(cells for row in table if (cells := width_of(row[at])) <= most) for at in kept]
    while width is not None and _total(widths, kept) > width:
        if (widest := _to_cut(columns, widths, kept, _LEGIBLE)) is not None:
            widths[widest] -= 1
        elif (leaves := _to_leave_out(columns, kept)) is not None:
            kept.remove(leaves)
        elif (widest := _to_cut(columns, widths, kept, _NARROWEST)) is not None:
            widths[widest] -= 1
        else:
            break
    for row in table:
        fits = [width is None or width_of(row[at]) <= widths[at] for at in kept]
        texts = [row[at] if whole else _cut(row[at], widths[at]) for at, whole in zip(kept, fits, strict=True)]
        yield _GAP.join(_padded(text, widths[at], columns[at]) for text, at in zip(texts, kept, strict=True)).rstrip()


def _cells(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _total(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[at] for at in kept) + len(_GAP) * (len(kept) - 1)


def _to_cut(columns: Sequence[Column], widths: Sequence[int], kept: Sequence[int], least: int) -> int | None:
    cuttable = [at for at in kept if columns[at].may_be_cut and widths[at] > least]
    return max(cuttable, key=lambda at: widths[at], default=None)


def _to_leave_out(columns: Sequence[Column], kept: Sequence[int]) -> int | None:
    return min((at for at in kept if columns[at].goes), key=lambda at: columns[at].goes, default=None)


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
