"""Describes a group's status in words, from its newest event and Burrow's rules, as the list of groups shows it."""

from functools import cache
from pathlib import Path

import msgspec
from msgspec.structs import replace

from karrot.event import ABANDONED, Status
from karrot.eventlog.base import EventSummary, GroupState
from karrot.text import amount, count, duration, percent, plural, visible

_UNEVEN_SHARE = 0.5
_UNEVEN_PARTITIONS = 3


class Cause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The words of a status or a cause. ``brief`` fits into a table cell, and ``look`` says what to check."""

    sentence: str
    brief: str = ""
    evidence: tuple[str, ...] = ()
    look: str = ""
    runbook: str = ""
    commands: tuple[str, ...] = ()


class NextCommand(msgspec.Struct, frozen=True):
    """A command for the reader. Karrot never runs it."""

    purpose: str
    command: str


class _Texts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    statuses: dict[str, Cause]
    causes: dict[str, Cause]
    commands: dict[str, NextCommand]
    missing: dict[str, str]


@cache
def texts() -> _Texts:
    package = Path(__file__).parents[1]
    folder = next(each for each in (package, package.parent) if (each / "templates").is_dir()) / "templates"
    return msgspec.yaml.decode((folder / "diagnosis" / "causes.yaml").read_bytes(), type=_Texts)


def cause(state: GroupState, seconds_since_commit: float | None) -> Cause | None:
    """Describe a group's status. Return ``None`` for a group that is OK.

    STOP, STALL and REWIND are statuses of single partitions. A group that is only slow has the status WARN.
    """
    summary = state.summary
    if summary.status is Status.OK:
        return None
    if summary.status is None:
        known = summary.status_text == ABANDONED
        return _words("abandoned" if known else "unknown_status", status=visible(summary.status_text))
    if state.is_of_burrow:
        return _words("burrow_behind")
    warn, stop, stall, rewind = summary.bad
    beyond, is_error = summary.beyond_end or (0, 0, 0), summary.status is Status.ERR
    since = "" if seconds_since_commit is None else f" for {duration(seconds_since_commit)}"
    values = {"since": since, "committed": count(beyond[1]), "log_end": count(beyond[2])}
    for name, number in {
        "open_transaction": summary.open_transactions,
        "beyond_end": beyond[0],
        "stopped": stop,
        "stalled" if summary.is_polled else "stalled_commits": stall,
        "went_back": rewind,
        "never_committed": summary.never_committed * is_error,
    }.items():
        if number:
            of, total = _of(summary, number), number if summary.partition_count is None else summary.partition_count
            return _words(name, of=of, partitions=f"{of} {plural(total, 'partition')}", **values)
    return _words("not_listed") if is_error else _slow(summary, warn)


def _slow(summary: EventSummary, number: int) -> Cause:
    signals, total, largest = summary.signals, summary.total_lag, summary.max_lag
    catches_up = signals.catch_up_seconds is not None
    doing = "catching up" if catches_up else "slower than its topic"
    if (made := signals.produce_rate) is not None and (read := signals.consume_rate) is not None:
        doing += f": on the worst partition it reads {pace(read)}, and {_rounded(made)}/s arrive"
    is_several = (summary.partition_count or 0) >= _UNEVEN_PARTITIONS
    if total and largest and is_several and largest >= total * _UNEVEN_SHARE:
        return _words("uneven", share=percent(round(min(1.0, largest / total), 2)), doing=doing)
    of = f"{_of(summary, number)} " if number else ""
    return _words("catching_up" if catches_up else "too_slow", of=of, doing=doing)


def _words(name: str, **values: str) -> Cause:
    words = texts().statuses[name]
    return replace(words, brief=words.brief.format(**values), sentence=words.sentence.format(**values))


def _of(summary: EventSummary, number: int) -> str:
    return count(number) if summary.partition_count is None else f"{count(number)} of {count(summary.partition_count)}"


def pace(per_second: float) -> str:
    return f"{_rounded(per_second)} messages/s"


def _rounded(per_second: float) -> str:
    return count(per_second) if per_second >= 10 else amount(round(per_second, 1))  # noqa: PLR2004
