"""Decides which partitions are stale, and keeps the state that a stream needs for it.

A partition of a group is stale for a duration ``D`` if its newest commit has said the same offset for ``D``, up to the
newest look at the log end, and that look, as well as the newest one at least ``D`` before it, saw the end beyond the
offset. The looks tell the time: a partition without looks does not grow stale. docs/offsets-jobs.md says why.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

import msgspec

from karrot.event import ClusterPartition, LogEnd
from karrot.text import iso_ms

_MS: Final = timedelta(milliseconds=1)
_FORGOTTEN_MS: Final = timedelta(days=31) // _MS
_GRAINS: Final = 64
"""The most looks within ``D`` that are kept: if there are more, some in between are forgotten."""


class GroupPartition(NamedTuple):
    """A partition as a group consumes it."""

    cluster: str
    group: str
    topic: str
    partition: int

    @property
    def log(self) -> ClusterPartition:
        """Whose end it is measured by."""
        return ClusterPartition(self.cluster, self.topic, self.partition)


class RecordPosition(NamedTuple):
    """Where and when a record of ``__consumer_offsets`` was written; records count in this order."""

    at_ms: int
    log_offset: int


class BatchCommits(NamedTuple):
    """What a batch says of a partition: its newest record, and the first of those in a row that say the same offset.

    ``offset`` is None for a tombstone; ``before`` is the record before that first one, None if the batch has none.
    """

    offset: int | None
    newest: RecordPosition
    first: RecordPosition
    before: RecordPosition | None


class OffsetSince(NamedTuple):
    """A partition's newest record, and when the first one in a row was that says its offset."""

    offset: int | None
    newest: RecordPosition
    since_ms: int


class OpenAlert(NamedTuple):
    """An alert that was given and not cleared yet."""

    offset: int
    since_ms: int


class StaleState(msgspec.Struct):
    """What outlives a restart. ``batch`` is the last one that is in it, ``unsent`` are lines not delivered yet."""

    batch: int = -1
    standings: list[tuple[GroupPartition, OffsetSince]] = []
    told: list[tuple[GroupPartition, OpenAlert]] = []
    looks: list[tuple[ClusterPartition, list[LogEnd]]] = []
    held_until_ms: dict[str, int] = {}
    unsent: list[str] = []


