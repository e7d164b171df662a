"""Lag without Burrow, from commits and log ends: the table ``partition_lag_minute``."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import floor
from typing import Any, NamedTuple

from support.pipeline.expected_tables.calendar_ms import DAY_MS, day_of, day_text, minute_of
from support.pipeline.expected_tables.commits import Assignment, Commit, Reader, Rows
from support.pipeline.expected_tables.log_ends import Log, LogEnds, Sample, lives

_FORGOTTEN_MS, _MEMBERS_BACK_MS, _LEFT_AFTER_MS = 31 * DAY_MS, 30 * DAY_MS, 100_000


class _Known(NamedTuple):
    """The log start and log end at a time, the samples of that life of the log, and the newest near poll."""

    end: int | None
    life: Sequence[Sample]
    start: int | None = None
    newest: Sample | None = None


def partition_lag_minute(
    commits: Iterable[Commit],
    samples: LogEnds,
    assignments: Iterable[Assignment],
    longest_ms: int,
) -> Rows:
    """Make a row for each partition and minute with a commit of the group, or with a log-end sample after a commit.

    While a member owns a partition, a log-end sample suffices.
    """
    readers = defaultdict[Reader, list[Commit]](list)
    for commit in commits:
        readers[commit.reader].append(commit)
    owners = defaultdict[tuple[str, str], list[Assignment]](list)
    for one in assignments:
        owners[one.group].append(one)
        for place in one.owner_of:
            readers.setdefault(Reader(*one.group, *place), [])
    rows = []
    for reader, records in readers.items():
        told = owners.get(reader.group, [])
        for moment_ms, newest, offsets in _moments(reader, records, samples):
            owner = _owner(told, reader, moment_ms)
            is_late = newest.offset is not None and moment_ms - newest.at_ms > _FORGOTTEN_MS
            if owner is None and not offsets and (is_late or newest.offset is None) and newest.at_ms != moment_ms:
                continue
            known = _log_end(reader.log, newest.offset, moment_ms, samples, longest_ms)
            row = _row(reader, moment_ms, newest, known, longest_ms)
            is_left = newest.offset is not None and _is_left(reader, told, newest.at_ms, moment_ms)
            state = "LEFT" if is_left else _state(newest, known, owner)
            unknown = {"lag": None, "lag_seconds": None, "method": "unknown"} if state else {}
            rows.append({**row, **unknown, **_summed(offsets), "owner": owner, "state": state})
    return rows


def _state(newest: Commit, known: _Known, owner: str | None) -> str | None:
    """Return why the lag of a partition is unknown although its log end is known."""
    if newest.offset is None:
        return None if owner is None else "NEVER_COMMITTED"
    poll = known.newest
    is_beyond = known.end is not None and poll and poll.at_ms > newest.at_ms and poll.offset < newest.offset
    return "BEYOND_END" if is_beyond else None


def _is_left(reader: Reader, told: Sequence[Assignment], committed_ms: int, at_ms: int) -> bool:
    """Whether for 100 s the group's members have read other topics, and nobody committed on this partition.

    The assignments that ended before the day of the row do not count.
    """
    silent_since, unread_ms, is_first = committed_ms, 0, True
    for one, next_ms in zip(told, [*(one.at_ms for one in told[1:]), 2**63], strict=False):
        if one.at_ms > at_ms or next_ms <= day_of(at_ms) or one.at_ms < day_of(at_ms) - _MEMBERS_BACK_MS:
            continue
        topics = {topic for topic, _ in one.owner_of}
        if reader.topic in topics:
            silent_since, unread_ms, is_first = max(committed_ms, next_ms), 0, False
        elif topics:
            silent_since, is_first = max(silent_since, one.at_ms) if is_first else silent_since, False
            unread_ms += next_ms - one.at_ms
            if at_ms < next_ms:
                return at_ms - silent_since >= _LEFT_AFTER_MS
    return unread_ms >= _LEFT_AFTER_MS and at_ms - silent_since >= _LEFT_AFTER_MS


def _summed(offsets: Sequence[int]) -> dict[str, int | None]:
    """Return the values that come from the offsets of a minute, in the order of the log."""
    return {
        "commits": len(offsets),
        "offset_sum": sum(offsets) if offsets and _fits(sum(offsets)) else None,
        "offset_first": offsets[0] if offsets else None,
        "offset_last": offsets[-1] if offsets else None,
    }


def _moments(reader: Reader, records: Sequence[Commit], samples: LogEnds) -> list[tuple[int, Commit, list[int]]]:
    """Return the moment of each row, the newest record at that moment, and the offsets committed in its minute.

    Before the first record, there is a record without an offset at the beginning of time.
    """
    minutes = defaultdict[int, list[Commit]](list)
    for record in records:
        minutes[minute_of(record.at_ms)].append(record)
    days = [day for day, log in samples.places() if log == reader.log]
    sampled = {
        minute_of(sample.at_ms): sample.at_ms
        for day in sorted(days)
        for sample in samples.of_days(reader.log, day - DAY_MS, day)
        if sample.at_ms >= day
    }
    found, newest = [], Commit(reader, -1, 0, None)
    for minute in sorted(minutes.keys() | sampled.keys()):
        if minute in minutes:
            newest = max(minutes[minute], key=lambda one: (one.at_ms, one.log_offset))
            offsets = [one.offset for one in minutes[minute] if one.offset is not None]
            found.append((newest.at_ms, newest, offsets))
        else:
            found.append((sampled[minute], newest, []))
    return found


def _log_end(
    log: Log,
    committed: int | None,
    at_ms: int,
    samples: LogEnds,
    longest_ms: int,
) -> _Known:
    """Return the log end at a time, from the samples of that day and of the day before."""
    day = day_of(at_ms)
    seen = samples.of_days(log, day - DAY_MS, day)
    begun = [life for life in lives(seen) if life[0].at_ms <= at_ms]
    if not begun:
        return _Known(None, ())
    life = begun[-1]
    place = bisect_right([sample.at_ms for sample in life], at_ms) - 1
    before, after = life[place], life[place + 1] if place + 1 < len(life) else None
    start = before.start
    if after is None or after.at_ms - before.at_ms > longest_ms:
        return _Known(before.offset if at_ms - before.at_ms <= longest_ms else None, life, start, before)
    if not _fits(after.offset - before.offset):
        return _Known(None, life, start, after)
    share = (at_ms - before.at_ms) / (after.at_ms - before.at_ms)
    end = before.offset + floor(share * (after.offset - before.offset) + 0.5)
    return _Known(end if committed is None else min(max(end, committed), after.offset), life, start, after)


def _row(reader: Reader, at_ms: int, newest: Commit, known: _Known, longest_ms: int) -> dict[str, Any]:
    committed, end = newest.offset, known.end
    position = committed if committed is None or known.start is None else max(committed, known.start)
    lag = None if position is None or end is None or not _fits(end - position) else max(0, end - position)
    seconds, method = None, "unknown"
    if lag == 0:
        seconds, method = 0.0, "observed"
    elif position is not None:
        seconds, method = _seconds_behind(known.life, position, at_ms, longest_ms)
    is_negative = committed is not None and end is not None and committed > end
    return {
        **reader._asdict(),
        "minute": minute_of(at_ms),
        "as_of": at_ms,
        "committed_offset": committed,
        "committed_at": newest.at_ms if committed is not None else None,
        "start_offset": known.start,
        "end_offset": end,
        "lag": lag,
        "lag_seconds": seconds,
        "method": method,
        "negative": int(is_negative),
        "day": day_text(at_ms),
    }


def _seconds_behind(life: Sequence[Sample], committed: int, at_ms: int, longest_ms: int) -> tuple[float | None, str]:
    """Return the time since the log ended at the committed offset, and how it is known."""
    place = bisect_right([sample.offset for sample in life], committed) - 1
    if place < 0 or place + 1 == len(life) or life[place + 1].at_ms - life[place].at_ms > longest_ms:
        return None, "unknown"
    if life[place].at_ms > at_ms:  # only if the lag is unknown
        return None, "unknown"
    before, after = life[place], life[place + 1]
    if not _fits(after.offset - before.offset) or not _fits(committed - before.offset):
        return None, "unknown"
    share = (committed - before.offset) / (after.offset - before.offset)
    reached_ms = before.at_ms + share * (after.at_ms - before.at_ms)
    return max(0.0, (at_ms - reached_ms) / 1000), "observed" if before.offset == committed else "interpolated"


def _fits(number: int) -> bool:
    """Whether a difference of two offsets fits into 64 bits. Otherwise it is unknown."""
    return -(2**63) <= number < 2**63


def _owner(records: Sequence[Assignment], reader: Reader, at_ms: int) -> str | None:
    before = [one for one in records if one.at_ms <= at_ms]
    if not before or before[-1].at_ms < day_of(at_ms) - _MEMBERS_BACK_MS:
        return None
    return before[-1].owner_of.get((reader.topic, reader.partition))
