"""Values as cells of a table and in JSON: times, durations, numbers and names."""

import sys
from datetime import datetime, timedelta
from typing import Any

from karrot.cli.table_layout import shown

__all__ = ["UNKNOWN", "clock", "counted", "iso", "length", "number", "plain", "safe"]

UNKNOWN = "-"
"""What is not known; never a zero."""


def plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields as JSON has them."""
    return {name: iso(value) if isinstance(value, datetime) else value for name, value in fields.items()}


def iso(moment: datetime) -> str:
    """ISO 8601, in UTC."""
    return moment.isoformat().replace("+00:00", "Z")


def clock(moment: datetime) -> str:
    """A moment to the minute."""
    return f"{moment:%Y-%m-%d %H:%M}"


def length(span: timedelta) -> str:
    """Two units at the most: 45s, 12m 5s, 3h 20m, 2d 4h."""
    seconds = round(span.total_seconds())
    units = ((seconds // 86_400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s"))
    first = next((at for at, (count, _) in enumerate(units) if count), len(units) - 1)
    return " ".join(f"{count}{unit}" for count, unit in units[first : first + 2] if count) or "0s"


def number(value: float | None) -> str:
    """A dash for what is not known; as many digits as say something."""
    if value is None:
        return UNKNOWN
    return str(value) if isinstance(value, int) else f"{value:.3f}".rstrip("0").rstrip(".")


def counted(number: int, what: str) -> str:
    """So many of something."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def safe(text: str) -> str:
    """A name as this terminal can write it."""
    return shown(text, sys.stdout.encoding)
