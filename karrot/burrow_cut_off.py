"""Judges whether Burrow is cut off from Kafka: a Burrow without Kafka goes on to judge the commits in its memory."""

from collections.abc import Collection, Mapping
from contextlib import suppress

import msgspec

from karrot.event import LagEvent, is_burrow_itself
from karrot.eventlog.base import EventLog, LogUnavailableError
from karrot.runbooks_and_remedies import RESYNC

_NOTE = "commits_read"
_STEADY_MS, _KNOWN_MS = 1_800_000, 900_000


class CommitsRead(msgspec.Struct, frozen=True, array_like=True):
    """When Burrow read its newest commit of a cluster's groups (``newest_ms``, by Burrow's clock).

    All other times are of the log: when resync saw a sign of life last, when it read Burrow last, and since when signs
    come without a pause of ``after_ms``. Resync reads Burrow every ``every_ms``.
    """

    newest_ms: int
    alive_ms: int
    seen_ms: int
    steady_ms: int
    after_ms: int = 0
    every_ms: int = 0

    @property
    def is_cut_off(self) -> bool:
        """Whether signs of life came without a pause for half an hour, and now stay away."""
        return self.seen_ms - self.alive_ms > self.after_ms and self.alive_ms - self.steady_ms >= _STEADY_MS

    def then(self, newest_ms: int, now_ms: int, *, is_moving: bool) -> "CommitsRead":
        """The state after the next resync. A pause in which Burrow was cut off says nothing about the cluster."""
        if not is_moving and newest_ms in {0, self.newest_ms}:
            return msgspec.structs.replace(self, seen_ms=now_ms)
        is_rare = self.seen_ms - self.alive_ms > self.after_ms and not self.is_cut_off
        return CommitsRead(newest_ms or self.newest_ms, now_ms, now_ms, now_ms if is_rare else self.steady_ms)


def newest_read_ms(event: LagEvent) -> int:
    """When Burrow read its newest commit, if the event is on Burrow's own group. Otherwise 0."""
    is_own = is_burrow_itself(event.consumer, event.max_lag and event.max_lag.topic)
    return max((each.end.timestamp_ms for each in event.partitions if each.end and is_own), default=0)


def keep(log: EventLog, newest: Mapping[str, int], moving: Collection[str], interval_s: float, after_s: float) -> None:
    """Save a cluster's newest commit, or 0 if Burrow does not show it. ``moving``: where log ends move without it."""
    now_ms, kept = log.log_time_ms(), _kept(log)
    for cluster, at_ms in newest.items():
        if cluster in kept or at_ms:
            before = kept.get(cluster, CommitsRead(at_ms, *[now_ms] * 3))
            then = before.then(at_ms, now_ms, is_moving=cluster in moving)
            kept[cluster] = msgspec.structs.replace(then, after_ms=int(1000 * after_s), every_ms=int(1000 * interval_s))
    log.remember(RESYNC, _NOTE, msgspec.msgpack.encode(kept))


def read(log: EventLog) -> dict[str, CommitsRead]:
    """The clusters that resync has seen lately."""
    now_ms, kept = log.log_time_ms(), _kept(log).items()
    return {name: each for name, each in kept if now_ms - each.seen_ms <= max(_KNOWN_MS, 6 * each.every_ms)}


def cut_off(log: EventLog) -> frozenset[str]:
    """The clusters whose Burrow is cut off from Kafka, as far as this is known."""
    return frozenset(name for name, each in read(log).items() if each.is_cut_off)


def _kept(log: EventLog) -> dict[str, CommitsRead]:
    with suppress(LogUnavailableError, msgspec.DecodeError):  # if another version wrote it, resync replaces it
        return msgspec.msgpack.decode(log.recall(RESYNC, _NOTE) or b"\x80", type=dict[str, CommitsRead])
    return {}
