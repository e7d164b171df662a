"""Which days the tables hold: the difference between "nothing happened" and "nothing is known".

``karrot pipeline derive`` finds the incidents of all days last. It then notes the days that it finished in
``_derived.json``. A day of ``verdict_runs`` that the note lacks may have incidents that no table has yet.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

from karrot.history.errors import UnreadableTable
from karrot.history.spans import Span

__all__ = ["Days", "Stretch", "asked_days", "finished", "stretches"]

_NOTE = "_derived.json"
_DAY = timedelta(days=1)


class Stretch(NamedTuple):
    """Days in a row (UTC), both ends included."""

    first: date
    last: date

    @property
    def length(self) -> int:
        """How many days it has."""
        return (self.last - self.first).days + 1


@dataclass(frozen=True, slots=True)
class Days:
    """The days of a question: those that the tables hold, and those that they do not."""

    held: tuple[Stretch, ...]
    missing: tuple[Stretch, ...]


def asked_days(span: Span, held: Collection[date]) -> Days:
    """The days of a span, by the days that the tables hold."""
    asked = [span.first_day + number * _DAY for number in range((span.last_day - span.first_day).days + 1)]
    kept = frozenset(held)
    return Days(
        tuple(stretches(day for day in asked if day in kept)), tuple(stretches(day for day in asked if day not in kept))
    )


def stretches(days: Iterable[date]) -> Iterator[Stretch]:
    """Days in their order as stretches without a gap."""
    first = last = None
    for day in days:
        if first is not None and last is not None and day - last > _DAY:
            yield Stretch(first, last)
            first = day
        first, last = first or day, day
    if first is not None and last is not None:
        yield Stretch(first, last)


def finished(tables: Path) -> frozenset[date]:
    """The days that derive noted as finished; none if there is no note or it is damaged: derive then does them again.

    Raises `UnreadableTable` where the note may not be read.
    """
    try:
        note = json.loads((tables / _NOTE).read_bytes())
        return frozenset(map(date.fromisoformat, note["days"]))
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return frozenset()
    except OSError as error:
        raise UnreadableTable(f"{tables / _NOTE} cannot be read ({error.strerror}): let this user read it") from error
