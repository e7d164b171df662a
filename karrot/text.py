"""Numbers, durations, times and names as people read them: the filters of the pages."""

from datetime import UTC, datetime

from markupsafe import Markup, escape

from karrot.event import PartitionLag

__all__ = [
    "FILTERS",
    "LAST_SECOND",
    "amount",
    "clock",
    "count",
    "duration",
    "head_offset",
    "marked",
    "moment",
    "percent",
    "rate",
    "short_count",
    "short_duration",
    "visible",
]

NOT_KNOWN = Markup('<span class="quiet" title="not known">–</span>')  # noqa: RUF001 (a typesetter's empty cell)

_LONGEST_NAME = 256
_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
_SIZES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
LAST_SECOND = 253_402_300_799
"""Of the year 9999, after which there is no calendar."""

_YEARS = 100 * 365 * 86_400


def count(number: float | None) -> str:
    """``12,345``."""
    return NOT_KNOWN if number is None else f"{number:,.0f}" if isinstance(number, float) else f"{number:,}"


def amount(number: float) -> str:
    """``12,345`` or ``12.345``: as many decimals as say something, three at most."""
    return f"{number:,.3f}".rstrip("0").rstrip(".")


def duration(seconds: float | None) -> str:
    """``2 min 10 s``: the two largest units."""
    if seconds is None:
        return NOT_KNOWN
    if seconds >= _YEARS:
        return "over 100 years"
    left = max(0, round(seconds))
    parts: list[str] = []
    for unit, length in _UNITS:
        amount, left = divmod(left, length)
        if amount or parts:
            parts.append(f"{amount} {unit}" if amount else "")
    return " ".join(part for part in parts[:2] if part) or "0 s"


def short_count(number: float) -> str:
    """``950``, ``12k``, ``3.4M``: beside an axis."""
    for size, unit in _SIZES:
        if number >= size:
            return f"{number / size:.4g}{unit}"
    return f"{number:.4g}"


def short_duration(seconds: float) -> str:
    """``45 s``, ``1.5 h``: beside an axis."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.4g} {unit}"
    return f"{seconds:.4g} s"


def rate(per_second: float | None) -> str:
    """``1,234 /s``, with a decimal where it says something."""
    if per_second is None:
        return NOT_KNOWN
    return f"{per_second:,.0f} /s" if per_second >= 10 else f"{per_second:,.1f} /s"  # noqa: PLR2004


def percent(share: float | None) -> str:
    """``66.7 %``."""
    if share is None:
        return NOT_KNOWN
    return f"{share * 100:.1f}".removesuffix(".0") + " %"


def moment(when: datetime | None) -> str:
    """``2026-11-21 16:04:05 UTC``."""
    return NOT_KNOWN if when is None else when.isoformat(" ", "seconds").replace("+00:00", " UTC")


def clock(epoch_s: float) -> str:
    """``16:04:05``, in UTC."""
    return datetime.fromtimestamp(min(max(0.0, epoch_s), LAST_SECOND), UTC).strftime("%H:%M:%S")


def visible(name: str, longest: int = _LONGEST_NAME) -> str:
    """A name in which everything can be seen: controls and directions are written out, length is bounded."""
    shown = name if len(name) <= longest else name[:longest] + "…"
    if not shown.strip():
        return "(empty)" if not shown else "".join(f"\\u{{{ord(char):x}}}" for char in shown)
    return shown if shown.isprintable() else "".join(map(_visible_char, shown))


def marked(sentence: str) -> Markup:
    """A sentence in which what stands between backticks is shown as code."""
    parts = enumerate(sentence.split("`"))
    return Markup().join(Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in parts)


def _visible_char(char: str) -> str:
    return char if char.isprintable() else f"\\u{{{ord(char):x}}}"


def head_offset(partition: PartitionLag) -> int | None:
    """The log end offset when the verdict was taken."""
    if partition.end is None or partition.current_lag is None:
        return None
    return partition.end.offset + partition.current_lag


_ALL = (amount, clock, count, duration, head_offset, marked, moment, percent, rate, short_count, visible)
FILTERS = {function.__name__: function for function in _ALL}
"""By the names the templates use."""
