"""Computes the trend of a group's newest lags, and the shapes of charts: sparklines, curves, bands of status.

The templates draw these shapes as SVG. A curve has coordinates in a box of 1000 by 100, which the SVG stretches. Ticks
are percentages of the SVG's width or height.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from math import ceil, floor, inf, log10
from statistics import correlation, linear_regression
from typing import TYPE_CHECKING, NamedTuple

from karrot.event import GroupKey, Kind, Status
from karrot.eventlog.base import EventSummary
from karrot.eventlog.event_log import EventLog
from karrot.signals import Signals
from karrot.text import LAST_SECOND, short_count, short_duration

if TYPE_CHECKING:
    from karrot.history.answers_and_errors import HourlyHistory

Point = tuple[float, float | None]
"""Epoch seconds and a value. ``None`` means an unknown value, and makes a gap in the curve."""

_WIDE, _HIGH = 1000.0, 100.0
_SPARK_WIDE, _SPARK_HIGH, _SPARK_EDGE = 96.0, 22.0, 2.5
_Y_TICKS = 3
_GAP = 4
"""A curve has a gap where the time between two points is more than 4 times the median, because no events came."""

_SECONDS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_DAYS = (1, 2, 5, 7, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_STEPS = (*_SECONDS, *(days * 86400 for days in _DAYS[1:]))
_X_TICKS = 6
_FORMS = ((60, "%H:%M:%S"), (86_400, "%H:%M"), (100 * 86_400, "%d %b"), (inf, "%b %Y"))
"""Time formats with limits in seconds. The first format whose limit is above the ticks' step is used."""

_MOST_POINTS = 240
_HOUR_S = 3600

TRAIL_LENGTH = 30
"""The number of newest lags in a group's trend and sparkline."""

_TREND_LAGS = 5
_SLOW_LAGS = 15
_ALONG_A_LINE = 0.9
"""The least share of the lags' variance that a line must explain. Scattered lags have a far smaller share."""

_STEADY = 0.15
"""A lag counts as steady if its change is less than this share of its recent peak."""

_SMALL_LAG = 20


class Trend(NamedTuple):
    """The direction of a lag (``growing``, ``shrinking`` or ``steady``) and its change in messages per second."""

    word: str
    per_second: float


class DrawnSpan(NamedTuple):
    """A span of time, in percent of the width."""

    at: float
    width: float
    kind: str


class Band(NamedTuple):
    """A status between two times in epoch seconds."""

    since: float
    until: float
    status: str


class Tick(NamedTuple):
    """A mark on an axis, at a percentage of the width or height."""

    at: float
    text: str


class Frame(NamedTuple):
    """The span of time, in epoch seconds, and the ticks of all charts on a page."""

    start: float
    end: float
    ticks: Sequence[Tick]

    def x(self, at: float) -> float:
        """The position of a time, in percent of the width."""
        return round(100 * (at - self.start) / (self.end - self.start), 2)


class Chart(NamedTuple):
    """A curve. ``lines`` has points of polylines, and ``areas`` points of polygons. ``ticks`` begin at the bottom."""

    lines: Sequence[str]
    areas: Sequence[str]
    ticks: Sequence[Tick]


class Spark(NamedTuple):
    """A curve in a table cell: points of a polyline, points of the polygon below, and the last point."""

    line: str
    area: str
    end: tuple[float, float]


class GroupCharts(NamedTuple):
    """The curves of one frame, with shaded incidents, a band of statuses, and the values at each percentage.

    ``step_s`` is the seconds of one point, if the points are the worst events of equal spans of time.
    """

    frame: Frame
    lag: Chart | None
    behind: Chart | None
    incidents: list[DrawnSpan]
    statuses: list[DrawnSpan]
    points: list[tuple[float, int, str, float | None, Signals]]
    step_s: float = 0


def point(summary: EventSummary) -> Point:
    """Return the chart's point for an event's total lag."""
    return summary.observed_at_ms / 1000, summary.total_lag


def recent(log: EventLog, keys: Sequence[GroupKey], limit: int = TRAIL_LENGTH) -> list[list[EventSummary]]:
    """Read the newest events of each group, oldest first."""
    return [[each.summary for each in reversed(events)] for events in log.recent(keys, limit)]


