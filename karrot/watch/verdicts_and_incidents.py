"""Makes verdicts from rings of offsets by Burrow's rules, and gives ids to incidents as Burrow does."""

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec

from karrot.burrow.rules import complete_share, evaluate_group, group_status
from karrot.event import (
    ABANDONED,
    BEYOND_END,
    LEFT,
    NEVER_COMMITTED,
    OPEN_TRANSACTION,
    Kind,
    LagEvent,
    OpenIncident,
    PartitionLag,
    Source,
    Status,
    TopicPartition,
)
from karrot.text import EPOCH
from karrot.watch.cluster_interface import NOBODY, Description
from karrot.watch.rings import BEYOND_END_POLLS, Ring, Rings


class Life(msgspec.Struct, array_like=True):
    """The total time for which a group was active until ``since_ms``. Without members, a move counts for one window.

    ``is_idle`` says that the group became Empty at ``since_ms`` and that its topics got no records since. ``text`` is
    ABANDONED, OK for the window in which a group may come back, or ``None`` for any other group. OK ends no incident.
    ``reason`` is ``named``, ``brief`` or ``idle`` for a group without members that can be abandoned.
    """

    active_ms: int
    since_ms: int
    is_empty: bool
    is_idle: bool = False
    text: str | None = None
    reason: str = ""

    def see(
        self, now_ms: int, window_ms: int, after_ms: int, *, is_empty: bool, moved: bool, grown: bool, is_named: bool
    ) -> None:
        """Update the life with one poll. If polls were missing, the time when the group became Empty is unknown."""
        passed_ms = max(0, now_ms - self.since_ms)
        if moved or not (is_empty and self.is_empty):
            self.active_ms += min(passed_ms, window_ms) * is_empty if self.is_empty else passed_ms
            self.since_ms, self.is_idle, passed_ms = now_ms, passed_ms <= window_ms, 0
        self.is_idle, self.is_empty = self.is_idle and not (self.is_empty and grown), is_empty
        is_brief = is_named or self.active_ms < after_ms
        self.reason = "named" if is_named else "brief" if is_brief else "idle"
        is_over = passed_ms >= window_ms if is_brief else self.is_idle and 0 < after_ms <= passed_ms
        self.text = (ABANDONED if is_over else Status.OK.name if is_brief else None) if is_empty else None


def see_owners(
    rings: dict[TopicPartition, Ring], described: Description, committed: Mapping[TopicPartition, int]
) -> bool:
    """Count the polls without an owner, before the rings get the new offsets. Return whether an offset moved.

    A poll counts if the group is Stable and owns other topics. If the group reads a left topic again, the topic gets
    new rings. If all members go before the topic is left, the group has stopped reading all its topics.
    """
    newest = {place: ring.window.slots[-1] for place, ring in rings.items()}
    moved = {at.topic for at, sample in newest.items() if sample and committed.get(at, sample.offset) != sample.offset}
    read = moved | {place.topic for place in described.assigned}
    for place, ring in list(rings.items()):
        if place.topic in read and ring.is_left:
            del rings[place]
        is_read = place.topic in read or (described.state == "Empty" and not ring.is_left)
        ring.unowned = 0 if is_read else ring.unowned + bool(described.topics)
    return bool(moved)


def without_alarm(event: LagEvent, text: str) -> LagEvent:
    """Change the event's status to OK, and the status of its partitions to ``text``."""
    partitions = tuple(one._replace(status_text=text) for one in event.partitions)
    largest = event.max_lag and event.max_lag._replace(status_text=text)
    return event._replace(status_text=Status.OK.name, partitions=partitions, max_lag=largest)


def verdict(
    cluster: str,
    group: str,
    rings: Rings,
    described: Description,
    now_ms: int,
    *,
    without: Collection[TopicPartition] = (),
    allowed_lag: int = 0,
) -> LagEvent | None:
    """Judge a group and its partitions by Burrow's rules. Return ``None`` if no partition has enough samples.

    A partition without a committed offset is part of the verdict after half a window. After a whole window with an
    owner and with new records, such a partition is an error.

    If only some partitions have enough samples for a verdict, all other partitions are OK. ``without`` are the
    partitions of deleted topics. An open transaction that holds back a consumer is an error after a window.
    """
    owners = described.owners
    tracked = list(rings.tracked(group, owners, without))
    unjudged = rings.unjudged(group)
    seen = {place: one for place, one in rings.uncommitted.get(group, {}).items() if 2 * one.polls >= rings.intervals}
    is_restarted = not tracked and bool(rings.groups.get(group, {}).keys() - without)
    if is_restarted or (not seen and all((one.topic, one.partition) in unjudged for one in tracked)):
        return None
    event = evaluate_group(cluster, group, tracked, now_ms, source=Source.KAFKA, show_all=True, allowed_lag=allowed_lag)
    uncommitted = [
        PartitionLag(
            topic=place.topic,
            partition=place.partition,
            owner=host,
            client_id=client_id,
            status_text=NEVER_COMMITTED,
            complete=0.0,
        )
        for place in sorted(seen)
        for host, client_id in [owners.get(place, NOBODY)]
    ]
    event = event._replace(partitions=(*_by_commits(event, rings, unjudged, allowed_lag), *uncommitted))
    event = _with_proof(event, rings)
    if any(one.got_records and one.owned >= rings.intervals for one in seen.values()):
        event = event._replace(status_text=Status.ERR.name)
    return event._replace(extras=_extras(described))


