"""Judges whether Burrow is cut off from Kafka: a Burrow without Kafka goes on to judge the commits in its memory."""

from collections.abc import Mapping
from contextlib import suppress

import msgspec

from karrot.event import LagEvent, is_burrow_itself
from karrot.eventlog.base import LogUnavailableError, ReporterNotes
from karrot.known_problems import RESYNC

_NOTE = "commits"
_PATIENCE_MS, _STEADY_MS = 300_000, 1_800_000
_HALVED_AFTER_MS = 14 * 86_400_000


class CommitsRead(msgspec.Struct, frozen=True, array_like=True):
    """When Burrow read its newest commit of a cluster's groups (``newest_ms``, by Burrow's clock).

    All other times are of the log: when resync saw this commit first and last, and since when commits come without a
    pause of ``patience_ms``. ``pause_ms`` is the longest pause so far. It halves every two weeks.
    """

    newest_ms: int
    first_ms: int
    seen_ms: int
    steady_ms: int
    pause_ms: float = 0
    patience_ms: int = 0

    @property
    def is_cut_off(self) -> bool:
        """Whether commits came without a pause for half an hour, and now stay away for twice the longest pause."""
        longest_ms = max(self.patience_ms, 2 * self.pause_ms)
        return self.seen_ms - self.first_ms > longest_ms and self.first_ms - self.steady_ms >= _STEADY_MS

    def then(self, newest_ms: int, now_ms: int, patience_ms: int) -> "CommitsRead":
        """The state after the next resync."""
        if newest_ms == self.newest_ms:
            return msgspec.structs.replace(self, seen_ms=now_ms, patience_ms=patience_ms)
        pause_ms = self.seen_ms - self.first_ms
        steady_ms = self.steady_ms if pause_ms <= patience_ms else now_ms
        longest_ms = max(pause_ms, self.pause_ms / 2 ** ((now_ms - self.first_ms) / _HALVED_AFTER_MS))
        return CommitsRead(newest_ms, now_ms, now_ms, steady_ms, longest_ms, patience_ms)


def newest_read_ms(event: LagEvent) -> int:
    """When Burrow read its newest commit, if the event is on Burrow's own group. Otherwise 0."""
    is_own = is_burrow_itself(event.consumer, event.max_lag and event.max_lag.topic)
    return max((each.end.timestamp_ms for each in event.partitions if each.end and is_own), default=0)


def keep(log: ReporterNotes, newest: Mapping[str, int], interval_s: float) -> None:
    """Save what a resync saw of each cluster. Raises what `ReporterNotes.remember` raises."""
    patience_ms = max(_PATIENCE_MS, int(2000 * interval_s))
    now_ms, kept = log.log_time_ms(), _kept(log)
    for cluster, at_ms in newest.items():
        kept[cluster] = kept.get(cluster, CommitsRead(at_ms, *[now_ms] * 3)).then(at_ms, now_ms, patience_ms)
    log.remember(RESYNC, _NOTE, msgspec.msgpack.encode(kept))


def read(log: ReporterNotes) -> dict[str, CommitsRead]:
    """The clusters that resync has seen lately."""
    now_ms = log.log_time_ms()
    return {name: each for name, each in _kept(log).items() if now_ms - each.seen_ms <= 3 * each.patience_ms}


def cut_off(log: ReporterNotes) -> frozenset[str]:
    """The clusters whose Burrow is cut off from Kafka, as far as this is known."""
    return frozenset(name for name, each in read(log).items() if each.is_cut_off)


def _kept(log: ReporterNotes) -> dict[str, CommitsRead]:
    with suppress(LogUnavailableError, msgspec.DecodeError):  # if another version wrote it, resync replaces it
        return msgspec.msgpack.decode(log.recall(RESYNC, _NOTE) or b"\x80", type=dict[str, CommitsRead])
    return {}