def trend(trail: Sequence[Point]) -> Trend | None:
    """Compute the trend of the newest lags by least squares. Return ``None`` for too few lags.

    The five newest lags show a fast change. Only the 15 newest lags show a slow change of a large lag. A slow change is
    a trend if the 15 lags lie along one line and the five newest lags change in the same direction.
    """
    newest = _line(trail[-_TREND_LAGS:])
    if newest is None:
        return None
    slope, change, _ = newest
    peak = max((lag for _, lag in trail if lag is not None), default=0)
    if abs(change) < max(_SMALL_LAG, _STEADY * peak):
        _, longer_change, explained = _line(trail[-_SLOW_LAGS:]) or (0, 0, 0)
        if abs(longer_change) < _SMALL_LAG or explained < _ALONG_A_LINE or change * longer_change <= 0:
            return Trend("steady", slope)
    return Trend("growing" if change > 0 else "shrinking", slope)


def _line(trail: Sequence[Point]) -> tuple[float, float, float] | None:
    """Fit a line to the lags by least squares. ``None`` for fewer than three lags, or if times do not increase.

    Returns the slope in messages per second, the change in messages from the first lag to the last, and the share of
    the lags' variance that the line explains, from 0 to 1.
    """
    known = [(at, lag) for at, lag in trail if lag is not None]
    if len(known) < 3 or any(later[0] <= earlier[0] for earlier, later in pairwise(known)):  # noqa: PLR2004
        return None
    times, lags = zip(*known, strict=True)
    slope = linear_regression(times, lags).slope
    return slope, slope * (times[-1] - times[0]), correlation(times, lags) ** 2 if len({*map(float, lags)}) > 1 else 0.0


def spark(trail: Sequence[Point]) -> Spark | None:
    """Make a sparkline that begins at zero. Return ``None`` for fewer than two values."""
    values = [value for _, value in trail if value is not None]
    if len(values) < 2:  # noqa: PLR2004
        return None
    top = max(*values, 1.0)
    step = (_SPARK_WIDE - 2 * _SPARK_EDGE) / (len(values) - 1)
    high = _SPARK_HIGH - 2 * _SPARK_EDGE
    points = [
        (round(_SPARK_EDGE + n * step, 1), round(_SPARK_EDGE + high * (1 - value / top), 1))
        for n, value in enumerate(values)
    ]
    line = " ".join(f"{x:g},{y:g}" for x, y in points)
    floor_y = _SPARK_HIGH - _SPARK_EDGE
    return Spark(line, f"{points[0][0]:g},{floor_y:g} {line} {points[-1][0]:g},{floor_y:g}", points[-1])


