"""Defines the types that the whole service shares: lag event, partition, commit, log end, status and incident.

All types are immutable and do no I/O. Commits and partitions are also the JSON of Burrow, which msgspec checks when it
decodes them. Offsets, lags and counts are numbers of messages. Times are epoch milliseconds. ``None`` always means "not
known", never a number.
"""

from datetime import datetime
from enum import Enum, IntEnum
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, Self, final

from msgspec import Meta, Struct, field
from msgspec.structs import replace

UINT64_MAX: Final = 2**64 - 1

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
UInt64 = Annotated[int, Meta(ge=0)]
"""An integer up to `UINT64_MAX`. `Meta` cannot have this limit, so `karrot.burrow.payload` checks the limit."""

if TYPE_CHECKING:
    Text = str
else:
    Text = str | None  # `karrot.burrow.payload` replaces null by ""


class Status(IntEnum):
    """Burrow's status numbers. A group is NOTFOUND, OK, WARN or ERR, a partition OK, WARN, STOP, STALL or REWIND."""

    NOTFOUND = 0
    OK = 1
    WARN = 2
    ERR = 3
    STOP = 4
    STALL = 5
    REWIND = 6


BEYOND_END: Final = "BEYOND_END"
"""The state of a partition whose committed offset is past the log end. Only Kafka shows it; Burrow shows a lag of 0."""

NEVER_COMMITTED: Final = "NEVER_COMMITTED"
"""The state of a partition that a member owns and that has no committed offset. Only Kafka shows it."""

OPEN_TRANSACTION: Final = "OPEN_TRANSACTION"
"""The state of a partition on which an open transaction holds back all unread records. Only Kafka shows it."""

LEFT: Final = "LEFT"
ABANDONED: Final = "ABANDONED"
"""LEFT: the group has left the partition's topic, and no number includes the partition. ABANDONED: the state of all
partitions of an abandoned group, whose status is OK. Only Kafka shows both."""

NO_PROBLEM: Final = frozenset({Status.OK.name, LEFT, ABANDONED})
"""The states of a partition that is not bad."""


class Kind(Enum):
    """What an event means for the incident of its group. Only the content of the event determines the kind."""

    OBSERVATION = "observation"
    INCIDENT = "incident"
    CLOSE = "close"
    DELETED = "deleted"
    UNKNOWN = "unknown"


SOURCE_HEADER: Final = "Karrot-Source"
"""The request header of a posted event that does not come from Burrow. The only value is that of `Source.KAFKA`."""


class Source(Enum):
    """Where an event came from: Burrow's notifier, Burrow's REST API, or Kafka itself."""

    WEBHOOK = "webhook"
    REST = "rest"
    KAFKA = "kafka"


TOPIC_IDS: Final = "topic_ids"  # the extra of `watch` with Kafka's ids: orders=UZIT6hZ1Rkq1NrEy74N7xg

TEST_CLUSTERS: Final = ("karrot-sample", "try")
"""The clusters of `karrot send-sample` and of the command on the first page. Metrics and counts omit their groups."""


def is_test(cluster: str, source: Source) -> bool:
    """Whether a verdict only tests the connection to Karrot."""
    return source is Source.WEBHOOK and cluster in TEST_CLUSTERS


class BeyondEnd(NamedTuple):
    """The number of partitions with a committed offset past the log end, and both offsets of the first of them."""

    partitions: int
    committed: int
    log_end: int


class FirstUnread(NamedTuple):
    """The first record that a group can still read. Without such a record, the last stable offset without a time."""

    offset: Int64
    written_ms: Int64 | None = None


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class ClusterPartition(NamedTuple):
    cluster: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    cluster: str
    consumer: str


class OpenIncident(NamedTuple):
    """The incident that a group is in. It lasts from the first verdict worse than OK to the OK that closes it."""

    id: str
    start_ms: int


def readable(log_end: int, committed: int, log_start: int | None) -> int:
    """Count the offsets from a group's position to the log end. Without a log start, no offset counts as deleted.

    The position is the committed offset, or the log start if Kafka has deleted the messages before it.
    """
    return max(0, log_end - max(committed, committed if log_start is None else log_start))


class LogEnd(NamedTuple):
    """The log end offset of a partition at one time. Log ends of the same partition sort by time."""

    at_ms: int
    offset: int


class AgeKind(IntEnum):
    """How precisely the age of a message is known. The numbers are the values of ``karrot_consumer_lag_seconds_kind``.

    EXACT: the message was written between two log-end samples. EXTRAPOLATED: the message was written before the oldest
    sample, and a rate gives its age. AT_LEAST: the age is that of the oldest sample, and the message is older.
    """

    EXACT = 0
    EXTRAPOLATED = 1
    AT_LEAST = 2


class LagAge(NamedTuple):
    """The age of a group's oldest unread message in seconds, and the partition where that message is."""

    seconds: float
    kind: AgeKind
    partition: TopicPartition


class _Wire(Struct, frozen=True, gc=False, omit_defaults=True):
    """A type that is encoded as Burrow's JSON, with Burrow's field names in Burrow's order.

    As in Burrow's JSON, a field with its default value is left out, but a field with a ``default_factory`` never is.
    """

    def _replace(self, **changes: Any) -> Self:
        return replace(self, **changes)


class _Commit(_Wire, frozen=True):
    offset: Int64
    timestamp_ms: Int64 = field(name="timestamp")


