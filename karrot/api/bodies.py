"""The JSON bodies of Karrot's answers. The web routes encode them. The doctor and the commands decode them.

These classes are also the schemas in ``/openapi.json``.
"""

from datetime import datetime
from typing import Literal

import msgspec

from karrot.eventlog.base import DatabaseStatus
from karrot.mutes import Mute
from karrot.reporters.base import Report


class Heartbeat(msgspec.Struct):
    """The body of ``/heartbeat``, in the same format as in the first Karrot."""

    status: str
    msg: str
    time: datetime


class Component(msgspec.Struct, omit_defaults=True):
    """One part of Karrot. ``state`` is ``ok``, ``idle`` or ``failing``. ``detail`` explains the state."""

    state: str
    detail: str | None = None


class Readiness(msgspec.Struct):
    """Whether Karrot can store events, and the state of each component."""

    status: str
    components: dict[str, Component]


class BadPartitions(msgspec.Struct):
    """The number of partitions in each status worse than OK."""

    WARN: int
    STOP: int
    STALL: int
    REWIND: int
    BEYOND_END: int = 0
    NEVER_COMMITTED: int = 0
    OPEN_TRANSACTION: int = 0


class OpenIncident(msgspec.Struct):
    """The open incident of a group. ``id`` is the id that Burrow (or watch) gave to the incident."""

    id: str
    since: datetime | None


class Group(msgspec.Struct, kw_only=True):
    """A consumer group at its newest event. Lags are in messages, rates in messages per second. Null means unknown.

    ``lag`` is the total lag of all partitions. ``max_lag`` is the lag of the worst partition. ``scalable_lag`` is the
    total lag without the partitions that are STOP, STALL or REWIND, because more consumers cannot help these
    partitions. ``lag_seconds`` is the age of the oldest unread message. ``lag_seconds_topic`` and
    ``lag_seconds_partition`` name the listed partition with the largest age. ``lag_seconds_kind`` says whether the age
    is exact, extrapolated or a lower bound (``at_least``). ``catch_up_seconds`` and the rates belong to the partition
    with the largest lag. ``complete`` is the share of partitions whose window of commits is full. ``observed_at`` is
    the time of the verdict. ``last_event_at`` is when the verdict arrived. ``muted`` is the mute that ends last.
    If ``burrow_cut_off`` is true, Burrow has lost Kafka: the status is old, and the lags are null.
    """

    cluster: str
    consumer: str
    status: str
    status_code: int | None
    lag: int | None
    max_lag: int | None
    max_lag_topic: str | None
    scalable_lag: int | None
    lag_seconds: float | None
    lag_seconds_extrapolated: bool
    lag_seconds_kind: Literal["exact", "extrapolated", "at_least"] | None
    lag_seconds_topic: str | None
    lag_seconds_partition: int | None
    catch_up_seconds: float | None
    produce_rate: float | None
    consume_rate: float | None
    partition_count: int | None
    bad_partitions: BadPartitions
    complete: float | None
    kind: str
    source: str
    observed_at: datetime | None
    last_event_at: datetime | None
    last_commit_at: datetime | None
    incident: OpenIncident | None
    incidents_total: int
    muted: Mute | None = None
    burrow_cut_off: bool = False


class Mutes(msgspec.Struct):
    """All mutes, or one mute that has just begun or ended. A new mute names ``groups`` live groups now."""

    mutes: list[Mute]
    groups: int | None = None


class GroupPage(msgspec.Struct):
    """Groups, sorted by cluster and name.

    To get the next page, send ``next`` as the parameter ``after``. On the last page, ``next`` is null.
    """

    groups: list[Group]
    next: str | None


class Commit(msgspec.Struct):
    """One stored commit.

    ``timestamp_ms`` is the timestamp from the source. ``committed_at`` is this timestamp as a string, or null if the
    time of the commit is unknown. With ``watch``, ``timestamp_ms`` is the time of a poll, and ``committed_at`` is the
    time of the last poll that saw the offset move. ``lag`` is the lag when the source saw the commit.
    """

    offset: int
    timestamp_ms: int
    committed_at: datetime | None
    lag: int | None
    observed_at: datetime | None


