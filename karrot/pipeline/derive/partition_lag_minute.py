"""Derives the table ``partition_lag_minute``: the lag of each partition from commits and log ends, without Burrow.

A partition has a row for every minute with a commit of its group or a log-end sample. The minutes of samples are
needed, because the lag of a consumer that has stopped keeps growing. A partition that a member owns has such rows too,
with or without a commit. The states are those of `karrot.watch`, and so are the rules.

One task gets all rows of a log (a topic's partition): the samples, and the commits and owners of all groups. It
computes with arrays. Times are epoch milliseconds, offsets and lags are messages. A *reader* is a group with a log: the
partition of a group.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import zip_longest
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from karrot.event import BEYOND_END, LEFT, NEVER_COMMITTED
from karrot.pipeline.derive.lag_seconds import BEHIND_MS
from karrot.pipeline.derive.rebalances import FOREVER_MS, TopicsRead
from karrot.pipeline.schemas_and_conversions import GROUP, PARTITION, PARTITION_LAG_MINUTE, columns_of
from karrot.pipeline.window_arrays.arrow_batches import ints, whole_keys
from karrot.pipeline.window_arrays.judge_windows import Bools, Ints, begins, newest

FORGOTTEN: Final = timedelta(days=31)
"""The highest age of a partition's last commit. Older partitions are left out: a tombstone was probably missed."""

_LEFT_AFTER_MS: Final = 100_000
"""As in `karrot.watch` by default: a topic is left if no member reads it, and no offset moves, for ten polls."""

_MINUTE_MS: Final = 60_000
_MS: Final = timedelta(milliseconds=1)
_COMMIT, _OWNER, _POLL, _VERDICT = range(4)
_ROWS_AT_ONCE: Final = 200_000
_READERS_AT_ONCE: Final = 500
"""So many readers can have 720,000 rows of a day, which take some 300 MB until they are written."""

_NO_START: Final = -(2**63)
"""Stands for an unknown log start: no offset is lower."""

Floats = npt.NDArray[np.float64]
_METHODS: Final = ("unknown", "observed", "interpolated")
_STATES: Final = (None, LEFT, BEYOND_END, NEVER_COMMITTED)


GroupTopics = Mapping[tuple[str, str], Sequence[TopicsRead]]
"""When the members of each group read which topics, by cluster and consumer."""


