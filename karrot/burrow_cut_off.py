"""Judges whether Burrow is cut off from Kafka. A cut-off Burrow continues to judge the commits in its memory."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import msgspec

from karrot.event import LagEvent, is_burrow_itself
from karrot.eventlog.base import EventSummary, GroupState, LogUnavailableError
from karrot.eventlog.event_log import EventLog
from karrot.runbooks_and_remedies import RESYNC

_NOTE = "commits_read"
_STEADY_MS, _KNOWN_MS = 1_800_000, 900_000


class CommitsRead(msgspec.Struct, frozen=True, array_like=True):
    """The times of one cluster's commits. Burrow read its newest commit at ``newest_ms`` (Burrow's clock).

    The other times are log times. Resync last saw a sign of life at ``alive_ms``, and last read Burrow at ``seen_ms``.
    Since ``steady_ms``, no pause between signs exceeded ``after_ms``. Resync reads Burrow every ``every_ms``.
    """

    newest_ms: int
    alive_ms: int
    seen_ms: int
    steady_ms: int
    after_ms: int = 0
    every_ms: int = 0

    @property
    def is_cut_off(self) -> bool:
        """Whether signs of life came without a pause for half an hour, and then stopped."""
        return self.seen_ms - self.alive_ms > self.after_ms and self.alive_ms - self.steady_ms >= _STEADY_MS

    def after_resync(self, newest_ms: int, now_ms: int, *, is_moving: bool) -> "CommitsRead":
        """Return the state after the next resync. A pause while Burrow was cut off does not reset ``steady_ms``."""
        if not is_moving and newest_ms in {0, self.newest_ms}:
            return msgspec.structs.replace(self, seen_ms=now_ms)
        is_rare = self.seen_ms - self.alive_ms > self.after_ms and not self.is_cut_off
        return CommitsRead(newest_ms or self.newest_ms, now_ms, now_ms, now_ms if is_rare else self.steady_ms)


def newest_read_ms(event: LagEvent) -> int:
    """Return when Burrow read its newest commit; 0 if the event is not on Burrow's own group."""
    is_own = is_burrow_itself(event.consumer, event.max_lag and event.max_lag.topic)
    return max((each.end.timestamp_ms for each in event.partitions if each.end and is_own), default=0)


def keep(log: EventLog, newest: Mapping[str, int], moving: Collection[str], interval_s: float, after_s: float) -> None:
    """Save each cluster's newest commit (0 if unknown). In the clusters ``moving``, only the log ends move."""
    now_ms, kept = log.log_time_ms(), _kept(log)
    for cluster, at_ms in newest.items():
        if cluster in kept or at_ms:
            before = kept.get(cluster, CommitsRead(at_ms, *[now_ms] * 3))
            after = before.after_resync(at_ms, now_ms, is_moving=cluster in moving)
            kept[cluster] = msgspec.structs.replace(
                after, after_ms=int(1000 * after_s), every_ms=int(1000 * interval_s)
            )
    log.remember(RESYNC, _NOTE, msgspec.msgpack.encode(kept))


def read(log: EventLog) -> dict[str, CommitsRead]:
    """The clusters that resync has read lately."""
    now_ms, kept = log.log_time_ms(), _kept(log).items()
    return {name: each for name, each in kept if now_ms - each.seen_ms <= max(_KNOWN_MS, 6 * each.every_ms)}


def cut_off(log: EventLog) -> frozenset[str]:
    return frozenset(name for name, each in read(log).items() if each.is_cut_off)


def judged(log: EventLog, states: Sequence[GroupState], clusters: Collection[str]) -> Sequence[GroupState]:
    """The states for programs: in the cut-off ``clusters``, a verdict of `watch` replaces Burrow's (`GroupState`)."""
    now_ms, summaries = log.log_time_ms(), dict[int, EventSummary]()
    if not clusters:
        return states
    others = (state.other_verdict(now_ms) for state in states if state.has_old_lag(clusters))
    with suppress(LogUnavailableError):  # without them, the lags are unknown
        summaries |= log.summaries([each.seq for each in others if each])
    return [state.judged(clusters, now_ms, summaries.get) for state in states]


def _kept(log: EventLog) -> dict[str, CommitsRead]:
    with suppress(LogUnavailableError, msgspec.DecodeError):  # resync replaces a value of another version
        return msgspec.msgpack.decode(log.recall(RESYNC, _NOTE) or b"\x80", type=dict[str, CommitsRead])
    return {}
