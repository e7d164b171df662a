"""Formats counts, plurals, durations, times and names for people: one function for each format."""

import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

LAST_SECOND = 253_402_300_799
"""The last second of the year 9999. Python has no later dates."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""The zero of epoch seconds and epoch milliseconds."""

_LONGEST_NAME = 256
_NAMED = 3
_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
_COMPACT_UNITS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
_SIZES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_YEARS = 100 * 365 * 86_400


# ---- Numbers ----


def count(number: float) -> str:
    """Format a number as ``12,345``."""
    return f"{number:,.0f}" if isinstance(number, float) else f"{number:,}"


def short_count(number: float) -> str:
    """``950``, ``12k``, ``3.4M``: for the axis of a chart."""
    for size, unit in _SIZES:
        if number >= size:
            return f"{number / size:.4g}{unit}"
    return f"{number:.4g}"


def amount(number: float) -> str:
    """``12,345`` or ``12.345``: at most three decimals, without zeros at the end."""
    return f"{number:,.3f}".rstrip("0").rstrip(".")


def plain_amount(number: float) -> str:
    """``12345`` or ``12.345``: like `amount`, but without separators, for columns that programs also read."""
    return str(number) if isinstance(number, int) else f"{number:.3f}".rstrip("0").rstrip(".")


def rate(per_second: float) -> str:
    """``1,234 /s``, or ``9.2 /s`` below ten."""
    return f"{per_second:,.0f} /s" if per_second >= 10 else f"{per_second:,.1f} /s"  # noqa: PLR2004


def percent(share: float) -> str:
    """Format a share as ``66.7 %``."""
    return f"{share * 100:.1f}".removesuffix(".0") + " %"


# ---- Plurals ----


def plural(number: float, one: str, several: str = "") -> str:
    """``group`` for 1, ``groups`` for every other number. ``several`` is the plural if it does not end in s."""
    return one if number == 1 else several or f"{one}s"


def counted(number: float, one: str, several: str = "") -> str:
    """``1 group``, ``1,234 groups``."""
    return f"{count(number)} {plural(number, one, several)}"


def counted_plain(number: float, one: str, several: str = "") -> str:
    """``1 group``, ``1234 groups``: like `counted`, but without separators, as in the table next to the text."""
    return f"{number:.0f} {plural(number, one, several)}"


def counted_at_start(number: int, one: str) -> str:
    """``One group``, ``1,234 groups``: at the start of a sentence."""
    return f"One {one}" if number == 1 else counted(number, one)


def some(names: Sequence[str]) -> str:
    """``a, b, c and 2 more``: the first three names, and the number of the others."""
    first = ", ".join(names[:_NAMED])
    return first if len(names) <= _NAMED else f"{first} and {len(names) - _NAMED} more"


# ---- Durations ----


def duration(seconds: float) -> str:
    """``2 min 10 s``: the two largest units, for sentences and pages."""
    return "over 100 years" if seconds >= _YEARS else " ".join(_two_units(seconds, _UNITS, " "))


def compact_duration(seconds: float) -> str:
    """``45s``, ``12m 5s``, ``2d 4h``: the two largest units, for a column of a table in a terminal."""
    return " ".join(_two_units(seconds, _COMPACT_UNITS, ""))


def short_duration(seconds: float) -> str:
    """``45 s``, ``1.5 h``: one unit with decimals, for the axis of a chart."""
    for unit, length in _UNITS:
        if seconds >= length:
            return f"{seconds / length:.4g} {unit}"
    return f"{seconds:.4g} s"


def _two_units(seconds: float, units: Sequence[tuple[str, int]], space: str) -> list[str]:
    """The largest unit that is not zero, and the next smaller unit if that is not zero."""
    left = max(0, round(seconds))
    parts: list[str] = []
    for unit, length in units:
        number, left = divmod(left, length)
        if number or parts:
            parts.append(f"{number}{space}{unit}" if number else "")
    return [part for part in parts[:2] if part] or [f"0{space}s"]


# ---- Times ----


def instant(epoch_ms: int | None) -> datetime | None:
    """Convert epoch milliseconds to a time in UTC.

    Returns ``None`` for a value out of range, which can come from a commit that Burrow misread.
    """
    if epoch_ms is None:
        return None
    try:
        return EPOCH + timedelta(milliseconds=epoch_ms)
    except OverflowError:
        return None


def iso(when: datetime) -> str:
    """``2026-11-21T16:04:05Z``: a UTC time in JSON. It has ``.250000`` only if there are microseconds."""
    return when.isoformat().replace("+00:00", "Z")


def iso_ms(epoch_ms: int) -> str:
    """``2026-11-21T16:04:05.250Z``: epoch milliseconds in JSON, always with three decimals."""
    when = EPOCH + timedelta(milliseconds=epoch_ms)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(when: datetime) -> str:
    """``2026-11-21 16:04:05 UTC``: for pages."""
    return when.isoformat(" ", "seconds").replace("+00:00", " UTC")


def to_second(when: datetime) -> str:
    """``2026-11-21 16:04:05``: for a place that names the time zone elsewhere."""
    return f"{when:%Y-%m-%d %H:%M:%S}"


def to_minute(when: datetime) -> str:
    """``2026-11-21 16:04``: for a place that names the time zone elsewhere."""
    return f"{when:%Y-%m-%d %H:%M}"


def clock(epoch_s: float) -> str:
    """Format a time of day in UTC as ``16:04:05``."""
    return datetime.fromtimestamp(min(max(0.0, epoch_s), LAST_SECOND), UTC).strftime("%H:%M:%S")


# ---- Names ----


def visible(name: str, longest: int = _LONGEST_NAME) -> str:
    r"""``a\u{0}b``: a name with its control characters as code points, cut after ``longest`` characters."""
    shown = name if len(name) <= longest else name[:longest] + "…"
    if not shown.strip():
        return "".join(map(_code_point, shown)) or "(empty)"
    if shown.isprintable():
        return shown
    return "".join(char if char.isprintable() else _code_point(char) for char in shown)


def shell_word(text: str) -> str:
    r"""Quote a text as one word of one shell line. Control characters become ``$'a\x0ab'``, as in bash and zsh."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + re.sub(r"[^ -~]|['\\]", _escaped, text) + "'"


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"\\x{byte:02x}" for byte in found[0].encode("utf-8", "surrogatepass"))


def _code_point(char: str) -> str:
    return f"\\u{{{ord(char):x}}}"


def redacted(address: str) -> str:
    """``http://***@host/path?***``: an address without its user, its query and its fragment, which can be secrets."""
    shown = re.sub(r"(://|//|:).*@", r"\1***@", address, flags=re.DOTALL)
    return re.sub(r"(/[^?#]*[?#]|[?#][\w-]+=).+", r"\1***", shown, flags=re.DOTALL)
