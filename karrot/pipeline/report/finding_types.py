"""Defines the types of a report's findings: a few small rows about a period, in the units of the tables.

Every list is bounded (`GROUPS_SHOWN`, `INCIDENTS_SHOWN`, one row a day), however large the tables are. Moments are
seconds since 1970. ``None`` is "not known".
"""

from collections.abc import Sequence
from datetime import date
from typing import Final, NamedTuple

from karrot.event import DayRange, Incident

GROUPS_SHOWN: Final = 20
INCIDENTS_SHOWN: Final = 500


class DayTotal(NamedTuple):
    """A day over all groups; ``measured`` minutes are those whose lag in time was known."""

    day: date
    groups: int
    seen: int
    ok: int
    measured: int
    within: int


class LagPoint(NamedTuple):
    """The largest lag in time of a stretch that begins at ``at_s``."""

    at_s: int
    seconds: float | None


class GroupLag(NamedTuple):
    """How far a group was behind. ``peak_at_s`` is the minute of ``peak_seconds``, or of ``peak_lag`` without it."""

    cluster: str
    consumer: str
    peak_seconds: float | None
    peak_lag: int | None
    peak_at_s: int | None
    worst_status: str | None
    points: Sequence[LagPoint]


class Hours(NamedTuple):
    """How many seconds of the period a group was in each status."""

    cluster: str
    consumer: str
    ok: int
    warn: int
    err: int


class Skewed(NamedTuple):
    """How the lag of a topic lay on its partitions, in the minutes in which that mattered.

    ``partition`` was the worst in most of them, ``owner`` is whose it was then; ``cause`` is the one told most often.
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
    """The largest produce rate of a day, over five minutes."""

    day: date
    produced: float


class Capacity(NamedTuple):
    """The best rate that a consumer kept up for five minutes under pressure, and what it was asked for day by day."""

    cluster: str
    consumer: str
    topic: str
    best: float
    days: Sequence[DayPeak]


class DayBurn(NamedTuple):
    """How fast a group burnt its budget on a day; ``None`` if nothing was measured."""

    day: date
    rate: float | None


class Budget(NamedTuple):
    """What a group had and spent of its error budget; ``spent`` is 1 when all of it is gone."""

    cluster: str
    consumer: str
    measured: int
    beyond: int
    allowed: float
    spent: float
    worst_partition: str | None
    days: Sequence[DayBurn]


class AnsweredTopics(NamedTuple):
    """How many topics of groups there are figures of, and for how many the question could be answered."""

    topics: int
    answered: int


class IncidentTotals(NamedTuple):
    """How many incidents there were, how many of them are open, and how many ended by silence."""

    incidents: int
    open: int
    silent: int


class Flapping(NamedTuple):
    """A group with many short incidents: how many of them ended, and the median of how long these lasted."""

    cluster: str
    consumer: str
    ended: int
    median_s: float


class Quarantined(NamedTuple):
    """Lines that could not be read, and lines that segments lacked."""

    lines: int
    missing: int


class Findings(NamedTuple):
    """Everything that a report tells.

    ``incidents`` are the longest, and ``open_incidents`` the longest that are open; ``incident_totals`` counts all.
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