def frame(start: float, end: float) -> Frame:
    """Make a frame of a span of time, with ticks at round times in UTC."""
    end = max(end, start + 1)
    step = next((each for each in _STEPS if (end - start) / each <= _X_TICKS), ceil((end - start) / _X_TICKS))
    form = next(form for below, form in _FORMS if step < below)
    first = -(-start // step) * step
    empty = Frame(start, end, ())
    ticks = []
    for number in range(max(0, floor((end - first) / step) + 1)):
        at = first + number * step
        text = datetime.fromtimestamp(min(at, LAST_SECOND), UTC).strftime(form)
        ticks.append(Tick(empty.x(at), text.lstrip("0") if form.startswith("%d") else text))
    return empty._replace(ticks=ticks)


def chart(points: Sequence[Point], within: Frame, *, in_time: bool) -> Chart | None:
    """Make a curve with an axis from zero. ``None`` if no value is known. With ``in_time``, values are seconds."""
    top = max((value for _, value in points if value is not None), default=None)
    if top is None:
        return None
    least = top / _Y_TICKS
    if in_time:
        step = float(next((each for each in _STEPS if each >= least), least))
    else:
        size = 10.0 ** floor(log10(max(least, 1)))
        step = next(each * size for each in (1, 2, 5, 10) if each * size >= least)
    highest = step * max(1, -(-top // step))
    lines, areas = [], []
    for piece in _pieces(points):
        drawn = [(f"{within.x(at) * _WIDE / 100:g}", f"{_HIGH * (1 - value / highest):.4g}") for at, value in piece]
        lines.append(" ".join(f"{x},{y}" for x, y in drawn))
        areas.append(f"{drawn[0][0]},{_HIGH:g} {lines[-1]} {drawn[-1][0]},{_HIGH:g}")
    text = short_duration if in_time else short_count
    ticks = [Tick(100 * n * step / highest, text(n * step)) for n in range(1, round(highest / step) + 1)]
    return Chart(lines, areas, ticks)


def _pieces(points: Sequence[Point]) -> Iterator[list[tuple[float, float]]]:
    """Split the points at unknown values and after a long time without events."""
    distances = sorted(later[0] - earlier[0] for earlier, later in pairwise(points))
    longest = _GAP * distances[len(distances) // 2] if distances else inf
    piece: list[tuple[float, float]] = []
    for at, value in points:
        if piece and (value is None or at - piece[-1][0] > longest):
            yield piece
            piece = []
        if value is not None:
            piece.append((at, value))
    if piece:
        yield piece


def bands(statuses: Iterable[Band], within: Frame) -> list[DrawnSpan]:
    """Convert statuses to spans in percent. Consecutive equal statuses become one span."""
    joined: list[Band] = []
    for band in statuses:
        if joined and joined[-1].status == band.status and joined[-1].until >= band.since:
            joined[-1] = joined[-1]._replace(until=band.until)
        else:
            joined.append(band)
    drawn = []
    for since, until, status in joined:
        if until > within.start and since < within.end:
            start, end = within.x(max(since, within.start)), within.x(min(until, within.end))
            drawn.append(DrawnSpan(start, round(end - start, 2), status))
    return drawn


def charts_of_events(newest: Sequence[EventSummary], now: float, span_s: float) -> GroupCharts | None:
    """Make the charts of the ``span_s`` seconds up to ``now`` in epoch seconds. ``None`` for fewer than two events."""
    events = sorted(newest, key=lambda event: event.observed_at_ms)
    end = max(now, events[-1].observed_at_ms / 1000) if events else now
    events = [event for event in events if event.observed_at_ms / 1000 >= end - span_s]
    step_s = 0.0
    if len(events) > _MOST_POINTS:  # the worst event of each span of time, so that no peak is left out
        step_s, worst = span_s / _MOST_POINTS, dict[int, EventSummary]()
        for event in events:
            place = int(event.observed_at_ms / 1000 / step_s)
            worst[place] = max(
                worst.get(place, event), event, key=lambda one: (one.kind is Kind.INCIDENT, one.total_lag or 0)
            )
        events = list(worst.values())
    if len(events) < 2:  # noqa: PLR2004
        return None
    times = [event.observed_at_ms / 1000 for event in events]
    within = frame(times[0], end)
    lasting = list(zip(events, times, [*times[1:], end], strict=True))
    return GroupCharts(
        within,
        chart([(at, one.total_lag) for one, at, _ in lasting], within, in_time=False),
        chart([(at, one.signals.lag_seconds) for one, at, _ in lasting], within, in_time=True),
        # Each event of an incident shades the time up to the next event, with any status.
        bands((Band(since, until, "incident") for one, since, until in lasting if one.kind is Kind.INCIDENT), within),
        bands((Band(since, until, one.reported_status) for one, since, until in lasting), within),
        [(within.x(at), one.observed_at_ms, one.reported_status, one.total_lag, one.signals) for one, at, _ in lasting],
        step_s,
    )


def charts_of_history(past: "HourlyHistory") -> GroupCharts:
    """Make the charts of the last weeks, with one point per hour."""
    within = frame(past.start.timestamp(), past.end.timestamp())
    hours = [
        (at.timestamp(), lag, Signals(lag_seconds=seconds), "no status" if status is None else Status(int(status)).name)
        for at, (lag, seconds, status) in past.hours
    ]
    incidents = [
        Band(each.started_at.timestamp(), (each.ended_at or past.end).timestamp(), each.worst_status or "WARN")
        for each in reversed(past.incidents)
    ]
    statuses = (Band(at, at + _HOUR_S, status) for at, _, _, status in hours if status != "no status")
    return GroupCharts(
        within,
        chart([(at, lag) for at, lag, _, _ in hours], within, in_time=False),
        chart([(at, signals.lag_seconds) for at, _, signals, _ in hours], within, in_time=True),
        bands(incidents, within),
        bands(statuses, within),
        [(within.x(at), round(1000 * at), status, lag, signals) for at, lag, signals, status in hours],
    )
