"""Decides in plain Python which partitions are stale. The rule in Spark must give the same results.

A partition of a group is stale for a duration ``D`` if both conditions hold:

- Its committed offset has been the same for ``D``, up to the newest log-end sample.
- Two samples have a log end beyond this offset: the newest sample, and the newest one at least ``D`` before it.

The present time is the time of the newest sample, so a partition without new samples does not become stale.
docs/offsets-jobs.md says why.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec

from karrot.event import ClusterPartition, LogEnd
from karrot.text import iso_ms

_MS: Final = timedelta(milliseconds=1)
_FORGOTTEN_MS: Final = timedelta(days=31) // _MS
_GRAINS: Final = 64
"""Of the samples in a 64th of ``D``, only the newest is kept."""


class GroupPartition(NamedTuple):
    """A partition of a topic, as one group consumes it."""

    cluster: str
    group: str
    topic: str
    partition: int

    @property
    def log(self) -> ClusterPartition:
        """The log whose end gives the lag of this partition."""
        return ClusterPartition(self.cluster, self.topic, self.partition)


class RecordPosition(NamedTuple):
    """The time and place of a record of ``__consumer_offsets``. Records are sorted by this position."""

    at_ms: int
    log_offset: int


class BatchCommits(NamedTuple):
    """The commits of a batch on a partition: the newest record, and the first consecutive record with its offset.

    ``offset`` is the offset of both; None for a tombstone. ``before`` is the record before ``first``; None if there is
    none.
    """

    offset: int | None
    newest: RecordPosition
    first: RecordPosition
    before: RecordPosition | None


class OffsetSince(NamedTuple):
    """A partition's newest record, and the time of the first consecutive record with its offset."""

    offset: int | None
    newest: RecordPosition
    since_ms: int


class OpenAlert(NamedTuple):
    """An alert that was sent and is not cleared yet."""

    offset: int
    since_ms: int


class StaleState(msgspec.Struct):
    """The state that survives a restart: the content of ``state.json``.

    - ``batch``: the last batch that changed this state.
    - ``standings``: the newest commit of each partition of a group.
    - ``told``: the open alerts.
    - ``looks``: the log-end samples of each log.
    - ``held_until_ms``: for each cluster, the time before which no partition becomes stale.
    - ``unsent``: the lines that are not delivered yet.
    """

    batch: int = -1
    standings: list[tuple[GroupPartition, OffsetSince]] = []
    told: list[tuple[GroupPartition, OpenAlert]] = []
    looks: list[tuple[ClusterPartition, list[LogEnd]]] = []
    held_until_ms: dict[str, int] = {}
    unsent: list[str] = []


