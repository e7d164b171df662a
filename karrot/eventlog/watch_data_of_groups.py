"""Stores the data of `watch` about each group, except the verdict: state, members, rebalances and lost messages."""

from typing import TYPE_CHECKING

import msgspec

from karrot.event import GroupKey
from karrot.runbooks_and_remedies import WATCH

if TYPE_CHECKING:  # the process with the Kafka client imports this module, and needs no event log
    from karrot.eventlog.event_log import EventLog

NOTE = "groups"
UNKNOWN_STATE = "Unknown"
STATES = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead", UNKNOWN_STATE)
"""A group's states, under the names that Kafka's own tools show. The client library has no names for two states of the
new group protocol (Assigning, Reconciling). A group in one of them has the state Unknown."""


class GroupHealth(msgspec.Struct, frozen=True, array_like=True):
    """One group at the last poll. ``None`` means "not known".

    ``messages_lost`` counts messages that were deleted before the group read them. The count is 0 again when the group
    has committed past these messages, or has nothing left to read. ``retention_margin`` counts the messages between the
    log start and the oldest unread message, on the partition where they are the smallest share of the log; ``None``
    without unread messages. ``beyond_end`` counts partitions with a committed offset past the log end. ``uncommitted``
    counts partitions that a member owns and that have no committed offset, ``open_transactions`` those with the state
    OPEN_TRANSACTION. ``rebalances`` counts from the group's first poll. The state is Dead for some minutes after a
    deletion. New fields must come at the end, with a default.
    """

    consumer: str
    state: str
    members: int | None
    coordinator: int | None
    rebalances: int
    messages_lost: int | None
    retention_margin: int | None
    beyond_end: int | None = None
    uncommitted: int | None = None
    abandoned: bool = False
    open_transactions: int | None = None


class WatchedCluster(msgspec.Struct, frozen=True, array_like=True):
    """A cluster's last poll. Karrot shows the poll for ``good_for_ms`` after ``log_time_ms``.

    ``polled_at_ms`` is 0 until Kafka answers for the first time. ``others`` counts the groups that are not consumer
    groups, such as share groups, which Karrot does not watch. New fields must come at the end, with a default.
    """

    cluster: str
    polled_at_ms: int
    poll_seconds: float
    log_time_ms: int
    good_for_ms: int
    groups: tuple[GroupHealth, ...]
    others: int = 0


_DECODER = msgspec.msgpack.Decoder(WatchedCluster)


def keep(log: "EventLog", watched: WatchedCluster) -> None:
    """Save the last poll. Raises what `EventLog.remember` raises."""
    log.remember(WATCH, NOTE, msgspec.msgpack.encode(watched))


def live(log: "EventLog", key: GroupKey) -> GroupHealth | None:
    """The group at the last poll; ``None`` if the poll lacks the group or is too old. Raises `LogUnavailableError`."""
    poll = read(log)
    if poll is None or poll.cluster != key.cluster or log.log_time_ms() - poll.log_time_ms > poll.good_for_ms:
        return None
    return next((group for group in poll.groups if group.consumer == key.consumer and group.state != "Dead"), None)


def read(log: "EventLog") -> WatchedCluster | None:
    """The last saved poll; ``None`` if there is no poll that this version can read. Raises `LogUnavailableError`."""
    kept = log.recall(WATCH, NOTE)
    if kept is None:
        return None
    try:
        return _DECODER.decode(kept)
    except msgspec.DecodeError:  # the next poll replaces another version's data
        return None
