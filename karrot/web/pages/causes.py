"""Describes the likely cause of a group's status, from the group's newest event and Burrow's rules."""

from typing import NamedTuple

from karrot.event import ABANDONED, Status
from karrot.eventlog.base import EventSummary, GroupState
from karrot.text import amount, count, duration, percent, plural, visible

_UNEVEN_SHARE = 0.5
_UNEVEN_PARTITIONS = 3


class Cause(NamedTuple):
    """A likely cause. ``brief`` fits into a table cell. ``sentence`` explains the cause. ``look`` says what to check.

    ``runbook`` names a runbook, and is empty for a status that Burrow does not document.
    """

    brief: str
    sentence: str
    look: str = ""
    runbook: str = ""


_UNLISTED = Cause(
    "partition not listed",
    "A group is ERR only if a partition is STOP, STALL or REWIND. This event does not list that partition.",
    "With Burrow, ask it: its /v3/kafka/<cluster>/consumer/<group>/status lists the partition.",
    "KarrotConsumerError",
)
"""The cause of ERR without a listed partition. The cause "slow" would suggest more consumers, which would not help."""


def cause(state: GroupState, seconds_since_commit: float | None) -> Cause | None:
    """Find the likely cause of a group's status. Return ``None`` for a group that is OK.

    STOP, STALL and REWIND are statuses of single partitions. A group that is only slow has the status WARN.
    """
    summary = state.summary
    if summary.status is Status.OK:
        return None
    if summary.status_text == ABANDONED:
        return Cause("", "The group has no members. It ran briefly, its topics get nothing, or a setting names it.")
    if summary.status is None:
        return Cause("", f"Karrot does not know the status {visible(summary.status_text)}.")
    if state.is_of_burrow:
        sentence = "Burrow reads commits too late, so every lag that this Burrow reports is old."
        return Cause("Burrow itself is behind", sentence, runbook="KarrotBurrowLagging")
    if number := summary.open_transactions:
        return Cause(
            f"{_of(summary, number)} behind an open transaction",
            f"{_partitions(summary, number)} wait for an open transaction: consumers cannot read the records after it.",
            "The page shows the command that finds the producer. Do not restart the consumer: it has nothing to do.",
            "KarrotPartitionStopped",
        )
    return _of_partitions(summary, seconds_since_commit)


def _of_partitions(summary: EventSummary, seconds_since_commit: float | None) -> Cause:
    warn, stop, stall, rewind = summary.bad
    since = "" if seconds_since_commit is None else f" for {duration(seconds_since_commit)}"
    if summary.beyond_end is not None:
        partitions, committed, log_end = summary.beyond_end
        return Cause(
            f"{_of(summary, partitions)} past the log end",
            f"The group's offset {count(committed)} is past the end {count(log_end)}: somebody or a tool set "
            "the offset, or the topic was restored or cut off.",
            "The consumer reads nothing until the topic reaches the offset, or it jumps by auto.offset.reset.",
            "KarrotOffsetBeyondEnd",
        )
    if stop:
        return Cause(
            f"{_of(summary, stop)} stopped",
            f"{_partitions(summary, stop)} stopped: messages wait, and the group has committed no new offset{since}.",
            "Check the consumer of these partitions: it is down, hangs, or was never assigned.",
            "KarrotPartitionStopped",
        )
    if stall:
        again = "the group commits the same offset again and again"
        what = f"the offset has not moved{since}" if summary.is_polled else again
        return Cause(
            f"{_of(summary, stall)} stalled",
            f"{_partitions(summary, stall)} stalled: {what}.",
            "Check the consumer's log. The consumer fails at one message repeatedly, or waits for an answer forever.",
            "KarrotPartitionStopped",
        )
    if rewind:
        return Cause(
            f"{_of(summary, rewind)} went back",
            f"{_partitions(summary, rewind)} went back: a committed offset was lower than the previous one.",
            "Somebody reset the offsets, or two consumers commit for the same partition.",
            "KarrotConsumerError",
        )
    if summary.status is Status.ERR and summary.never_committed:
        return Cause(
            f"{_of(summary, summary.never_committed)} never committed",
            f"{_partitions(summary, summary.never_committed)} never committed: a member owns them and messages "
            "arrived, but the group has committed no offset for a whole window.",
            "Check the consumer's log. The consumer may fail at its first message. If the group keeps its offsets "
            "outside Kafka, name it in KARROT_WATCH_OFFSETS_ELSEWHERE.",
            "KarrotConsumerError",
        )
    return _UNLISTED if summary.status is Status.ERR else _slow(summary, warn)


def _slow(summary: EventSummary, number: int) -> Cause:
    signals, total, largest, partitions = summary.signals, summary.total_lag, summary.max_lag, summary.partition_count
    catches_up = signals.catch_up_seconds is not None
    doing = "catching up" if catches_up else "slower than its topic"
    if (made := signals.produce_rate) is not None and (read := signals.consume_rate) is not None:
        doing += f": on the worst partition it reads {_rounded(read)} messages/s, and {_rounded(made)}/s arrive"
    if total and largest and (partitions or 0) >= _UNEVEN_PARTITIONS and largest >= total * _UNEVEN_SHARE:
        share = percent(round(min(1.0, largest / total), 2))
        return Cause(
            f"{share} on one partition",
            f"{share} of the lag is on one partition. Its consumer is {doing}.",
            "The topic has a hot key, or one consumer is slower than the others. More consumers would not help.",
            "KarrotConsumerLagGrowing",
        )
    brief = "catching up" if catches_up else "too slow"
    if number:
        brief = f"{_of(summary, number)} {brief}"
    look = "" if catches_up else "Add consumers if the topic has more partitions than the group has consumers."
    return Cause(brief, f"The consumer is {doing}.", look, "KarrotConsumerLagGrowing")


def _of(summary: EventSummary, number: int) -> str:
    total = summary.partition_count
    return count(number) if total is None else f"{count(number)} of {count(total)}"


def _partitions(summary: EventSummary, number: int) -> str:
    total = summary.partition_count if summary.partition_count is not None else number
    return f"{_of(summary, number)} {plural(total, 'partition')}"


def _rounded(per_second: float) -> str:
    return count(per_second) if per_second >= 10 else amount(round(per_second, 1))  # noqa: PLR2004
