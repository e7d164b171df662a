"""The pictures of one group: its recent events, and its last weeks."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from karrot.event import Kind, Status
from karrot.history import HourlyHistory
from karrot.web.pages.drawing import Band, Chart, DrawnSpan, Frame, bands, chart, frame
from karrot.web.pages.recent_events import Mark

__all__ = ["ChartPoint", "Pictures", "of_past", "of_trail"]

_HOUR_S = 3600
_FEWEST = 2


class ChartPoint(NamedTuple):
    """Where the pointer may rest: a stretch of the width, and the words for it."""

    at: float
    width: float
    mark: Mark


class Pictures(NamedTuple):
    """Curves over one frame, the incidents that shade them, the statuses beneath."""

    frame: Frame
    lag: Chart | None
    behind: Chart | None
    incidents: list[DrawnSpan]
    statuses: list[DrawnSpan]
    points: list[ChartPoint]


def of_trail(trail: Sequence[Mark], now: float) -> Pictures | None:
    """The recent events up to now (epoch seconds); ``None`` for fewer than two."""
    marks = sorted(trail, key=lambda mark: mark.at_ms)
    if len(marks) < _FEWEST:
        return None
    end = max(now, marks[-1].at_ms / 1000)
    within = frame(marks[0].at_ms / 1000, end)
    return Pictures(
        within,
        chart([(mark.at_ms / 1000, mark.lag) for mark in marks], within, in_time=False),
        chart([(mark.at_ms / 1000, mark.lag_seconds) for mark in marks], within, in_time=True),
        bands(_incidents(marks, end), within),
        bands(_statuses(marks, end), within),
        list(_points(marks, within)),
    )


def of_past(past: HourlyHistory) -> Pictures:
    """The weeks before, by the hour."""
    within = frame(past.start.timestamp(), past.end.timestamp())
    lags = [(hour.at.timestamp(), hour.lag_max) for hour in past.hours]
    delays = [(hour.at.timestamp(), hour.lag_seconds) for hour in past.hours]
    incidents = [
        Band(each.started_at.timestamp(), (each.ended_at or past.end).timestamp(), each.worst_status or "WARN")
        for each in reversed(past.incidents)
    ]
    hours = (
        Band(hour.at.timestamp(), hour.at.timestamp() + _HOUR_S, Status(int(hour.status)).name)
        for hour in past.hours
        if hour.status is not None
    )
    return Pictures(
        within,
        chart(lags, within, in_time=False),
        chart(delays, within, in_time=True),
        bands(incidents, within),
        bands(hours, within),
        [],
    )


def _incidents(marks: Sequence[Mark], end: float) -> Iterator[Band]:
    """From an event of an incident to the next event, whatever it says."""
    for mark, since, until in _lasting(marks, end):
        if mark.kind is Kind.INCIDENT:
            yield Band(since, until, "incident")


def _statuses(marks: Sequence[Mark], end: float) -> Iterator[Band]:
    for mark, since, until in _lasting(marks, end):
        yield Band(since, until, mark.status_text)


def _lasting(marks: Sequence[Mark], end: float) -> Iterator[tuple[Mark, float, float]]:
    """Each event with when it was told and when the next one was."""
    moments = [*(mark.at_ms / 1000 for mark in marks), end]
    for mark, (since, until) in zip(marks, pairwise(moments), strict=True):
        yield mark, since, until


def _points(marks: Sequence[Mark], within: Frame) -> Iterator[ChartPoint]:
    """Each event from half-way since the one before to half-way to the next."""
    places = [within.x(mark.at_ms / 1000) for mark in marks]
    edges = [0.0, *((left + right) / 2 for left, right in pairwise(places)), 100.0]
    for mark, (left, right) in zip(marks, pairwise(edges), strict=True):
        yield ChartPoint(round(left, 2), round(right - left, 2), mark)