class StaleWatch:
    """Finds, batch by batch, the partitions that became stale or are no longer stale. Use it in one thread.

    The job that reads ``__consumer_offsets`` may be behind. It counts as behind after more than ``length`` without
    samples, and while its commits are older than the newest sample by ``length`` or more. Newer commits may then exist
    that are not read yet. So no partition of the cluster becomes stale until a commit arrives that is less than
    ``length`` older than the newest sample, or until no commit has come for ``length``.
    """

    def __init__(self, length: timedelta, state: StaleState) -> None:
        self._length_ms = length // _MS
        self._batch = state.batch
        self._standings = dict(state.standings)
        self._alerts = dict(state.told)
        self._samples = dict(state.looks)
        self._held_until_ms = dict(state.held_until_ms)

    def saved(self, unsent: list[str]) -> StaleState:
        """Return the whole state, with the lines that are still to be delivered."""
        return StaleState(
            self._batch,
            list(self._standings.items()),
            list(self._alerts.items()),
            list(self._samples.items()),
            self._held_until_ms,
            unsent,
        )

    def take(
        self,
        batch: int,
        commits: Mapping[GroupPartition, BatchCommits],
        samples: Mapping[ClusterPartition, Iterable[LogEnd]],
    ) -> list[str]:
        """Take a batch and return its alerts, each as a line of JSON; no lines if the batch was taken before."""
        if batch <= self._batch:
            return []
        self._batch = batch
        known_until = self._sampled_ms()
        for key, committed in commits.items():
            self._stand(key, committed)
        for log, new in samples.items():
            self._samples[log] = self._recent([*self._samples.get(log, ()), *new])
        self._hold(known_until, commits, {each.at_ms for new in samples.values() for each in new})
        lines = [*self._judged()]
        self._forget()
        return lines

    def _stand(self, key: GroupPartition, committed: BatchCommits) -> None:
        known = self._standings.get(key)
        if known and committed.newest <= known.newest:
            return
        is_unbroken = committed.before is None or (known and committed.before <= known.newest)
        goes_on = known and known.offset == committed.offset and is_unbroken
        since_ms = known.since_ms if known and goes_on else committed.first.at_ms
        self._standings[key] = OffsetSince(committed.offset, committed.newest, since_ms)

    def _recent(self, samples: list[LogEnd]) -> list[LogEnd]:
        """Keep one sample of each 64th of ``length``, and the newest sample before the last ``length``."""
        samples = sorted({sample.at_ms: sample for sample in samples}.values())
        at = bisect_right(samples, samples[-1].at_ms - self._length_ms, key=lambda sample: sample.at_ms)
        grain_ms, needed = self._length_ms // _GRAINS, samples[max(0, at - 1) :]
        return [
            sample
            for number, sample in enumerate(needed)
            if sample is needed[-1]
            or (at and not number)
            or sample.at_ms // grain_ms != needed[number + 1].at_ms // grain_ms
        ]

    def _sampled_ms(self) -> dict[str, int]:
        """The time of the newest sample of each cluster."""
        newest: dict[str, int] = {}
        for log, samples in self._samples.items():
            newest[log.cluster] = max(newest.get(log.cluster, 0), samples[-1].at_ms)
        return newest

    def _hold(
        self, known_until: Mapping[str, int], commits: Mapping[GroupPartition, BatchCommits], times: set[int]
    ) -> None:
        """Set, by cluster, when partitions can become stale again. The first batch sets no time: it has old rows."""
        newest_commit: dict[str, int] = {}
        for key, committed in commits.items():
            newest_commit[key.cluster] = max(newest_commit.get(key.cluster, 0), committed.newest.at_ms)
        for cluster, sampled_ms in self._sampled_ms().items():
            before_ms, committed_ms = known_until.get(cluster), newest_commit.get(cluster)
            is_fresh = committed_ms is not None and committed_ms > sampled_ms - self._length_ms
            after = sorted(each for each in times if each >= (before_ms or 0))
            gaps = [later - earlier for earlier, later in pairwise([before_ms or 0, *after])]
            has_gap = before_ms is not None and max(gaps, default=0) > self._length_ms
            if is_fresh or before_ms is None:
                self._held_until_ms[cluster] = 0
            elif committed_ms is not None or has_gap:
                self._held_until_ms[cluster] = sampled_ms + self._length_ms

    def _judged(self) -> Iterator[str]:
        sampled_ms = self._sampled_ms()
        for key, standing in self._standings.items():
            samples, alert = self._samples.get(key.log, []), self._alerts.get(key)
            offset = standing.offset
            now = (
                None
                if offset is None or not self._is_stale(offset, standing, samples)
                else OpenAlert(offset, standing.since_ms)
            )
            if alert is not None and alert != now:
                del self._alerts[key]
                yield _line("cleared", key, alert, standing, samples[-1])
            if now is not None and alert != now and sampled_ms[key.cluster] >= self._held_until_ms.get(key.cluster, 0):
                self._alerts[key] = now
                yield _line("stale", key, now, standing, samples[-1])

    def _is_stale(self, offset: int, standing: OffsetSince, samples: list[LogEnd]) -> bool:
        if not samples:
            return False
        newest, then_ms = samples[-1], samples[-1].at_ms - self._length_ms
        at = bisect_right(samples, then_ms, key=lambda sample: sample.at_ms)
        return standing.since_ms <= then_ms and at > 0 and min(samples[at - 1].offset, newest.offset) > offset

    def _forget(self) -> None:
        """Drop partitions without a commit or a sample for a month.

        Deleted offsets are kept as long, because their old commits may be read again.
        """
        sampled_ms = self._sampled_ms()
        oldest_ms = {cluster: newest_ms - _FORGOTTEN_MS for cluster, newest_ms in sampled_ms.items()}
        self._standings = {
            key: standing
            for key, standing in self._standings.items()
            if standing.newest.at_ms >= oldest_ms.get(key.cluster, 0)
        }
        self._samples = {
            log: samples for log, samples in self._samples.items() if samples[-1].at_ms >= oldest_ms[log.cluster]
        }
        self._alerts = {
            key: alert for key, alert in self._alerts.items() if key in self._standings and key.log in self._samples
        }


def _line(state: str, key: GroupPartition, alert: OpenAlert, standing: OffsetSince, sample: LogEnd) -> str:
    """Make one line. ``id`` identifies the alert: its lines "stale" and "cleared" have the same ``id``."""
    lag = None if standing.offset is None else sample.offset - standing.offset
    if lag is not None and lag < 0:  # the log end is older than the commit, or the topic is not the same
        lag = 0 if sample.at_ms < standing.newest.at_ms else None
    facts: dict[str, Any] = {
        "state": state,
        "id": hashlib.sha256(msgspec.json.encode((key, alert))).hexdigest()[:16],
        **key._asdict(),
        "current_offset": standing.offset,
        "log_end_offset": sample.offset,
        "lag": lag,
        "since": iso_ms(alert.since_ms),
        "committed_at": iso_ms(standing.newest.at_ms),
        "looked_at": iso_ms(sample.at_ms),
    }
    return msgspec.json.encode(facts).decode()
