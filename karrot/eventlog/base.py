"""Defines the interface of the event log: its values, its methods and its exceptions."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from karrot.event import (
    ABANDONED,
    BeyondEnd,
    GroupKey,
    Kind,
    LagEvent,
    PartitionLag,
    Source,
    Status,
    is_burrow_itself,
    is_test,
)
from karrot.signals import Signals


class DatabaseStatus(msgspec.Struct, frozen=True):
    """What a session of Karrot sees of its database server.

    ``connections`` counts the connections of all clients. ``max_connections`` excludes connections that are reserved
    for other roles. ``encrypted`` says whether the session uses TLS. ``standby_lag_seconds`` maps each standby's name
    to the seconds until the newest commits reached its disk; ``None`` if Karrot's role may not see standbys.
    """

    host: str
    version: str
    encrypted: bool
    synchronous_commit: str
    synchronous_standby_names: str
    connections: int
    max_connections: int
    standby_lag_seconds: Mapping[str, float] | None


READ_LIMIT = 500
"""One read returns at most this many rows. A long read prevents SQLite from resetting its write-ahead log."""

TURN_SHARE = 0.75
"""An append waits in the queue for at most this share of its time limit. The remaining time is for the disk."""

HOUSEKEEPING = ("karrot housekeeping", "log_time_ms")
"""The owner and the key of the stored log time of the last housekeeping. No reporter has the owner's name."""


