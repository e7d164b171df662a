"""Computes the shapes of the report's SVG charts, in percent of the width.

Heights are in the units of each chart. The templates draw the shapes, and add text for screen readers.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import NamedTuple

from karrot.history.answers_and_errors import Incident
from karrot.history.report_findings import Budget, Capacity, Findings, Hours, LagPoint
from karrot.history.time_ranges import DayRange

_MOST_TICKS = 7
_HOUR_S = 3600
_STEPS_H = (1, 3, 6, 12)
_NARROWEST = 0.25
_HEIGHT = 100.0
_TALLEST_BURN = 2.0


class ReportTick(NamedTuple):
    at: float
    text: str


class IncidentBar(NamedTuple):
    """The position and width of an incident's bar. ``goes_on`` means that the incident does not end in the chart."""

    at: float
    width: float
    incident: Incident
    goes_on: bool


class Bar(NamedTuple):
    """A bar. Its position and width are in percent, its height is in the units of the chart."""

    at: float
    width: float
    height: float
    kind: str
    text: str


def _place(at_s: float, period: DayRange) -> float:
    return round(100 * (at_s - period.start_s) / (period.end_s - period.start_s), 3)


def ticks(period: DayRange) -> list[ReportTick]:
    """Make at most eight marks of the time axis: midnights or, in a short period, full hours."""
    days = len(period.dates)
    step_h = next((h for h in _STEPS_H if days * 24 <= h * (_MOST_TICKS + 1)), 24 * -(-days // _MOST_TICKS))
    moments = range(period.start_s, period.end_s, step_h * _HOUR_S)
    made = []
    for at_s in moments:
        at = datetime.fromtimestamp(at_s, UTC)
        text = f"{at:%a} {at.day}" if step_h >= 24 and at.hour == 0 else f"{at:%H:%M}"  # noqa: PLR2004 (hours of a day)
        made.append(ReportTick(_place(at_s, period), text))
    return made


def spans(incidents: Iterable[Incident], findings: Findings) -> list[IncidentBar]:
    """Make the bars of incidents, cut at the ends of the period, and wide enough to be visible."""
    period, bars = findings.period, list[IncidentBar]()
    for incident in sorted(incidents, key=lambda one: one.started_at):
        ended_s = findings.heard_until_s if incident.ended_at is None else incident.ended_at.timestamp()
        start = max(0.0, _place(incident.started_at.timestamp(), period))
        width = max(_NARROWEST, min(100.0, _place(ended_s, period)) - start)
        goes_on = incident.ended_at is None or ended_s > period.end_s
        bars.append(IncidentBar(round(min(start, 100 - width), 3), round(width, 3), incident, goes_on))
    return bars


def line(points: Sequence[LagPoint], period: DayRange, top: float) -> list[str]:
    """Make polylines in a box of 100 by 100. Unknown values leave gaps. The upper edge has the value ``top``."""
    pieces: list[list[str]] = [[]]
    step = min((later.at_s - point.at_s for point, later in pairwise(points)), default=0)
    expected = None
    for point in points:
        if point.seconds is None or (expected is not None and point.at_s > expected):
            pieces.append([])
        if point.seconds is not None:
            x = 100 * (point.at_s + step / 2 - period.start_s) / (period.end_s - period.start_s)
            pieces[-1].append(f"{x:.2f},{_HEIGHT * (1 - min(1, point.seconds / top)):.2f}")
        expected = point.at_s + step
    return [" ".join(piece if len(piece) > 1 else piece * 2) for piece in pieces if piece]


def share_bars(hours: Hours, heard_s: int) -> list[Bar]:
    """Make a bar for the time in each status, and for the rest of ``heard_s``, whose status is unknown."""
    unknown = max(0, heard_s - hours.ok - hours.warn - hours.err)
    total = hours.ok + hours.warn + hours.err + unknown
    at, bars = 0.0, []
    for kind, seconds in (("err", hours.err), ("warn", hours.warn), ("ok", hours.ok), ("other", unknown)):
        width = 100 * seconds / total
        if seconds:
            bars.append(Bar(round(at, 3), round(width, 3), _HEIGHT, kind, kind))
        at += width
    return bars


def burn_bars(budget: Budget, period: DayRange) -> list[Bar]:
    """Make a bar per measured day. Half height is a burn rate of 1, full height is a burn rate of 2 or more."""
    bars = []
    for day, rate in budget.days:
        if rate is None:
            continue
        height = max(4.0, _HEIGHT * min(1.0, rate / _TALLEST_BURN)) if rate else 1.5
        kind = "err" if rate > 1 else "warn" if rate > 0 else "ok"
        bars.append(_day_bar(day, period, height, kind, f": {rate:.1f}"))
    return bars


def peak_bars(capacity: Capacity, period: DayRange) -> list[Bar]:
    """Make a bar per day for the peak produce rate. The best consume rate is at four fifths of the full height."""
    bars = []
    for day, produced in capacity.days:
        share = produced / capacity.best
        kind = "err" if share > 1 else "warn" if share > 0.9 else "ok"  # noqa: PLR2004 (a margin of a tenth)
        bars.append(_day_bar(day, period, min(1.25, share) * 80, kind))
    return bars


def _day_bar(day: date, period: DayRange, height: float, kind: str, value: str = "") -> Bar:
    """Make a bar in the middle of its day, four fifths as wide as the day."""
    width = 100 / len(period.dates)
    at = width * ((day - period.first).days + 0.1)
    return Bar(round(at, 3), round(0.8 * width, 3), round(height, 2), kind, f"{day:%a} {day.day}{value}")
