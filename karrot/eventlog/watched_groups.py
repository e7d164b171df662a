"""Holds what `watch` saw of a group besides Burrow's verdict: its state, members, rebalances and lost messages."""

import msgspec

from karrot.eventlog.base import ReporterNotes
from karrot.known_problems import WATCH

NOTE = "groups"
UNKNOWN_STATE = "Unknown"
STATES = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead", UNKNOWN_STATE)
"""A group's states under the names that Kafka's own tools show. The client library has no name for the states that
only groups of the new protocol have (Assigning, Reconciling): they are Unknown."""


class GroupHealth(msgspec.Struct, frozen=True, array_like=True):
    """One group at the last poll. ``None`` is "not known".

    ``messages_lost`` were deleted before they were read; ``retention_margin`` is how many messages the log start is
    away from the oldest unread one, in the partition where that is least; ``None`` also if nothing is unread.
    ``rebalances`` is counted since the group was first watched. Fields may only be added at the end, with a default.
    """

    consumer: str
    state: str
    members: int | None
    coordinator: int | None
    rebalances: int
    messages_lost: int | None
    retention_margin: int | None


class WatchedCluster(msgspec.Struct, frozen=True, array_like=True):
    """A cluster's last poll, at ``log_time_ms``, shown for ``good_for_ms``; ``polled_at_ms`` is 0 without answers."""

    cluster: str
    polled_at_ms: int
    poll_seconds: float
    log_time_ms: int
    good_for_ms: int
    groups: tuple[GroupHealth, ...]


_DECODER = msgspec.msgpack.Decoder(WatchedCluster)


def keep(log: ReporterNotes, watched: WatchedCluster) -> None:
    """Save the last poll. Raises what `ReporterNotes.remember` raises."""
    log.remember(WATCH, NOTE, msgspec.msgpack.encode(watched))


def read(log: ReporterNotes) -> WatchedCluster | None:
    """The last poll, if there is one that this version can read. Raises `LogUnavailableError`."""
    kept = log.recall(WATCH, NOTE)
    if kept is None:
        return None
    try:
        return _DECODER.decode(kept)
    except msgspec.DecodeError:  # of another version: the next poll replaces it
        return None
