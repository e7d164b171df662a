"""A recorded lag from the text of a CSV file."""

import csv
import io
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from math import isfinite

from karrot.autoscaling.arrival_rate import LagSample

__all__ = ["samples_of_csv"]

_MILLISECONDS_FROM = 1e11  # the year 5138 in seconds, 1973 in milliseconds
_TIME, _LAG, _RATE = range(3)


def samples_of_csv(text: str) -> list[LagSample]:
    """Samples from the columns time, lag and, if there is a third, messages that arrived per second.

    A time is ISO 8601 (UTC unless it says otherwise) or epoch seconds or milliseconds. A first line whose lag is no
    number is a heading; lines without a lag are passed over: nothing was known then. Raises `ValueError` with the
    number of the line that cannot be read.
    """
    return list(_samples(csv.reader(io.StringIO(text))))


def _samples(lines: Iterator[list[str]]) -> Iterator[LagSample]:
    for number, cells in enumerate(lines, start=1):
        if not any(cells) or _is_heading(number, cells):
            continue
        try:
            sample = _sample([cell.strip() for cell in cells])
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
        if sample is not None:
            yield sample


def _is_heading(number: int, cells: Sequence[str]) -> bool:
    if number > 1 or len(cells) <= _LAG:
        return False
    try:
        float(cells[_LAG])
    except ValueError:
        return cells[_LAG] != ""
    return False


def _sample(cells: Sequence[str]) -> LagSample | None:
    if len(cells) <= _LAG:
        raise ValueError("a time and a lag are needed, with a comma between them")
    if not cells[_LAG]:
        return None
    rate = _amount(cells[_RATE]) if len(cells) > _RATE and cells[_RATE] else None
    return LagSample(_time(cells[_TIME]), _amount(cells[_LAG]), rate)


def _time(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return _moment(text)
    if not (isfinite(number) and number >= 0):
        raise ValueError(f"{text} is no time")
    return number / 1000 if number >= _MILLISECONDS_FROM else number


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time, such as 2026-11-17T09:30:00Z or epoch seconds") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _amount(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None
    if not (isfinite(number) and number >= 0):
        raise ValueError(f"{text} cannot be an amount of messages")
    return number
