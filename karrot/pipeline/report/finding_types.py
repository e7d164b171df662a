"""Defines the types of a report's findings about a period, in the units of the tables.

Every list has a limit (`GROUPS_SHOWN`, `INCIDENTS_SHOWN`, one row per day), even for large tables. Times are epoch
seconds. ``None`` means "unknown".
"""

from collections.abc import Sequence
from datetime import date
from typing import Final, NamedTuple

from karrot.history.answers_and_errors import Incident
from karrot.history.time_ranges import DayRange

GROUPS_SHOWN: Final = 20
INCIDENTS_SHOWN: Final = 500


class DayTotal(NamedTuple):
    """The totals of all groups on a day. ``measured`` counts the minutes in which the lag in seconds was known."""

    day: date
    groups: int
    seen: int
    ok: int
    measured: int
    within: int


class LagPoint(NamedTuple):
    """The largest lag, in seconds, in one part of the period. The part begins at ``at_s``."""

    at_s: int
    seconds: float | None


class GroupLag(NamedTuple):
    """The lag of a group over the period.

    ``peak_at_s`` is the minute of ``peak_seconds`` or, if that is ``None``, the minute of ``peak_lag``. ``is_bound``
    says that ``peak_seconds`` is a lower bound.
    """

    cluster: str
    consumer: str
    peak_seconds: float | None
    peak_lag: int | None
    peak_at_s: int | None
    worst_status: str | None
    is_bound: bool
    points: Sequence[LagPoint]


class Hours(NamedTuple):
    cluster: str
    consumer: str
    ok: int
    warn: int
    err: int


class Skewed(NamedTuple):
    """The skew of a topic's lag in the minutes in which the group was not OK or its lag was above its target.

    ``partition``, ``owner`` and ``cause`` are the most frequent values in these minutes.
    """

    cluster: str
    consumer: str
    topic: str
    minutes: int
    share: float
    gini: float
    partition: int
    owner: str | None
    cause: str | None


class DayPeak(NamedTuple):
    """The largest average produce rate over five minutes on a day."""

    day: date
    produced: float


class Capacity(NamedTuple):
    """A consumer's best consume rate over five minutes under pressure, and the peak produce rate of each day."""

    cluster: str
    consumer: str
    topic: str
    best: float
    days: Sequence[DayPeak]


class DayBurn(NamedTuple):
    """The burn rate of a group's error budget on a day. The rate is ``None`` if no minute was measured."""

    day: date
    rate: float | None


class Budget(NamedTuple):
    """The error budget of a group. ``spent`` is the used share of the budget; 1 is the whole budget."""

    cluster: str
    consumer: str
    measured: int
    beyond: int
    allowed: float
    spent: float
    worst_partition: str | None
    days: Sequence[DayBurn]


class AnsweredTopics(NamedTuple):
    """The number of topics with data, and the number of topics whose data suffice for a report section."""

    topics: int
    answered: int


class IncidentTotals(NamedTuple):
    incidents: int
    open: int
    silent: int


class Flapping(NamedTuple):
    """A group with many short incidents: the number of ended incidents, and their median duration."""

    cluster: str
    consumer: str
    ended: int
    median_s: float


class Quarantined(NamedTuple):
    """The number of lines that could not be read, and of lines that are missing from segments."""

    lines: int
    missing: int


class Findings(NamedTuple):
    """All data of a report.

    ``incidents`` are the longest incidents, ``open_incidents`` the longest open incidents. ``incident_totals`` counts
    all incidents. ``unknown`` counts the groups with a minute in which the lag of some partitions is not known.
    """

    period: DayRange
    target_seconds: float | None
    objective: float | None
    heard_from_s: int
    heard_until_s: int
    days: Sequence[DayTotal]
    days_before: Sequence[DayTotal]
    groups: int
    lags: Sequence[GroupLag]
    incidents: Sequence[Incident]
    open_incidents: Sequence[Incident]
    incident_totals: IncidentTotals
    flapping: Sequence[Flapping]
    hours: Sequence[Hours]
    skewed: Sequence[Skewed]
    skew_watched: AnsweredTopics
    capacities: Sequence[Capacity]
    rates_watched: AnsweredTopics
    budgets: Sequence[Budget]
    quarantined: Quarantined
    unknown: int = 0
