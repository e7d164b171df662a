"""Reads what the event log knows of a group, and computes the rates, owners and rebalances of the rules from it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec

from karrot import burrow_cut_off
from karrot.event import LEFT, TOPIC_IDS, Kind, LagEvent, PartitionLag, Source, Status
from karrot.eventlog import watch_data_of_groups
from karrot.eventlog.base import READ_LIMIT, GroupState, StoredSummary
from karrot.eventlog.event_log import EventLog
from karrot.eventlog.watch_data_of_groups import GroupHealth
from karrot.signals import is_time, log_ends_of

place_of: Callable[[PartitionLag], tuple[str, int]] = attrgetter("topic", "partition")
owner: Callable[[PartitionLag], tuple[str, str]] = attrgetter("owner", "client_id")


_LONGEST_SPAN_S = 600


class Known(msgspec.Struct, frozen=True):
    """What Karrot knows of a group. ``None`` means "not known".

    ``partitions`` have the newest known values. ``before`` is an event from the time before the incident, when the
    group was OK. ``earlier`` is an event of about five minutes ago, and only from ``watch``.
    """

    now_ms: int
    state: GroupState
    newest: LagEvent | None
    partitions: tuple[PartitionLag, ...] = ()
    has_all: bool = False
    watched: GroupHealth | None = None
    before: LagEvent | None = None
    earlier: LagEvent | None = None
    is_cut_off: bool = False

    @property
    def read(self) -> list[PartitionLag]:
        """The partitions of the topics that the group has not left."""
        return [one for one in self.partitions if one.status_text != LEFT]

    @property
    def members(self) -> int | None:
        if self.watched is not None:
            return self.watched.members
        return self.newest.number("members") if self.newest and self.newest.source is Source.KAFKA else None

    @property
    def rebalances(self) -> tuple[int, float]:
        """The rebalances since ``earlier``, and the seconds since then. Zero after a pause of `watch`."""
        before, now = (one and one.number("rebalances") for one in (self.earlier, self.newest))
        if self.earlier is None or self.newest is None or before is None or now is None:
            return 0, 0.0
        seconds = (self.newest.observed_at_ms - self.earlier.observed_at_ms) / 1000
        return (now - before, seconds) if seconds <= _LONGEST_SPAN_S else (0, 0.0)

    @property
    def window_ms(self) -> int:
        """The longest time between the oldest and the newest commit of a partition, at most an hour."""
        spans = [one.end.timestamp_ms - one.start.timestamp_ms for one in self.partitions if one.start and one.end]
        return min(max(spans, default=0), 3_600_000) or 100_000

    def seconds_since(self, at_ms: int | None) -> float | None:
        return max(0, self.now_ms - at_ms) / 1000 if at_ms else None


class Flow(NamedTuple):
    """The messages per second that arrive, and that the group reads."""

    made: float
    read: float


def gather(log: EventLog, state: GroupState) -> Known:
    """Read what the log knows. Raises `LogUnavailableError`."""
    cut_off = burrow_cut_off.cut_off(log)
    [state] = burrow_cut_off.judged(log, [state], cut_off)
    listed, source = log.listed(state), state.summary.source
    known = Known(
        now_ms=log.wall_ms_at(log.log_time_ms()),
        state=state.without_old_lag(cut_off),
        newest=listed.newest.event if listed else None,
        partitions=listed.partitions if listed else (),
        has_all=listed is not None and (listed.complete is not None or source is not Source.WEBHOOK),
        watched=watch_data_of_groups.live(log, state.key),
        is_cut_off=state.has_old_lag(cut_off),
    )
    began_ms = (state.incident.open_id and state.incident.since_ms) or 0
    events = [each for each in log.recent([state.key], READ_LIMIT)[0] if each.summary.kind is not Kind.DELETED]
    polled = [each for each in events if each.summary.source is Source.KAFKA]
    fine = [each for each in events if each.summary.status is Status.OK and each.summary.source is source]
    fine = [each for each in fine if each.summary.observed_at_ms <= (began_ms or known.now_ms) - known.window_ms]
    before, earlier = _newest(log, fine, began_ms - 3 * known.window_ms), _newest(log, polled, known.now_ms - 300_000)
    return msgspec.structs.replace(known, before=before, earlier=earlier)


def _newest(log: EventLog, events: Sequence[StoredSummary], until_ms: int) -> LagEvent | None:
    """The newest event until a time, or else the oldest event."""
    found = next((each for each in events if each.summary.observed_at_ms <= until_ms), events[-1] if events else None)
    stored = log.event(found.seq) if found else None
    return stored.event if stored else None


def flows(event: LagEvent | None, partitions: Sequence[PartitionLag] = ()) -> Mapping[tuple[str, int], Flow]:
    """The rates of partitions in the window of an event, where they are known: commits that are not too old."""
    found: dict[tuple[str, int], Flow] = {}
    now_ms = event.observed_at_ms if event else 0
    for one in (partitions or places(event).values()) if event else ():
        ends, start, end = log_ends_of(one, now_ms), one.start, one.end
        if start is not None and end is not None and ends and end.offset >= start.offset:
            made_ms, read_ms = ends[-1].at_ms - ends[0].at_ms, end.timestamp_ms - start.timestamp_ms
            if made_ms > 0 and read_ms > 0 and now_ms - end.timestamp_ms <= read_ms:
                made, read = ends[-1].offset - ends[0].offset, end.offset - start.offset
                found[place_of(one)] = Flow(1000 * made / made_ms, 1000 * read / read_ms)
    return found


def total(rates: Iterable[Flow]) -> Flow:
    return Flow(*map(sum, zip(Flow(0, 0), *rates, strict=True)))


def places(event: LagEvent | None) -> dict[tuple[str, int], PartitionLag]:
    listed = () if event is None else event.partitions or ((event.max_lag,) if event.max_lag else ())
    return {place_of(one): one for one in listed}


def topic_ids(event: LagEvent | None) -> dict[str, str]:
    """Kafka's ids of the group's topics, as far as `watch` has read them."""
    text = dict(event.extras).get(TOPIC_IDS, "") if event else ""
    return dict(each.split("=", 1) for each in text.split(" ") if "=" in each)


def moved_ms(one: PartitionLag) -> int | None:
    """When the offset moved last: the time of a poll, or of a commit with another offset than the older commit."""
    at_ms = one.moved_at_ms or 0
    if one.moved_at_ms is None and one.start is not None and one.end is not None:
        at_ms = one.end.timestamp_ms if one.end.offset != one.start.offset else one.start.timestamp_ms
    return at_ms if is_time(at_ms) else None