class Limits(NamedTuple):
    """The limits of a log.

    A group is no longer shown after ``stale_after_ms`` without an event. An event is deleted at the age
    ``retention_ms``. ``max_bytes`` limits the size of the database: the oldest events are dropped first.
    ``max_consumers`` limits the number of groups. ``log_end_max_bytes`` limits the log-end histories in the database;
    they never take more than a quarter of ``max_bytes``, so that events have room.
    """

    stale_after_ms: int = 300_000
    retention_ms: int = 86_400_000
    max_bytes: int = 1 << 30
    max_consumers: int = 50_000
    log_end_max_bytes: int = 1 << 26

    @property
    def most_log_end_bytes(self) -> int:
        return min(self.log_end_max_bytes, self.max_bytes // 4)


class LogUnavailableError(Exception):
    """The log cannot be written or read. The message gives the reason. The call stored nothing."""


class UnconfirmedError(LogUnavailableError):
    """The disk has not answered in time. This is the only error after which the data may still be stored."""


class UnstorableError(LogUnavailableError):
    """The database refuses a value of this write. The call stored nothing, but other writes are stored."""


class OverloadedError(Exception):
    """The call waited too long in the queue. It stored nothing, and will store nothing later."""


class Appended(NamedTuple):
    """The outcome of an append. If there are too many groups, ``tracked`` is false and only the event is stored."""

    seq: int
    tracked: bool


class Cursor(NamedTuple):
    """A reader's position: the reader has handled all events up to and including ``seq`` of the log ``log_id``."""

    log_id: str
    seq: int


@dataclass(frozen=True, slots=True)
class Damaged:
    """A row whose checksum is wrong. Readers skip it and report it."""

    log_id: str
    seq: int


class SourceVerdict(NamedTuple):
    """A verdict on a group, without its numbers. ``log_time_ms`` is the log time of the observation.

    Other versions of Karrot read the four stored fields, so a new field goes into `EventSummary`.
    """

    seq: int
    log_time_ms: int
    source: Source
    status_text: str


class EventSummary(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event with its signals and without its partitions. Most readers need nothing else.

    The log computes a summary once. It stores the summary with the event, and with the group if the event is its
    newest. New fields must come at the end, with a default. ``bad_partitions`` counts the listed partitions that are
    worse than OK, and ``bad`` those with the status WARN, STOP, STALL and REWIND. ``is_polled`` says that the offsets
    come from polls, not from commits. ``listed_seq`` is the last event that lists all partitions, or 0. ``second`` is
    the newest verdict of the other judge: Burrow, or Karrot's rules on data from Kafka. ``second_every_ms`` is the time
    between the other judge's last two verdicts, or 0. Only groups have ``listed_seq``, ``second`` and
    ``second_every_ms``. ``scalable_lag_seconds`` is also ``None`` in a row of an older Karrot. ``members`` and
    ``rebalances`` (counted by `watch`) are known only in events of `watch`.
    """

    status_text: str
    kind: Kind
    source: Source
    observed_at_ms: int
    received_at_ms: int
    total_lag: int | None
    max_lag: int | None
    max_lag_topic: str | None
    partition_count: int | None
    complete: float | None
    bad: tuple[int, int, int, int]
    last_commit_ms: int | None
    signals: Signals
    beyond_end: BeyondEnd | None = None
    never_committed: int = 0
    open_transactions: int = 0
    is_polled: bool = False
    listed_seq: int = 0
    second: SourceVerdict | None = None
    second_every_ms: int = 0
    scalable_lag_seconds: float | None = None
    incident_id: str | None = None
    bad_partitions: int = 0
    members: int | None = None
    rebalances: int | None = None

    @property
    def status(self) -> Status | None:
        return Status.__members__.get(self.status_text)

    @property
    def reported_status(self) -> str:
        """The status in the event. The event of an abandoned group has the status OK."""
        return Status.OK.name if self.status_text == ABANDONED else self.status_text

    @property
    def scalable_lag_age(self) -> float | None:
        """The lag in seconds of the partitions that more consumers would help. ``None`` if it is not known."""
        if self.scalable_lag_seconds is None and self.signals.scalable_lag == self.total_lag:
            return self.signals.lag_seconds
        return self.scalable_lag_seconds


@dataclass(frozen=True, slots=True)
class StoredSummary:
    """One event without its body and its partitions."""

    log_id: str
    seq: int
    log_time_ms: int
    summary: EventSummary

    @property
    def event_id(self) -> str:
        """``<log_id>-<seq>``. This id stays unique after the database was replaced."""
        return f"{self.log_id}-{self.seq}"


@dataclass(frozen=True, slots=True)
class StoredEvent(StoredSummary):
    """One event. ``body`` is the JSON that Karrot received, or that Burrow would write for the event."""

    body: bytes
    event: LagEvent

    @property
    def received_at_ms(self) -> int:
        return self.summary.received_at_ms


class IncidentState(NamedTuple):
    """A group's incidents: the open incident's id and start, the number of all, and the newest ids, oldest first."""

    open_id: str | None = None
    since_ms: int | None = None
    total: int = 0
    remembered: tuple[str, ...] = ()


_SOON_MS = 150_000
"""A second opinion is shown for this time, or for three intervals of its source's verdicts if that is longer."""


class GroupState(msgspec.Struct, frozen=True, gc=False):
    """The state of a group after its newest event, as the log stores it.

    ``seq`` is the event that was observed last, and ``last_seq`` the event that arrived last. ``log_time_ms`` is the
    time of the newest observation. ``expired`` says that the group became silent and was counted as expired.
    """

    key: GroupKey
    seq: int
    log_time_ms: int
    summary: EventSummary
    incident: IncidentState
    last_seq: int = 0
    expired: bool = False

    @property
    def gone(self) -> bool:
        """Whether the newest event is the group's deletion."""
        return self.summary.kind is Kind.DELETED

    @property
    def is_of_burrow(self) -> bool:
        return is_burrow_itself(self.key.consumer, self.summary.max_lag_topic) and not self.is_test

    def has_old_lag(self, cut_off: Collection[str]) -> bool:
        """Whether the verdict is from a Burrow that is cut off from Kafka, in one of these clusters."""
        return self.key.cluster in cut_off and self.summary.source is not Source.KAFKA

    def without_old_lag(self, cut_off: Collection[str]) -> "GroupState":
        """Return the state for programs: an old lag is unknown. The status stays: a change would be invented."""
        if not self.has_old_lag(cut_off):
            return self
        unknown = {"total_lag": None, "max_lag": None, "signals": Signals(), "scalable_lag_seconds": None}
        return msgspec.structs.replace(self, summary=msgspec.structs.replace(self.summary, **unknown))

    def judged(
        self, cut_off: Collection[str], now_ms: int, summary: Callable[[int], EventSummary | None]
    ) -> "GroupState":
        """Return the state with the verdict of `watch` instead of one of a cut-off Burrow, if `watch` still judges.

        ``summary`` finds the summary of an event.
        """
        second = self.other_verdict(now_ms) if self.has_old_lag(cut_off) else None
        found = summary(second.seq) if second and second.source is Source.KAFKA else None
        if second is None or found is None:
            return self
        return GroupState(self.key, second.seq, second.log_time_ms, found, self.incident, self.last_seq)

    @property
    def is_test(self) -> bool:
        return is_test(self.key.cluster, self.summary.source)

    def other_verdict(self, now_ms: int) -> SourceVerdict | None:
        """The other judge's verdict, if its source still judges (see `_SOON_MS`)."""
        second = self.summary.second
        soon_ms = max(_SOON_MS, 3 * self.summary.second_every_ms)
        return second if second and now_ms - second.log_time_ms <= soon_ms else None

    def second_opinion(self, now_ms: int) -> SourceVerdict | None:
        """The other judge's verdict, if its status differs and its source still judges."""
        second = self.other_verdict(now_ms)
        return second if second and second.status_text != self.summary.status_text else None


class Listed(NamedTuple):
    """A group's partitions with their newest values, and the events that the values come from.

    ``complete`` is the last event that lists all partitions, if this event is recent. Its values are of one time.
    ``second`` is the event of the second opinion.
    """

    newest: StoredEvent
    complete: StoredEvent | None
    second: StoredEvent | None
    partitions: tuple[PartitionLag, ...]


class Counter(NamedTuple):
    """The value of a counter, summed over all workers since the log was created."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


@dataclass(frozen=True, slots=True)
class Reject:
    """A refused body: its first 4 KiB, the stable code, and the sentence that the client received."""

    received_at_ms: int
    code: str
    detail: str
    source: Source
    body: bytes


@dataclass(frozen=True, slots=True)
class ReporterState:
    """The last known state of one reporter. ``state`` is ``idle``, ``ok`` or ``failing``."""

    name: str
    cursor: Cursor | None
    state: str = "idle"
    last_error: str | None = None
    last_error_ms: int | None = None
    last_success_ms: int | None = None

    def well(self, now_ms: int) -> "ReporterState":
        return replace(self, state="ok", last_success_ms=now_ms)

    def failing(self, error: str, now_ms: int) -> "ReporterState":
        """The state after a failure, with the first 500 characters of the error."""
        return replace(self, state="failing", last_error=error[:500], last_error_ms=now_ms)


@dataclass(frozen=True, slots=True)
class LogSize:
    """The size of the log, including its write-ahead log. In an empty log, ``first_seq`` and ``last_seq`` are 0."""

    events: int
    bytes: int
    groups: int
    first_seq: int
    last_seq: int
    wal_bytes: int = 0
