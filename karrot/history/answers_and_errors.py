"""The history's answers and errors. Times are in UTC, lags are in messages, and ``None`` means "unknown"."""

from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from karrot.event import GroupKey
from karrot.history.time_ranges import DayRange, moment_of
from karrot.runbooks_and_remedies import TablesProblem


class Incident(NamedTuple):
    """One row of the table ``incidents``. ``ended_at`` and ``ended_by`` are ``None`` while the incident is open."""

    incident_id: str | None
    cluster: str
    group: str
    started_at: datetime
    ended_at: datetime | None
    ended_by: str | None
    worst_status: str | None
    peak_lag: int | None
    events: int
    topics: tuple[str, ...]

    @property
    def key(self) -> GroupKey:
        return GroupKey(self.cluster, self.group)


OVERLAPS: Final = "epoch_ms(started_at) < $end AND (ended_at IS NULL OR epoch_ms(ended_at) >= $start)"
"""An SQL condition for the incidents that were open at some time between two times, in milliseconds since 1970."""

INCIDENTS: Final = f"""
SELECT incident_id, cluster, consumer, epoch_ms(started_at), epoch_ms(ended_at), ended_by, worst_status, peak_lag,
  events, topics
FROM {{table}} WHERE {OVERLAPS}{{named}}
"""  # noqa: S608 (constants; every value is bound)
"""The rows from which `incident_of` makes incidents."""


def incident_of(row: tuple[Any, ...]) -> Incident:
    incident_id, *key, start, end, ended_by, worst, peak, events, topics = row
    times = moment_of(start), None if end is None else moment_of(end)
    return Incident._make((incident_id, *key, *times, ended_by, worst, peak, events, tuple(topics or ())))


class GroupHistory(NamedTuple):
    """A consumer group over a time range.

    ``status`` is the worst status of the last minute with events, ``worst_status`` the worst status of all minutes. A
    minute is not OK if one of its events was worse than OK. ``incidents`` counts the incidents that overlap the range.
    Without a verdict, these three fields are ``None``: the group's lag then comes from Kafka's own offsets. Without the
    note ``_derived.json``, ``incidents`` is ``None``.
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
    """One step: its beginning, and its values in the order of the metrics."""

    at: datetime
    values: tuple[float | None, ...]


class TimeSeries(NamedTuple):
    """Metrics of one group. Steps without data have no point. ``cluster`` is ``None`` if no group was found."""

    cluster: str | None
    group: str
    metrics: tuple[str, ...]
    granularity: timedelta
    points: tuple[SeriesPoint, ...]


class HourlyHistory(NamedTuple):
    """A group's ``lag_max``, ``lag_seconds`` and ``status`` per hour, and its incidents (newest first).

    ``missing`` has the days whose incidents are unknown.
    """

    start: datetime
    end: datetime
    hours: tuple[SeriesPoint, ...]
    incidents: tuple[Incident, ...]
    missing: tuple[DayRange, ...] = ()


class PartitionDescription(NamedTuple):
    """A partition on which a group has committed, or that is assigned to a member of the group.

    ``committed_at`` is the time of the commit's record, ``looked_at`` the time of the log-end sample. If the sample is
    older than the commit, the commit can be beyond the log end. ``lag`` is then 0, and unknown if the log end is newer.
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


class GroupDescription(NamedTuple):
    """The state of a group at one time.

    ``lag`` is the sum over the partitions whose lag is known; ``unknown_lags`` counts the other partitions.
    ``never_committed`` counts the partitions of the group's topics without a committed offset. ``members`` is ``None``
    if the tables have no record of the members.
    """

    cluster: str
    group: str
    at: datetime
    lag: int | None
    unknown_lags: int
    never_committed: int
    members: int | None
    partitions: tuple[PartitionDescription, ...]


class StalePartition(NamedTuple):
    """A partition with unread messages whose committed offset has not moved since the time ``since``."""

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
        return self.log_end_offset - self.current_offset


class StaleGroups(NamedTuple):
    """The partitions that were stale at one time, and the newest times of the data.

    ``committed_at`` is the time of the groups' newest commit or deletion of an offset, ``looked_at`` the time of their
    topics' newest log-end sample. Changes after this sample are unknown.
    """

    at: datetime
    committed_at: datetime | None
    looked_at: datetime | None
    partitions: tuple[StalePartition, ...]


RiskKind: TypeAlias = Literal["expires", "deleted", "log_start"]
"""Why a group may be unable to continue where it stopped.

Kafka will delete the committed offset, because the group has no consumer; or has deleted it, and the topic still grows;
or Kafka has deleted messages that the group has not read, or will delete some soon.
"""


class Risk(NamedTuple):
    """A risk for a group on one partition.

    ``at`` is the time of the loss, past or future. ``offset`` is the last committed offset. ``margin`` is this offset
    minus the log start; a negative margin counts lost messages. ``because`` is the reason.
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


class Risks(NamedTuple):
    """The risks at one time. ``committed_at`` is the time of the groups' newest commit or deletion of an offset.

    ``unknown`` names the data that the tables lack for these groups.

    Without ``log ends``, neither deleted offsets nor lost messages are found; without ``log starts``, no lost messages.
    Without ``members``, an offset counts as ``expires`` only if Kafka wrote when the offset expires.
    """

    committed_at: datetime | None
    risks: tuple[Risk, ...]
    unknown: tuple[str, ...]


class Days(NamedTuple):
    """The days of a query: the tables have the ``held`` days, and lack the ``missing`` days."""

    held: tuple[DayRange, ...]
    missing: tuple[DayRange, ...]


class HistoryError(Exception):
    """The query cannot be answered: there is no DuckDB, no table, or a table is damaged. The message says which."""


class NothingToReport(HistoryError):  # noqa: N818 (names what happened)
    """The tables have no day of the requested ones. The message names the days in the tables."""


class UnclearGroup(HistoryError):  # noqa: N818 (names what was asked)
    """Several clusters have a group of this name."""


class HistoryFailed(HistoryError):  # noqa: N818 (names what happened)
    """The tables are unreachable, or the answer is beyond a limit. ``code`` is a stable name of the reason."""

    def __init__(self, code: TablesProblem, message: str) -> None:
        super().__init__(message)
        self.code = code
