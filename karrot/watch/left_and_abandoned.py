"""Finds left topics and abandoned groups. Both need proof: what no poll saw proves nothing, and the status stays."""

from collections.abc import Mapping

import msgspec

from karrot.event import ABANDONED, LagEvent, Status, TopicPartition
from karrot.watch.cluster_interface import Description
from karrot.watch.rings import Ring


class Life(msgspec.Struct, array_like=True):
    """How long the polls saw a group active, in all until ``since_ms``. Without members, a move counts for a window.

    ``is_idle`` says that the group became Empty at ``since_ms`` and that its topics got nothing since. ``text`` is
    ABANDONED, OK for the window in which a group may come back, or ``None`` for any other group. OK ends no incident.
    """

    active_ms: int
    since_ms: int
    is_empty: bool
    is_idle: bool = False
    text: str | None = None

    def see(
        self, now_ms: int, window_ms: int, after_ms: int, *, is_empty: bool, moved: bool, grown: bool, is_named: bool
    ) -> None:
        """Take a poll. After a gap between two polls, nobody knows when the group became Empty."""
        passed_ms = max(0, now_ms - self.since_ms)
        if moved or not (is_empty and self.is_empty):
            self.active_ms += min(passed_ms, window_ms) * is_empty if self.is_empty else passed_ms
            self.since_ms, self.is_idle, passed_ms = now_ms, passed_ms <= window_ms, 0
        self.is_idle, self.is_empty = self.is_idle and not (self.is_empty and grown), is_empty
        is_brief = is_named or self.active_ms < after_ms
        is_over = passed_ms >= window_ms if is_brief else self.is_idle and 0 < after_ms <= passed_ms
        self.text = (ABANDONED if is_over else Status.OK.name if is_brief else None) if is_empty else None


def see_owners(
    rings: dict[TopicPartition, Ring], described: Description, committed: Mapping[TopicPartition, int]
) -> bool:
    """Count the polls without an owner, before the rings take the offsets. Return whether an offset moved.

    A poll counts if the group is Stable and owns other topics. If the group comes back, a left topic gets new rings.
    """
    newest = {place: ring.window.slots[-1] for place, ring in rings.items()}
    moved = {at.topic for at, sample in newest.items() if sample and committed.get(at, sample.offset) != sample.offset}
    read = moved | {place.topic for place in described.assigned}
    for place, ring in list(rings.items()):
        if place.topic in read and ring.is_left:
            del rings[place]
        ring.unowned = 0 if place.topic in read else ring.unowned + bool(described.topics)
    return bool(moved)


def without_alarm(event: LagEvent, text: str) -> LagEvent:
    """The event as OK, with the status ``text`` for its partitions."""
    partitions = tuple(one._replace(status_text=text) for one in event.partitions)
    largest = event.max_lag and event.max_lag._replace(status_text=text)
    return event._replace(status_text=Status.OK.name, partitions=partitions, max_lag=largest)
