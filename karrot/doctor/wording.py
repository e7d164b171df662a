"""How names and numbers are put into a finding."""

from collections.abc import Sequence

__all__ = ["counted", "some"]

_NAMED = 3


def some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    told = ", ".join(names[:_NAMED])
    return told if len(names) <= _NAMED else f"{told} and {len(names) - _NAMED} more"


def counted(number: float, what: str) -> str:
    """``1 group``, ``2 groups``."""
    return f"{number:.0f} {what}" if number == 1 else f"{number:.0f} {what}s"