def partition_lag_minute(
    commits: DataFrame,
    before: DataFrame,
    samples: DataFrame,
    owners: DataFrame,
    topics_read: GroupTopics,
    *,
    since: datetime,
    longest: timedelta,
) -> DataFrame:
    """Make the rows of ``partition_lag_minute`` from ``since`` on.

    - ``commits``: the commits from ``since`` on. A record may be there twice.
    - ``before``: the commits that `carried` took over from the time before.
    - ``samples``: the `karrot.pipeline.derive.lag_seconds.all_samples` of these days and of the day before.
    - ``owners``: the `karrot.pipeline.derive.rebalances.owners` of each partition.

    Lag is the log end at the row's timestamp minus the position: the committed offset, or the log start if Kafka has
    deleted the messages before it. Lag in seconds is how long ago the log end was at the position; if that was before
    the first sample, it is unknown. A sample is valid for ``longest``. A row with a ``state`` has no lag.
    """
    asked = partial(_lags, since_ms=int(since.timestamp()) * 1000, longest_ms=longest // _MS, topics_read=topics_read)
    rows = _together(commits, before, samples, owners).mapInArrow(asked, PARTITION_LAG_MINUTE)
    return rows.select(*columns_of(PARTITION_LAG_MINUTE), F.to_date("minute").alias("day"))


def carried(rows: DataFrame) -> DataFrame:
    """Return each partition's newest commit in ``partition_lag_minute``. The next day begins with these commits."""
    newest_commit = (F.max_by(name, "minute").alias(name) for name in ("committed_offset", "committed_at"))
    kept = rows.groupBy(*PARTITION).agg(*newest_commit).where(F.col("committed_offset").isNotNull())
    return kept.select(*PARTITION, F.unix_millis("committed_at").alias("at_ms"), "committed_offset")


_TOGETHER: Final = f"""
WITH placed AS (
    SELECT {_COMMIT} AS kind, cluster, consumer, topic, partition, log_ts_ms AS at_ms,
        if(tombstone, NULL, offset) AS offset, log_offset AS place, NULL AS owner, NULL AS day
    FROM {{commits}}
    UNION ALL
    SELECT {_COMMIT}, cluster, consumer, topic, partition, at_ms, committed_offset, NULL, NULL, NULL FROM {{before}}
    UNION ALL
    SELECT {_OWNER}, cluster, consumer, topic, partition, at_ms, NULL, until_ms, owner, NULL FROM {{owners}}
    UNION ALL
    SELECT if(polled, {_POLL}, {_VERDICT}), cluster, NULL, topic, partition, at_ms, end_offset, start_offset, NULL,
        unix_date(day)
    FROM {{samples}}
)
SELECT xxhash64(cluster, topic, partition) AS log, * FROM placed
"""  # noqa: S608 (constants)


def _together(commits: DataFrame, before: DataFrame, samples: DataFrame, owners: DataFrame) -> DataFrame:
    """Join the rows of all frames in one frame, sorted by the hash of the log.

    ``place`` is the place of a commit in the topic of commits, the end of an owner's time, or the log start. A
    tombstone has no ``offset``. A collision of the 64-bit hashes would mix the rows of two logs. The chance of a
    collision in a million logs is 1 in 40 million.
    """
    spark = commits.sparkSession
    rows = spark.sql(_TOGETHER, commits=commits, before=before, samples=samples, owners=owners)
    return rows.repartition("log").sortWithinPartitions("log")


class _Samples(NamedTuple):
    """Log-end samples, sorted by ``log`` and time.

    ``life`` counts the lives of all logs from 1 on: if a log end falls, the topic was created again, and another life
    begins. If a sample ``is_followed``, the next sample of its life came soon enough to interpolate between them, and
    ``next_ms`` and ``next_end`` are its time and log end.
    """

    log: Ints
    at_ms: Ints
    end: Ints
    start: Ints
    life: Ints
    is_followed: Bools
    next_ms: Ints
    next_end: Ints


class _Commits(NamedTuple):
    """Records of commits, sorted by ``reader``, time and place. A tombstone is no offset (``is_offset``)."""

    reader: Ints
    at_ms: Ints
    place: Ints
    offset: Ints
    is_offset: Bools


class _Rows(NamedTuple):
    """The rows of the table, sorted by ``reader`` and minute, at the time ``at_ms``.

    ``has_record`` says whether the minute has a commit or a tombstone, and ``commits`` is the number of commits.
    ``is_sum`` says whether ``offset_sum`` fits into 64 bits.
    """

    reader: Ints
    at_ms: Ints
    has_record: Bools
    commits: Ints
    offset_sum: Ints
    is_sum: Bools
    offset_first: Ints
    offset_last: Ints


_Columns = TypeVar("_Columns", _Samples, _Commits, _Rows)
"""Arrays of equal length."""


def _lags(
    batches: Iterable[pa.RecordBatch], *, since_ms: int, longest_ms: int, topics_read: GroupTopics
) -> Iterator[pa.RecordBatch]:
    for table in whole_keys(batches, "log", _ROWS_AT_ONCE):
        for part in _parts(table):
            yield from _lags_of_logs(part, since_ms, longest_ms, topics_read).to_batches()


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    """Yield tables of about `_READERS_AT_ONCE` readers: all samples, with the rows of some groups."""
    log, group = ints(table, "log"), _groups(table)
    readers = sum(len(np.unique(group[each])) for each in np.split(np.arange(len(log)), np.flatnonzero(begins(log))))
    parts = readers // _READERS_AT_ONCE + 1
    for part in range(parts):
        yield table.filter(pa.array((group < 0) | (group % parts == part))) if parts > 1 else table


def _lags_of_logs(table: pa.Table, since_ms: int, longest_ms: int, topics_read: GroupTopics) -> pa.Table:
    """Make the rows of some logs. An array ``has_…`` says where the number is known."""
    log, kind = np.cumsum(begins(ints(table, "log"))) - 1, ints(table, "kind")
    samples = _samples(table, log, np.flatnonzero(kind >= _POLL), longest_ms)
    reader, first = _readers(table, log, np.flatnonzero(kind <= _OWNER))
    names, log_of = table.select(PARTITION).take(pa.array(first)), log[first]
    commits = _commits(table, reader, np.flatnonzero(kind == _COMMIT))
    rows = _minutes(commits, samples, log_of, since_ms)

    committed = _at(commits, _newest(commits.reader, commits.at_ms, rows.reader, rows.at_ms))
    owner = _owner_rows(table, reader, np.flatnonzero(kind == _OWNER), rows)
    is_forgotten = ~committed.is_offset | (rows.at_ms - committed.at_ms > FORGOTTEN // _MS)
    kept = np.flatnonzero((owner >= 0) | rows.has_record | ~is_forgotten)
    rows, committed, owner = _at(rows, kept), _at(committed, kept), owner[kept]

    seen = _at(samples, _newest(samples.log, samples.at_ms, log_of[rows.reader], rows.at_ms))
    end, has_end = _log_end(seen, committed, rows.at_ms, longest_ms)
    position = np.maximum(committed.offset, seen.start)
    has_both = has_end & committed.is_offset
    unread, fits = _minus(end, position)
    lag, has_lag = np.where(end < position, 0, unread), has_both & (fits | (end < position))
    life = np.where(committed.is_offset, seen.life, 0)
    crossed = _at(samples, _newest(samples.life, samples.end, life, position))
    seconds, has_seconds = _seconds_since(crossed, position, rows.at_ms)
    is_read = has_lag & (lag == 0)
    seconds, has_seconds = np.where(is_read, 0.0, seconds), has_seconds | is_read
    is_observed = is_read | ((crossed.life > 0) & (crossed.end == position))

    is_polled_later = seen.is_followed | (seen.at_ms > committed.at_ms)
    polled = np.where(seen.is_followed, seen.next_end, seen.end)
    is_beyond = has_both & is_polled_later & (polled < committed.offset)
    is_unset = ~committed.is_offset & (owner >= 0)
    state = np.select([_is_left(names, topics_read, rows, committed), is_beyond, is_unset], [1, 2, 3])
    has_lag, has_seconds = has_lag & (state == 0), has_seconds & (state == 0)

    no_offset, no_commit = ~committed.is_offset, rows.commits == 0
    columns = {
        "minute": _time(rows.at_ms - rows.at_ms % _MINUTE_MS),
        "as_of": _time(rows.at_ms),
        "committed_offset": pa.array(committed.offset, mask=no_offset),
        "committed_at": _time(committed.at_ms, no_offset),
        "end_offset": pa.array(end, mask=~has_end),
        "lag": pa.array(lag, mask=~has_lag),
        "lag_seconds": pa.array(seconds, mask=~has_seconds),
        "method": pa.array(_METHODS).take(pa.array(np.select([~has_seconds, is_observed], [0, 1], 2))),
        "commits": pa.array(rows.commits),
        "negative": pa.array((has_both & (end < committed.offset)).astype(np.int64)),
        "owner": table.column("owner").take(pa.array(owner, mask=owner < 0)),
        "start_offset": pa.array(seen.start, mask=(seen.life == 0) | (seen.start == _NO_START)),
        "state": pa.array(_STATES).take(pa.array(state)),
        "offset_sum": pa.array(rows.offset_sum, mask=no_commit | ~rows.is_sum),
        "offset_first": pa.array(rows.offset_first, mask=no_commit),
        "offset_last": pa.array(rows.offset_last, mask=no_commit),
    }
    named = names.take(pa.array(rows.reader))
    made = pa.table({name: named.column(name) for name in PARTITION} | columns)
    return made.select(columns_of(PARTITION_LAG_MINUTE))


def _samples(table: pa.Table, log: Ints, at: Ints, longest_ms: int) -> _Samples:
    """Select the samples that count from the rows ``at``.

    If a partition was polled on a day, that day's verdicts give no samples of the partition. Of several log ends at one
    time, the highest counts. The log end of a verdict can be one refresh old. So a verdict's log end is left out if a
    sample of the minute before it is higher.
    """
    is_poll = ints(table, "kind") == _POLL
    at_ms, end, day = (ints(table, name) for name in ("at_ms", "offset", "day"))
    log_day = 2 * log + day - day[at].min(initial=0)
    at = at[is_poll[at] | ~np.isin(log_day[at], log_day[at][is_poll[at]])]
    at = at[np.lexsort((end[at], is_poll[at], at_ms[at], log[at]))]
    at = at[_ends(log[at], at_ms[at])]
    at = at[is_poll[at] | ~_is_overtaken(log[at], at_ms[at], end[at])]
    log, at_ms, end = log[at], at_ms[at], end[at]
    next_ms, next_end = np.roll(at_ms, -1), np.roll(end, -1)
    is_followed = ~_ends(log) & (next_ms - at_ms <= longest_ms) & (next_end >= end)
    life: Ints = np.cumsum(begins(log) | (end < np.roll(end, 1)))
    start = np.where(table.column("place").is_valid().to_numpy(), ints(table, "place"), _NO_START)[at]
    return _Samples(log, at_ms, end, start, life, is_followed, next_ms, next_end)


def _is_overtaken(log: Ints, at_ms: Ints, end: Ints) -> Bools:
    """Whether a log end is below one of the minute before it. A minute can have a sample of each of many groups."""
    is_first, highest, found = begins(log), end.copy(), np.zeros(len(log), np.bool_)
    before = _newest(log, at_ms, log, at_ms - BEHIND_MS - 1)
    begin = np.maximum(before + 1, np.flatnonzero(is_first)[np.cumsum(is_first) - 1])
    count, width = np.arange(len(log)) - begin + 1, 1
    while (count >= width).any():  # ``highest`` is the maximum of ``width`` ends: two of them cover a minute
        of = np.flatnonzero((count >= width) & (count < 2 * width))
        found[of] = np.maximum(highest[of], highest[begin[of] + width - 1]) > end[of]
        highest[width:] = np.maximum(highest[width:], highest[:-width])
        width *= 2
    return found


def _groups(table: pa.Table) -> Ints:
    """Number the groups from 0 on. A sample has -1."""
    groups: Ints = table.column("consumer").dictionary_encode().combine_chunks().indices.fill_null(-1).to_numpy()
    return groups.astype(np.int64)


def _readers(table: pa.Table, log: Ints, at: Ints) -> tuple[Ints, Ints]:
    """Number the readers in the rows ``at``. Return the reader of each row, and the first row of each reader."""
    group = _groups(table)[at]
    pairs = log[at] * (group.max(initial=0) + 1) + group
    _, first, numbered = np.unique(pairs, return_index=True, return_inverse=True)
    reader = np.zeros(len(log), np.int64)
    reader[at] = numbered
    return reader, at[first]


def _commits(table: pa.Table, reader: Ints, at: Ints) -> _Commits:
    """Sort the records in the rows ``at``, and take each of them once."""
    at_ms, place = ints(table, "at_ms"), ints(table, "place")
    at = at[np.lexsort((place[at], at_ms[at], reader[at]))]
    at = at[_ends(reader[at], at_ms[at], place[at])]
    is_offset = table.column("offset").is_valid().to_numpy()
    return _Commits(reader[at], at_ms[at], place[at], ints(table, "offset")[at], is_offset[at])


def _minutes(commits: _Commits, samples: _Samples, log_of: Ints, since_ms: int) -> _Rows:
    """Make a row for each reader and minute with a record or, at the time of the newest one, a sample of its log."""
    with_records = _minutes_with_records(commits, since_ms)
    at = np.flatnonzero(samples.at_ms >= since_ms)
    at = at[_ends(samples.log[at], samples.at_ms[at] // _MINUTE_MS)]
    begin, stop = (np.searchsorted(samples.log[at], log_of, side) for side in ("left", "right"))
    number = stop - begin
    reader = np.repeat(np.arange(len(log_of)), number)
    sampled_ms = samples.at_ms[at][np.arange(len(reader)) + np.repeat(stop - np.cumsum(number), number)]

    count = len(with_records.reader)
    readers, at_ms = np.append(with_records.reader, reader), np.append(with_records.at_ms, sampled_ms)
    row = np.append(np.arange(count), np.full(len(reader), -1))
    order = np.lexsort((row < 0, at_ms // _MINUTE_MS, readers))
    order = order[begins(readers[order]) | begins(at_ms[order] // _MINUTE_MS)]
    return _at(with_records, row[order])._replace(reader=readers[order], at_ms=at_ms[order])


def _minutes_with_records(commits: _Commits, since_ms: int) -> _Rows:
    """Sum up the records of each minute. "First" and "last" mean the order in the log: a clock may be wrong."""
    commits = _at(commits, np.flatnonzero(commits.at_ms >= since_ms))
    is_first = begins(commits.reader) | begins(commits.at_ms // _MINUTE_MS)
    minute, starts = np.cumsum(is_first) - 1, np.flatnonzero(is_first)
    newest_record = np.flatnonzero(_ends(minute))

    # The sum of the upper and of the lower halves of 64-bit numbers cannot overflow.
    offset = np.where(commits.is_offset, commits.offset, 0)
    upper, lower = (np.add.reduceat(half, starts) for half in (offset >> 32, offset & 0xFFFF_FFFF))
    upper += lower >> 32
    is_sum = (upper >= -(2**31)) & (upper < 2**31)

    in_log = np.flatnonzero(commits.is_offset)
    in_log = in_log[np.lexsort((commits.place[in_log], minute[in_log]))]
    first, last = (np.zeros(len(starts), np.int64) for _ in range(2))
    for found, at in ((first, in_log[begins(minute[in_log])]), (last, in_log[_ends(minute[in_log])])):
        found[minute[at]] = commits.offset[at]
    return _Rows(
        commits.reader[newest_record],
        commits.at_ms[newest_record],
        np.ones(len(starts), np.bool_),
        np.add.reduceat(commits.is_offset.astype(np.int64), starts),
        (upper << 32) + (lower & 0xFFFF_FFFF),
        is_sum,
        first,
        last,
    )


def _owner_rows(table: pa.Table, reader: Ints, at: Ints, rows: _Rows) -> Ints:
    """Return the input row with the owner at each row's time, or -1."""
    at_ms, until_ms = ints(table, "at_ms"), np.append(ints(table, "place"), 0)
    at = np.append(at[np.lexsort((at_ms[at], reader[at]))], -1)
    found = at[_newest(reader[at[:-1]], at_ms[at[:-1]], rows.reader, rows.at_ms)]
    return np.where(rows.at_ms < until_ms[found], found, -1)


def _log_end(seen: _Samples, committed: _Commits, at_ms: Ints, longest_ms: int) -> tuple[Ints, Bools]:
    """Return the log ends at the rows' times. ``seen`` are the newest samples before.

    Between two samples, the log end is interpolated, as if the log grew evenly. It is at least the committed offset,
    because the log had reached that offset. After the last sample, its log end counts for ``longest_ms``.
    """
    grown, fits = _minus(seen.next_end, seen.end)
    passed_ms, span_ms = at_ms - seen.at_ms, seen.next_ms - seen.at_ms
    share = np.divide(passed_ms, span_ms, out=np.zeros(len(at_ms)), where=seen.is_followed)
    even = seen.end + np.floor(share * grown + 0.5).astype(np.int64)
    between = np.minimum(np.where(committed.is_offset, np.maximum(even, committed.offset), even), seen.next_end)
    is_fresh = (seen.life > 0) & (passed_ms <= longest_ms)
    return np.where(seen.is_followed, between, seen.end), np.where(seen.is_followed, fits, is_fresh)


def _seconds_since(crossed: _Samples, position: Ints, at_ms: Ints) -> tuple[Floats, Bools]:
    """Return how long before ``at_ms`` the log end was at the position. ``crossed`` are the last samples not above it.

    It is unknown without a sample on both sides, and if the difference of two log ends exceeds 64 bits.
    """
    grown, fits = _minus(crossed.next_end, crossed.end)
    since, also_fits = _minus(position, crossed.end)
    # A sample after the row is on both sides only if the lag is unknown.
    is_known = crossed.is_followed & (crossed.at_ms <= at_ms) & (grown > 0) & fits & also_fits
    share = np.divide(since, grown, out=np.zeros(len(at_ms)), where=is_known)
    ended_ms = crossed.at_ms + share * (crossed.next_ms - crossed.at_ms)
    seconds = (at_ms - ended_ms) / 1000
    return np.maximum(np.floor(seconds * 1000 + 0.5) / 1000, 0.0), is_known


def _is_left(names: pa.Table, topics_read: GroupTopics, rows: _Rows, committed: _Commits) -> Bools:
    """Whether the group has left the topic at each row's time, and nobody has committed since."""
    readers = zip(*(names.column(name).to_pylist() for name in (*GROUP, "topic")), strict=True)
    left = [
        (reader, *times)
        for reader, (cluster, consumer, topic) in enumerate(readers)
        for times in left_times(topics_read.get((cluster, consumer), ()), topic)
    ]
    reader, from_ms, until_ms, since_ms = np.array(left, np.int64).reshape(-1, 4).T
    found = _newest(reader, from_ms, rows.reader, rows.at_ms)
    until_ms, since_ms = (np.append(times, 0)[found] for times in (until_ms, since_ms))
    silent_ms = rows.at_ms - np.maximum(since_ms, committed.at_ms)
    return committed.is_offset & (rows.at_ms < until_ms) & (silent_ms >= _LEFT_AFTER_MS)


def left_times(read: Sequence[TopicsRead], topic: str) -> Iterator[tuple[int, int, int]]:
    """Yield when a group's members read other topics, but not this one: ``from_ms``, ``until_ms``, ``since_ms``.

    ``since_ms`` is when a member last read the topic, or when members first read others. A topic that was left for long
    enough until then stays left while the group has no members.
    """
    with_members, since_ms, unread_ms = [each for each in read if each.topics], None, 0
    for each, later in zip_longest(with_members, with_members[1:]):
        if topic in each.topics:
            since_ms, unread_ms = each.until_ms, 0
            continue
        since_ms = each.from_ms if since_ms is None else since_ms
        unread_ms += each.until_ms - each.from_ms
        next_ms = later.from_ms if later else FOREVER_MS
        yield each.from_ms, next_ms if unread_ms >= _LEFT_AFTER_MS else each.until_ms, since_ms


def _newest(part: Ints, place: Ints, of_part: Ints, asked: Ints) -> Ints:
    """Return the index of each part's last entry whose place is at most the asked one, or -1: `newest` for any numbers.

    Numbers of 64 bits do not fit into one number with the part, so their ranks are compared.
    """
    _, rank = np.unique(np.append(place, asked), return_inverse=True)
    return newest(part, rank[: len(place)], of_part, rank[len(place) :])


def _at(columns: _Columns, index: Ints) -> _Columns:
    """Take the elements at the indices: 0 and False for the index -1."""
    taken: Iterator[Any] = (np.append(column, column.dtype.type(0))[index] for column in columns)
    return type(columns)(*taken)


def _ends(*parts: Ints) -> Bools:
    """Mark the last element of each run of equal numbers."""
    is_first = np.logical_or.reduce([begins(part) for part in parts])
    return np.append(is_first[1:], True)[: len(is_first)]


def _minus(one: Ints, other: Ints) -> tuple[Ints, Bools]:
    """Return the differences, and whether each of them fits into 64 bits."""
    difference = one - other
    return difference, (one ^ other) & (one ^ difference) >= 0


def _time(at_ms: Ints, mask: Bools | None = None) -> pa.Array:
    return pa.array(at_ms * 1000, pa.timestamp("us", "UTC"), mask=mask)
