"""Defines the vocabulary once: the event with its partitions, commits, log ends, verdicts, incidents, time ranges.

Frozen, no I/O, standard library only. Offsets, lags and counts are messages; times are epoch milliseconds.
``None`` always means "not told" and is never a number.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum, IntEnum
from typing import NamedTuple


class Status(IntEnum):
    """Burrow's verdicts and their numbers (``core/protocol/evaluator.go``).

    A consumer group has NOTFOUND to ERR; a partition has OK, WARN, STOP, STALL or REWIND.
    """

    NOTFOUND = 0
    OK = 1
    WARN = 2
    ERR = 3
    STOP = 4
    STALL = 5
    REWIND = 6


class Kind(Enum):
    """What an event says about the incident of its group, read from the content alone."""

    OBSERVATION = "observation"
    INCIDENT = "incident"
    CLOSE = "close"
    DELETED = "deleted"
    UNKNOWN = "unknown"


class Source(Enum):
    """Who told: Burrow's notifier, Burrow's REST API, or Kafka itself."""

    WEBHOOK = "webhook"
    REST = "rest"
    KAFKA = "kafka"


class TopicPartition(NamedTuple):
    """Names one partition of a topic."""

    topic: str
    partition: int


class ClusterPartition(NamedTuple):
    """Names one partition of a topic of a cluster."""

    cluster: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """Names one consumer group."""

    cluster: str
    consumer: str


class OpenIncident(NamedTuple):
    """The incident that a group is in: from its first verdict worse than OK to the OK that closes it."""

    id: str
    start_ms: int


class Incident(NamedTuple):
    """An incident as the table ``incidents`` has it; ``ended_at`` and ``ended_by`` are ``None`` while it is open."""

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
        """The group that it is of."""
        return GroupKey(self.cluster, self.group)


class OffsetCommit(NamedTuple):
    """One record of ``__consumer_offsets`` at its time; ``offset`` is ``None`` where the group took the offset back."""

    place: ClusterPartition
    group: str
    offset: int | None
    at_ms: int

    @property
    def key(self) -> GroupKey:
        """The group that committed."""
        return GroupKey(self.place.cluster, self.group)


class LogEnd(NamedTuple):
    """The log end offset of a partition at a moment. Log ends of a partition sort by time."""

    at_ms: int
    offset: int


class OffsetSample(NamedTuple):
    """One commit as Burrow stored it, with the lag that it measured.

    ``lag`` is frozen at the time Burrow observed the commit; ``None`` where it was stored out of order.
    ``timestamp_ms`` is any 64-bit number: Burrow misreads some commits of Kafka 4.1 (values near 8e18).
    """

    offset: int
    timestamp_ms: int
    lag: int | None
    observed_at_ms: int | None = None


class PartitionLag(NamedTuple):
    """One partition of a group: its oldest and newest stored commit and its lag at evaluation."""

    topic: str
    partition: int
    status_text: str
    current_lag: int | None
    start: OffsetSample | None = None
    end: OffsetSample | None = None
    owner: str = ""
    client_id: str = ""
    complete: float | None = None

    @property
    def status(self) -> Status | None:
        """The status, or ``None`` for a text that Burrow is not known to send."""
        return _STATUS_BY_NAME.get(self.status_text)

    @property
    def log_end_offset(self) -> int | None:
        """What Burrow counts the lag from. Where the commit is ahead of what it last saw there, the commit."""
        return None if self.end is None or self.current_lag is None else self.end.offset + self.current_lag


class LagEvent(NamedTuple):
    """One verdict on one consumer group.

    ``partitions`` holds what the source listed: a webhook lists only those worse than OK, REST ``/lag`` and Kafka
    list all. ``max_lag`` is the partition with the largest current lag, listed or not. ``total_lag`` covers all
    partitions. ``observed_at_ms`` is when the verdict was taken (receipt of a webhook, start of a REST request,
    the poll of Kafka).
    """

    cluster: str
    consumer: str
    status_text: str
    total_lag: int | None
    observed_at_ms: int
    source: Source = Source.WEBHOOK
    incident_id: str | None = None
    incident_start: datetime | None = None
    complete: float | None = None
    partition_count: int | None = None
    max_lag: PartitionLag | None = None
    partitions: tuple[PartitionLag, ...] = ()
    extras: tuple[tuple[str, str], ...] = ()

    @property
    def status(self) -> Status | None:
        """The status, or ``None`` for a text that Burrow is not known to send."""
        return _STATUS_BY_NAME.get(self.status_text)

    @property
    def kind(self) -> Kind:
        """The kind by content: the URL and the method that carried the event say nothing reliable.

        Burrow's REST API answers NOTFOUND for a group it does not know (any more), so that is how a deletion is
        written down.
        """
        kinds = _KIND_BY_STATUS if self.incident_id is None else _KIND_WITHIN_INCIDENT
        return kinds.get(self.status_text, Kind.UNKNOWN)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From ``start`` up to, not including, ``end``. Raises `ValueError` unless it begins before it ends."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise ValueError(f"from {self.start:%Y-%m-%d %H:%M:%S} to {self.end:%Y-%m-%d %H:%M:%S} there is no time")

    @property
    def days(self) -> "DayRange":
        """The days (UTC) that it has a part of."""
        last = self.end.astimezone(UTC) - timedelta(microseconds=1)
        return DayRange(self.start.astimezone(UTC).date(), last.date())


class DayRange(NamedTuple):
    """Whole days in a row (UTC), both ends included."""

    first: date
    last: date

    @property
    def length(self) -> int:
        """How many days it has."""
        return (self.last - self.first).days + 1

    @property
    def dates(self) -> list[date]:
        """Each of its days."""
        return [self.first + timedelta(days=number) for number in range(self.length)]

    def has(self, day: date) -> bool:
        """Whether it is one of its days."""
        return self.first <= day <= self.last

    @property
    def start_s(self) -> int:
        """Its first midnight, in seconds since 1970."""
        return _midnight_s(self.first)

    @property
    def end_s(self) -> int:
        """The midnight that ends it, in seconds since 1970."""
        return _midnight_s(self.last + timedelta(days=1))

    @property
    def before(self) -> "DayRange":
        """As many days just before it."""
        return DayRange(self.first - timedelta(days=self.length), self.first - timedelta(days=1))


def _midnight_s(day: date) -> int:
    return int(datetime.combine(day, time(), UTC).timestamp())


_STATUS_BY_NAME = {status.name: status for status in Status}
_KIND_BY_STATUS = {
    Status.OK.name: Kind.OBSERVATION,
    Status.WARN.name: Kind.INCIDENT,
    Status.ERR.name: Kind.INCIDENT,
    Status.NOTFOUND.name: Kind.DELETED,
}
_KIND_WITHIN_INCIDENT = _KIND_BY_STATUS | {Status.OK.name: Kind.CLOSE}

_BURROW_GROUPS = "burrow-"
_BURROW_TOPIC = "__consumer_offsets"


def has_burrow_name(consumer: str) -> bool:
    """Whether a group has a name of Burrow's own groups: ``burrow-<consumer section>`` (since v1.3.0)."""
    return consumer.startswith(_BURROW_GROUPS)


def is_burrow_itself(consumer: str, max_lag_topic: str | None) -> bool:
    """Whether a group is Burrow's own, which reads everybody's offsets and says nothing of anybody's service."""
    return has_burrow_name(consumer) and max_lag_topic == _BURROW_TOPIC
