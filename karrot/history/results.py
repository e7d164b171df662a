"""Defines the history's answers and errors. Moments are in UTC, lags are messages; ``None`` is what was not known."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from karrot.event import DayRange, Incident


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """A consumer group over a span of time.

    ``status`` is the worst of the last minute in which something was said, ``worst_status`` that of all; a minute is
    not OK if one of its events was worse than OK. ``incidents`` counts those that overlap the span. All three are
    ``None`` where there was no verdict, as the group's lag comes from Kafka's own offsets. If incidents are not known
    on some of the group's days (`History.uncounted`), ``incidents`` is the least there were, or ``None``.
    """

    cluster: str
    group: str
    first_at: datetime
    last_at: datetime
    status: str | None
    worst_status: str | None
    lag: int | None
    lag_max: int | None
    lag_seconds_max: float | None
    minutes: int
    minutes_not_ok: int
    incidents: int | None


class SeriesPoint(NamedTuple):
    """The values of a time series, in the order of its metrics, from ``at`` on for one step of it.

    No dataclass: of these there are tens of thousands in an answer, and a tuple is made in half the time.
    """

    at: datetime
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """Metrics of one group; steps in which nothing was said have no point. ``cluster`` is the one that has the group.

    ``cluster`` is ``None`` where nothing was found and none was named.
    """

    cluster: str | None
    group: str
    metrics: tuple[str, ...]
    granularity: timedelta
    points: tuple[SeriesPoint, ...]


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition that a group has committed, or that is assigned to one of its members.

    ``committed_at`` is the moment of the record, ``looked_at`` that of the look at the log end; ``lag`` is 0 where the
    commit is newer than the look and beyond it.
    """

    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    consumer_id: str | None
    host: str | None
    client_id: str | None
    committed_at: datetime | None
    looked_at: datetime | None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as of a moment.

    ``lag`` is the sum over the partitions whose lag is known, ``unknown_lags`` how many others there are;
    ``never_committed`` counts partitions of the group's topics without an offset of it, ``members`` is ``None`` where
    no record tells.
    """

    cluster: str
    group: str
    at: datetime
    lag: int | None
    unknown_lags: int
    never_committed: int
    members: int | None
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class StalePartition:
    """A partition whose offset stood still ``since`` its first commit, with more to read when last ``looked_at``."""

    cluster: str
    group: str
    topic: str
    partition: int
    current_offset: int
    log_end_offset: int
    since: datetime
    looked_at: datetime

    @property
    def lag(self) -> int:
        """Messages between both offsets."""
        return self.log_end_offset - self.current_offset


@dataclass(frozen=True, slots=True)
class StaleGroups:
    """The partitions that were stale at a moment, and how new what was known then of all that were looked at.

    ``committed_at`` is the newest of the groups' commits, ``looked_at`` the newest look at the log ends of their
    topics: what happened after that look no answer can know.
    """

    at: datetime
    committed_at: datetime | None
    looked_at: datetime | None
    partitions: tuple[StalePartition, ...]


class HistoryHour(NamedTuple):
    """One hour in which something was said of a group; ``status`` is the worst of it as Burrow's number."""

    at: datetime
    lag_max: float | None
    lag_seconds: float | None
    status: float | None


@dataclass(frozen=True, slots=True)
class HourlyHistory:
    """A group hour by hour, its incidents, newest first, and ``missing``, the days whose incidents are not known."""

    start: datetime
    end: datetime
    hours: tuple[HistoryHour, ...]
    incidents: tuple[Incident, ...]
    missing: tuple[DayRange, ...] = ()


class RiskKind(StrEnum):
    """What would make a group read from elsewhere than where it stopped."""

    EXPIRES = "expires"
    """Kafka will delete the committed offset: the group has no consumer."""
    DELETED = "deleted"
    """The committed offset is deleted, and the topic still grows."""
    LOG_START = "log_start"
    """Kafka deletes messages before the group has read them, or soon will."""


@dataclass(frozen=True, slots=True)
class Risk:
    """A partition of a group at risk.

    ``at`` is when it happens or happened, ``offset`` the last one committed, ``margin`` the messages between the log
    start and that: below 0, so many are lost. ``because`` is a word or two.
    """

    kind: RiskKind
    at: datetime
    cluster: str
    group: str
    topic: str
    partition: int
    offset: int | None
    lag: int | None
    margin: int | None
    because: str


@dataclass(frozen=True, slots=True)
class Risks:
    """The risks at a moment, and what no table tells of these groups.

    Without ``log ends`` and ``log starts``, an offset that was deleted and messages that are lost are not seen. Without
    ``members``, an offset counts as one that expires only if Kafka wrote when.
    """

    risks: tuple[Risk, ...]
    unknown: tuple[str, ...]


class HistoryError(Exception):
    """There is no answer."""


class HistoryUnavailable(HistoryError):  # noqa: N818 (names what is missing)
    """DuckDB is not installed."""


class NoTables(HistoryError):  # noqa: N818 (names what is missing)
    """There are no tables where they were looked for."""


class UnreadableTable(HistoryError):  # noqa: N818 (names what was found)
    """A table is damaged, has not the columns that are asked for, or would not hold still."""


class UnclearGroup(HistoryError):  # noqa: N818 (names what was asked)
    """Several clusters have a group of this name."""