@final
class OffsetSample(_Commit, frozen=True, kw_only=True):
    """One commit as Burrow stored it, with the lag that Burrow measured.

    ``lag`` is the lag when Burrow read the commit. It is ``None`` if Burrow received the commit out of order.
    ``timestamp_ms`` can be any 64-bit number: Burrow misreads some commits of Kafka 4.1 as times near 8e18. Burrow has
    ``observed_at_ms`` since v1.3.3. ``log_end`` is the log end offset, if the source gives it and it differs from
    ``offset`` plus ``lag``.
    """

    observed_at_ms: Int64 | None = field(default_factory=NoneType, name="observedAt")
    lag: UInt64 | None = field(default_factory=NoneType)
    log_end: Int64 | None = None


@final
class PartitionLag(_Wire, frozen=True, kw_only=True):
    """One partition of a group: the oldest and newest commit that Burrow stored, and the lag at Burrow's evaluation.

    ``log_end``, ``log_start`` and ``first_unread`` come from Kafka, not from Burrow. In `watch`, samples have the times
    of polls. ``moved_at_ms`` is the time of the last poll of `watch` that saw a new offset, or 0. Other sources have no
    ``moved_at_ms``. Burrow has ``client_id`` since v1.2.1.
    """

    topic: str
    partition: Int32
    owner: Text = field(default_factory=str)
    client_id: Text = field(default_factory=str)
    status_text: str = field(name="status")
    start: OffsetSample | None = field(default_factory=NoneType)
    end: OffsetSample | None = field(default_factory=NoneType)
    current_lag: UInt64 | None = field(default_factory=NoneType)
    complete: float | None = field(default_factory=NoneType)
    log_end: Int64 | None = None
    log_start: Int64 | None = None
    first_unread: FirstUnread | None = None
    moved_at_ms: Int64 | None = field(default=None, name="moved_at")

    @property
    def status(self) -> Status | None:
        """The status as an enum; ``None`` if ``status_text`` is not a status of Burrow."""
        return _STATUS_BY_NAME.get(self.status_text)

    @property
    def log_end_offset(self) -> int | None:
        """Kafka's log end offset, or else the committed offset plus Burrow's lag, which is never negative."""
        if self.log_end is not None:
            return self.log_end
        return None if self.end is None or self.current_lag is None else self.end.offset + self.current_lag

    def committed_at_ms(self, sample: OffsetSample | None) -> int | None:
        """Return the time of one of the two commits; ``None`` if unknown, as for the older sample of `watch`."""
        if sample is None or self.moved_at_ms is None:
            return sample and sample.timestamp_ms
        return self.moved_at_ms or None if sample is self.end else None

    @property
    def at_most(self) -> int | None:
        """The maximum lag of a partition without a committed offset: all messages in the log."""
        if self.end is not None or self.log_end is None or self.log_start is None:
            return None
        return max(0, self.log_end - self.log_start)

    @property
    def position(self) -> int | None:
        """The offset of the oldest message that the group can still read, or else of the next message."""
        offsets = (self.end and self.end.offset, self.log_start, self.first_unread and self.first_unread.offset)
        return max(offset for offset in offsets if offset is not None) if self.end else None


class LagEvent(NamedTuple):
    """One verdict on one consumer group.

    ``partitions`` are the partitions that the source listed. A webhook lists only partitions worse than OK. REST
    ``/lag`` and Kafka list all. ``max_lag`` is the partition with the largest lag, whether it is listed or not.
    ``total_lag`` covers all partitions. ``observed_at_ms`` is the time of the verdict: when Karrot received the
    webhook, started the REST request, or polled Kafka.
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
        return _STATUS_BY_NAME.get(self.status_text)

    def number(self, name: str) -> int | None:
        """A number that `watch` adds to its events, such as ``members``."""
        text = dict(self.extras).get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None  # noqa: PLR2004 (64 bits)

    @property
    def from_burrow(self) -> bool:
        """Whether Burrow posted the event. Burrow posts no deletion: `karrot forget-cluster` does."""
        return self.source is Source.WEBHOOK and self.kind is not Kind.DELETED and self.cluster not in TEST_CLUSTERS

    @property
    def beyond_end(self) -> BeyondEnd | None:
        """Count the partitions whose committed offset is past the log end. ``None`` without such a partition."""
        found = [each for each in self.partitions if each.status_text == BEYOND_END]
        if not found or found[0].end is None or found[0].log_end is None:
            return None
        return BeyondEnd(len(found), found[0].end.offset, found[0].log_end)

    @property
    def shown_status(self) -> str:
        """The status that people see: ABANDONED, or the status of the event."""
        return ABANDONED if any(one.status_text == ABANDONED for one in self.partitions) else self.status_text

    @property
    def kind(self) -> Kind:
        """The kind, from the event's content, because URL and method are not reliable. NOTFOUND means a deletion."""
        kinds = _KIND_BY_STATUS if self.incident_id is None else _KIND_WITHIN_INCIDENT
        return kinds.get(self.status_text, Kind.UNKNOWN)


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
    """Whether a group has a name like Burrow's own groups: ``burrow-<consumer section>`` (since Burrow v1.3.0)."""
    return consumer.startswith(_BURROW_GROUPS)


def is_burrow_itself(consumer: str, max_lag_topic: str | None) -> bool:
    """Whether a group is Burrow's own group, which reads all committed offsets. Its lag is not the lag of a service."""
    return has_burrow_name(consumer) and max_lag_topic == _BURROW_TOPIC