def deleted(cluster: str, group: str, now_ms: int) -> LagEvent:
    return LagEvent(cluster, group, Status.NOTFOUND.name, 0, now_ms, Source.KAFKA, complete=1.0, partition_count=0)


@dataclass(slots=True)
class Incidents:
    """The open incident of each group. ``new_id`` makes ids."""

    open: dict[str, OpenIncident] = field(default_factory=dict)
    new_id: Callable[[], uuid.UUID] = uuid.uuid4

    def name(self, event: LagEvent) -> LagEvent:
        """Add the incident id. The first verdict worse than OK opens an incident, and the next OK closes it."""
        if event.kind is Kind.INCIDENT and event.consumer not in self.open:
            self.open[event.consumer] = OpenIncident(str(self.new_id()), event.observed_at_ms)
        incident = self.open.get(event.consumer)
        if event.kind is not Kind.INCIDENT:
            self.open.pop(event.consumer, None)
        if incident is None or event.kind is Kind.DELETED:  # Burrow sends no close for a deleted group
            return event
        start = EPOCH + timedelta(milliseconds=incident.start_ms)
        return event._replace(incident_id=incident.id, incident_start=start)


def _by_commits(
    event: LagEvent, rings: Rings, unjudged: Collection[TopicPartition], allowed_lag: int
) -> Iterator[PartitionLag]:
    """Correct the partitions' statuses by the usual gaps between commits. Without enough samples, a partition is OK.

    STOP and STALL need an unusually long silence of the partition, and WARN needs an unusually large lag. A partition
    without an owner becomes STOP after an unusually long silence, even if Burrow would wait longer.
    """
    for one in event.partitions:
        place, status = TopicPartition(one.topic, one.partition), Status[one.status_text]
        ring = rings.groups[event.consumer][place]
        is_silent = ring.past.is_silent(rings.intervals)
        if place in unjudged:
            status = Status.OK
        elif status in {Status.STOP, Status.STALL} and not is_silent:
            status = Status.WARN if ring.past.was_bad else Status.OK  # an open incident continues
        elif status is Status.WARN and not ring.past.was_bad and not ring.outgrows_gap():
            status = Status.OK
        elif status < Status.STOP and is_silent and not ring.is_owned and (one.current_lag or 0) > allowed_lag:
            status = Status.STOP
        ring.past = ring.past._replace(was_bad=status > Status.OK)
        yield one._replace(status_text=status.name)


def _with_proof(event: LagEvent, rings: Rings) -> LagEvent:
    """Add facts that Burrow does not know: log start and end, unread records, and offsets past the log end.

    A lag is unknown without a committed offset, with an offset past the log end, or if the log end is older than five
    minutes. The total lag leaves out unknown lags. A partition of a topic that the group has left is not counted.
    """
    of_group = rings.groups.get(event.consumer, {})

    def proven(one: PartitionLag) -> PartitionLag:
        place = TopicPartition(one.topic, one.partition)
        log, ring = rings.log(place), of_group.get(place)
        if log is not None:
            one = one._replace(log_end=log.end, log_start=log.start)
        if ring is None:
            return one
        one = one._replace(moved_at_ms=ring.past.moved_at_ms or 0)
        if ring.is_left:
            return one._replace(status_text=LEFT, current_lag=None)
        if ring.held is not None and one.owner and (one.current_lag or 0) > rings.allowed_lag:
            one = one._replace(status_text=OPEN_TRANSACTION if ring.held >= rings.intervals else Status.OK.name)
        if ring.beyond_end or (log is not None and event.observed_at_ms - log.at_ms > 5 * 60_000):
            one = one._replace(current_lag=None, complete=0.0)
        status = BEYOND_END if ring.beyond_end >= BEYOND_END_POLLS else one.status_text
        return one._replace(status_text=status, first_unread=ring.first)

    partitions = tuple(map(proven, event.partitions))
    read = [one for one in partitions if one.status_text != LEFT]
    lags = [one.current_lag for one in partitions if one.current_lag is not None]
    status = group_status(one.status for one in partitions if one.status is not None)
    is_error = any(one.status_text in {BEYOND_END, OPEN_TRANSACTION} for one in partitions)
    return event._replace(
        status_text=(Status.ERR if is_error else status).name,
        total_lag=sum(lags) if lags else None,
        complete=complete_share(sum(one.complete == 1 for one in read), max(1, len(read))),
        partition_count=len(read),
        max_lag=max(read, key=lambda one: -1 if one.current_lag is None else one.current_lag, default=None),
        partitions=partitions,
    )


def _extras(described: Description) -> tuple[tuple[str, str], ...]:
    """Facts about a group that Burrow does not know. In Burrow's own events, extras come from its configuration."""
    facts = {
        "coordinator": described.coordinator,
        "members": None if described.members is None else len(described.members),
        "state": described.state,
    }
    return tuple((name, str(value)) for name, value in facts.items() if value is not None)
