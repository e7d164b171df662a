"""Stores what `watch` saw of each group besides its verdict: state, members, rebalances and lost messages."""

import msgspec

from karrot.eventlog.base import ReporterNotes
from karrot.known_problems import WATCH

NOTE = "groups"
UNKNOWN_STATE = "Unknown"
STATES = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead", UNKNOWN_STATE)
"""A group's states, under the names that Kafka's own tools show. The client library has no names for the two states of
the new group protocol (Assigning, Reconciling), so these are Unknown."""


class GroupHealth(msgspec.Struct, frozen=True, array_like=True):
    """One group at the last poll. ``None`` means "not known".

    ``messages_lost`` counts messages that were deleted before the group read them. ``retention_margin`` is the number
    of messages between the log start and the oldest unread message, in the partition where it is smallest; it is also
    ``None`` if no message is unread. ``rebalances`` is counted since the group was first watched. Fields may only be
    added at the end, with a default.
    """

    consumer: str
    state: str
    members: int | None
    coordinator: int | None
    rebalances: int
    messages_lost: int | None
    retention_margin: int | None


class WatchedCluster(msgspec.Struct, frozen=True, array_like=True):
    """A cluster's last poll. It is shown for ``good_for_ms`` after ``log_time_ms``.

    ``polled_at_ms`` is 0 as long as Kafka has never answered.
    """

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
    """The last saved poll; ``None`` if there is none that this version can read. Raises `LogUnavailableError`."""
    kept = log.recall(WATCH, NOTE)
    if kept is None:
        return None
    try:
        return _DECODER.decode(kept)
    except msgspec.DecodeError:  # written by another version: the next poll replaces it
        return None
