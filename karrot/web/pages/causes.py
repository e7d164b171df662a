"""Says in words what is probably wrong with a group, from its newest event alone and by Burrow's own rules."""

from typing import NamedTuple

from karrot.event import Status
from karrot.eventlog.base import EventSummary, GroupState
from karrot.known_problems import RUNBOOKS
from karrot.text import amount, count, duration, percent, plural, visible

_UNEVEN_SHARE = 0.5
_UNEVEN_PARTITIONS = 3


class Cause(NamedTuple):
    """``brief`` fits a cell, ``sentence`` says what it means, ``look`` where to search next.

    ``runbook`` names the runbook that fits; it is empty for a status that Burrow is not known to have.
    """

    brief: str
    sentence: str
    look: str = ""
    runbook: str = ""


_UNLISTED = Cause(
    "partition not listed",
    "A partition stopped, stalled or went back, as Burrow says ERR for nothing else; this event does not list which.",
    "Burrow's own /v3/kafka/<cluster>/consumer/<group>/status lists it.",
    RUNBOOKS["partition not listed"],
)
"""Of an ERR without such a partition: to call it slow would ask for more consumers."""


def cause(state: GroupState, seconds_since_commit: float | None) -> Cause | None:
    """The likely cause of a group's status; ``None`` for one that is well.

    STOP, STALL and REWIND are what Burrow found on single partitions; a group that is only slow has WARN alone.
    """
    summary = state.summary
    if summary.status is Status.OK:
        return None
    if summary.status is None:
        return Cause("", f"Burrow is not known to say {visible(summary.status_text)}.")
    if state.is_of_burrow:
        sentence = "Burrow reads commits too late: every other number here is old."
        return Cause("Burrow itself is behind", sentence, runbook=RUNBOOKS["Burrow behind"])
    return _of_partitions(summary, seconds_since_commit)


def _of_partitions(summary: EventSummary, seconds_since_commit: float | None) -> Cause:
    warn, stop, stall, rewind = summary.bad
    if stop:
        return _stopped(summary, stop, seconds_since_commit)
    if stall:
        return Cause(
            f"{_of(summary, stall)} stalled",
            f"{_partitions(summary, stall)} stalled: commits come, but always of the same offset, while messages wait.",
            "It fails at the same message again and again, or waits for something that does not answer.",
            RUNBOOKS["partition stalled"],
        )
    if rewind:
        return Cause(
            f"{_of(summary, rewind)} went back",
            f"{_partitions(summary, rewind)} went back: a commit was below the one before.",
            "Somebody reset the offsets, or two consumers commit for the same partition.",
            RUNBOOKS["partition went back"],
        )
    return _UNLISTED if summary.status is Status.ERR else _slow(summary, warn)


def _stopped(summary: EventSummary, number: int, seconds: float | None) -> Cause:
    since = "" if seconds is None else f" for {duration(seconds)}"
    return Cause(
        f"{_of(summary, number)} stopped",
        f"{_partitions(summary, number)} stopped: messages wait, and nothing was committed{since}.",
        "Is the consumer of these partitions running? It is down, hangs, or was never assigned.",
        RUNBOOKS["partition stopped"],
    )


def _slow(summary: EventSummary, number: int) -> Cause:
    rates, signals = _rates(summary), summary.signals
    catches_up = signals.catch_up_seconds is not None
    doing = f"catching up{rates}" if catches_up else f"slower than its topic{rates}"
    if uneven := _uneven(summary):
        return Cause(
            f"{uneven} on one partition",
            f"{uneven} of the lag is on one partition; its consumer is {doing}.",
            "One hot key, or one consumer that is slower than the others: more consumers would not help.",
            RUNBOOKS["one partition"],
        )
    brief = "catching up" if catches_up else "too slow"
    if number:
        brief = f"{_of(summary, number)} {brief}"
    look = "" if catches_up else "More consumers help as long as there are more partitions than consumers."
    runbook = RUNBOOKS["catching up" if catches_up else "too slow"]
    return Cause(brief, f"The consumer is {doing}.", look, runbook)


def _rates(summary: EventSummary) -> str:
    made, read = summary.signals.produce_rate, summary.signals.consume_rate
    if made is None or read is None:
        return ""
    return f": {_rounded(read)} messages/s read, {_rounded(made)}/s come in on the worst partition"


def _uneven(summary: EventSummary) -> str:
    """How much of the lag is on one of several partitions, if that is most of it."""
    total, largest, partitions = summary.total_lag, summary.max_lag, summary.partition_count
    if not total or not largest or (partitions or 0) < _UNEVEN_PARTITIONS or largest < total * _UNEVEN_SHARE:
        return ""
    return percent(round(min(1.0, largest / total), 2))


def _of(summary: EventSummary, number: int) -> str:
    total = summary.partition_count
    return count(number) if total is None else f"{count(number)} of {count(total)}"


def _partitions(summary: EventSummary, number: int) -> str:
    total = summary.partition_count if summary.partition_count is not None else number
    return f"{_of(summary, number)} {plural(total, 'partition')}"


def _rounded(per_second: float) -> str:
    return count(per_second) if per_second >= 10 else amount(round(per_second, 1))  # noqa: PLR2004