class Partition(msgspec.Struct):
    """One partition of a group. ``start`` and ``end`` are its oldest and newest stored commits.

    ``lag`` is the lag at the time of the verdict. Without a commit, ``lag_at_most`` is an upper bound of the lag.
    ``log_start_offset`` is known only from Kafka.
    """

    topic: str
    partition: int
    status: str
    lag: int | None
    lag_at_most: int | None
    log_start_offset: int | None
    log_end_offset: int | None
    start: Commit | None
    end: Commit | None
    owner: str
    client_id: str
    complete: float | None


class GroupEvent(msgspec.Struct):
    """One past verdict of a group. ``bad_partitions`` counts the listed partitions that were worse than OK."""

    event_id: str
    observed_at: datetime | None
    received_at: datetime | None
    source: str
    kind: str
    status: str
    lag: int | None
    max_lag: int | None
    bad_partitions: int
    incident_id: str | None


class SecondOpinion(msgspec.Struct):
    """The verdict of the other source (Burrow or ``watch``). ``found`` describes the bad partitions."""

    source: str
    status: str
    observed_at: datetime | None
    found: str


class GroupDetail(Group, kw_only=True):
    """A group with its partitions and its recent events, newest first.

    If ``all_partitions_listed`` is true, ``partitions`` has all partitions, from an event at ``partitions_listed_at``
    and from later webhooks. Otherwise ``partitions`` has only partitions worse than OK, and may lack
    ``max_lag_partition``. ``partitions`` is null if the newest event is deleted or unreadable. ``second_opinion`` is
    null if the other source has no recent verdict or agrees. ``events`` is null if the events are unreadable.
    """

    partitions: list[Partition] | None
    all_partitions_listed: bool
    partitions_listed_at: datetime | None
    second_opinion: SecondOpinion | None
    max_lag_partition: Partition | None
    events: list[GroupEvent] | None


class RejectedBody(msgspec.Struct):
    """A refused body. ``detail`` is the error that Karrot answered. ``body`` has the first 4 KiB, as a string."""

    received_at: datetime | None
    code: str
    detail: str
    source: str
    body: str


class Rejects(msgspec.Struct):
    """The newest refused bodies, newest first.

    A request that Karrot refused because of its headers has no body. Such a request is only counted.
    """

    rejects: list[RejectedBody]


class Place(msgspec.Struct):
    """A reporter's cursor. The reporter has handled all events of the log ``log_id`` up to and including ``seq``."""

    log_id: str
    seq: int


class ReporterProgress(msgspec.Struct):
    """One reporter. ``state`` is ``idle``, ``ok`` or ``failing``. A pull reporter is always ``idle``.

    ``backlog_events`` and ``backlog_age_seconds`` are null for a reporter to which Karrot delivers no events.
    ``last_send`` is null for a reporter that does not report its sends.
    """

    name: str
    state: str
    cursor: Place | None
    backlog_events: int | None
    backlog_age_seconds: float | None
    last_success_at: datetime | None
    last_error: str | None
    last_error_at: datetime | None
    last_send: Report | None


class Reporters(msgspec.Struct):
    """Every reporter that is switched on.

    ``leader`` is the replica that delivers the events to the reporters. ``leader`` is null if no replica leads, or if
    only one machine can use the event log.
    """

    reporters: list[ReporterProgress]
    leader: str | None


class EventLogStatus(msgspec.Struct):
    """The state of the event log, from the replica that answers.

    ``replica`` is the name of the replica that answers, and ``leader`` is the name of the replica that leads. Both are
    null if only one machine can use the event log. ``leader`` is also null if no replica leads. ``fault`` is the reason
    why the last commit or read failed. If the event log cannot be read, the groups come from memory, and
    ``memory_age_seconds`` is their age. ``database`` is null if the event log is not in PostgreSQL.
    """

    log_id: str
    events: int
    bytes: int
    replica: str | None
    leader: str | None
    fault: str | None
    memory_age_seconds: float | None
    database: DatabaseStatus | None