class StaleWatch:
    """Takes batch after batch and says which partitions became stale, and which no longer are. For one thread.

    After a time without looks, or while commits come that are older than the looks by ``length``, the reader of
    ``__consumer_offsets`` is catching up: what looks like standing still may be news under way. Then no group of the
    cluster becomes stale until commits are fresh, or have not come for ``length``.
    """

    def __init__(self, length: timedelta, state: StaleState) -> None:
        self._length_ms = length // _MS
        self._batch = state.batch
        self._standings = dict(state.standings)
        self._told = dict(state.told)
        self._looks = dict(state.looks)
        self._held_until_ms = dict(state.held_until_ms)

    def saved(self, unsent: list[str]) -> StaleState:
        """All of it, to be kept with the lines that are still to be delivered."""
        return StaleState(
            self._batch,
            list(self._standings.items()),
            list(self._told.items()),
            list(self._looks.items()),
            self._held_until_ms,
            unsent,
        )

    def take(
        self,
        batch: int,
        commits: Mapping[GroupPartition, BatchCommits],
        looks: Mapping[ClusterPartition, Iterable[LogEnd]],
    ) -> list[str]:
        """Take a batch and return what is to be told, each a line of JSON; nothing if it was taken before."""
        if batch <= self._batch:
            return []
        self._batch = batch
        known_until = self._looked_ms()
        for key, told in commits.items():
            self._stand(key, told)
        for log, seen in looks.items():
            self._looks[log] = self._recent([*self._looks.get(log, ()), *seen])
        self._hold(known_until, commits)
        lines = [*self._judged()]
        self._forget()
        return lines

    def _stand(self, key: GroupPartition, told: BatchCommits) -> None:
        known = self._standings.get(key)
        if known and told.newest <= known.newest:
            return
        goes_on = known and known.offset == told.offset and (told.before is None or told.before <= known.newest)
        since_ms = known.since_ms if known and goes_on else told.first.at_ms
        self._standings[key] = OffsetSince(told.offset, told.newest, since_ms)

    def _recent(self, looks: list[LogEnd]) -> list[LogEnd]:
        """The looks of the last ``length`` and the newest one before them, none nearer to another than a grain."""
        looks.sort()
        at = bisect_right(looks, looks[-1].at_ms - self._length_ms, key=lambda look: look.at_ms)
        kept: list[LogEnd] = []
        for look in looks[max(0, at - 1) :]:
            # The newest is always kept, the one it stands in for was next to one that is.
            if len(kept) > 1 and kept[-1].at_ms - kept[-2].at_ms < self._length_ms // _GRAINS:
                kept[-1] = look
            else:
                kept.append(look)
        return kept

    def _looked_ms(self) -> dict[str, int]:
        """The newest look at any log of each cluster."""
        newest: dict[str, int] = {}
        for log, looks in self._looks.items():
            newest[log.cluster] = max(newest.get(log.cluster, 0), looks[-1].at_ms)
        return newest

    def _hold(self, known_until: Mapping[str, int], commits: Mapping[GroupPartition, BatchCommits]) -> None:
        """Note until when no group of a cluster becomes stale. All that the first batch brings is history."""
        committed: dict[str, int] = {}
        for key, told in commits.items():
            committed[key.cluster] = max(committed.get(key.cluster, 0), told.newest.at_ms)
        for cluster, looked_ms in self._looked_ms().items():
            before_ms, committed_ms = known_until.get(cluster), committed.get(cluster)
            is_fresh = committed_ms is not None and committed_ms > looked_ms - self._length_ms
            has_gap = before_ms is not None and looked_ms - before_ms > self._length_ms
            if is_fresh or before_ms is None:
                self._held_until_ms[cluster] = 0
            elif committed_ms is not None or has_gap:
                self._held_until_ms[cluster] = looked_ms + self._length_ms

    def _judged(self) -> Iterator[str]:
        looked_ms = self._looked_ms()
        for key, standing in self._standings.items():
            looks, told = self._looks.get(key.log, []), self._told.get(key)
            offset = standing.offset
            now = (
                None
                if offset is None or not self._is_stale(offset, standing, looks)
                else OpenAlert(offset, standing.since_ms)
            )
            if told is not None and told != now:
                del self._told[key]
                yield _line("cleared", key, told, standing, looks[-1])
            if now is not None and told != now and looked_ms[key.cluster] >= self._held_until_ms.get(key.cluster, 0):
                self._told[key] = now
                yield _line("stale", key, now, standing, looks[-1])

    def _is_stale(self, offset: int, standing: OffsetSince, looks: list[LogEnd]) -> bool:
        if not looks:
            return False
        seen, then_ms = looks[-1], looks[-1].at_ms - self._length_ms
        at = bisect_right(looks, then_ms, key=lambda look: look.at_ms)
        return standing.since_ms <= then_ms and at > 0 and min(looks[at - 1].offset, seen.offset) > offset

    def _forget(self) -> None:
        """Drop what had no commit or look for a month. What was taken back stays as long: it may come again."""
        looked_ms = self._looked_ms()
        oldest_ms = {cluster: newest_ms - _FORGOTTEN_MS for cluster, newest_ms in looked_ms.items()}
        self._standings = {
            key: standing
            for key, standing in self._standings.items()
            if standing.newest.at_ms >= oldest_ms.get(key.cluster, 0)
        }
        self._looks = {log: looks for log, looks in self._looks.items() if looks[-1].at_ms >= oldest_ms[log.cluster]}
        self._told = {
            key: told for key, told in self._told.items() if key in self._standings and key.log in self._looks
        }


def _line(state: str, key: GroupPartition, told: OpenAlert, standing: OffsetSince, seen: LogEnd) -> str:
    """One line; ``id`` is that of the alert, the same when it is given and when it is cleared."""
    facts: dict[str, Any] = {
        "state": state,
        "id": hashlib.sha256(msgspec.json.encode((key, told))).hexdigest()[:16],
        **key._asdict(),
        "current_offset": standing.offset,
        "log_end_offset": seen.offset,
        "lag": None if standing.offset is None else max(0, seen.offset - standing.offset),
        "since": iso_ms(told.since_ms),
        "committed_at": iso_ms(standing.newest.at_ms),
        "looked_at": iso_ms(seen.at_ms),
    }
    return msgspec.json.encode(facts).decode()
