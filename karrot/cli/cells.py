"""Writes the cells of a table, and fields as JSON has them."""

import sys
from datetime import datetime
from typing import Any

from karrot.cli.table import shown
from karrot.text import iso, plain_amount

__all__ = ["UNKNOWN", "number", "plain", "safe"]

UNKNOWN = "-"
"""What is not known; never a zero."""


def plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields as JSON has them."""
    return {name: iso(value) if isinstance(value, datetime) else value for name, value in fields.items()}


def number(value: float | None) -> str:
    """A number, and a dash for what is not known."""
    return UNKNOWN if value is None else plain_amount(value)


def safe(text: str) -> str:
    """A name as this terminal can write it."""
    return shown(text, sys.stdout.encoding)
