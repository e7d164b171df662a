"""Replays Burrow's rules over commits and log ends: finds when each partition's status changed and when it stood still.

One task gets all rows of a topic's partition: the log ends and the commits of all groups. So a group with a thousand
partitions can use many tasks, and no task needs the log ends of another task. The status of a group follows from the
sum of the changes in its partitions.

A verdict depends on the window of commits, on the log end and on the time. Only a commit changes a window. So each
window is computed once for all rule sets with the same window settings. If a segment's commits are out of log order,
the reference model computes the segment's windows. A group is a number, because a name on each commit would be slow.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from karrot.burrow import rules
from karrot.event import Status
from karrot.pipeline.schemas_and_conversions import GROUP, INT, LONG, struct
from karrot.pipeline.window_arrays.arrow_batches import ints, whole_keys
from karrot.pipeline.window_arrays.judge_windows import (
    Bools,
    Codes,
    CommitArrays,
    Ints,
    LogEndArrays,
    Segments,
    Slots,
    Windows,
    begins,
    beyond_end,
    facts_of,
    judged,
    newest,
    odd_segments,
    recent_least,
    slots_of,
    stored,
    unread_end,
)
from karrot.pipeline.window_arrays.rule_set_parser import RuleSet

_AT_ONCE = 65_536  # small enough for the processor's cache


def windows(commits: CommitArrays, at: Ints, *, intervals: int, min_distance: int) -> Windows:
    """Compute the window after each commit in ``at``, which has ascending indices. ``min_distance`` is in seconds."""
    slots = slots_of(commits, min_distance * 1000)
    blocks = [_facts(commits, slots, block, intervals) for block in np.array_split(at, len(at) // _AT_ONCE + 1)]
    found = Windows(*(np.concatenate(column) for column in zip(*blocks, strict=True)))
    odd = odd_segments(commits)
    if odd.any():
        _ask_the_model(found, commits, at, odd, partial(rules.Window, intervals, min_distance))
    return found


def _facts(commits: CommitArrays, slots: Slots, at: Ints, intervals: int) -> Windows:
    newest, first = slots.of[at][:, None], slots.first_of_segment[at][:, None]
    slot = np.maximum(newest - np.arange(intervals - 1, -1, -1), first)
    commit = np.where(slot == newest, at[:, None], slots.last[slot])
    offset, end = commits.offset[commit], commits.end[commit]
    lag = np.maximum(0, end - offset)
    first_ms, last_ms = slots.timestamp_ms[slot[:, 0]], slots.timestamp_ms[slot[:, -1]]
    return Windows.of(offset, lag, first_ms, last_ms, np.minimum(intervals, (newest - first)[:, 0] + 1))


def _ask_the_model(
    found: Windows, commits: CommitArrays, at: Ints, odd: Bools, new_window: Callable[[], rules.Window]
) -> None:
    """Replace the facts of segments with commits out of order. The new facts come from the reference model."""
    rows = np.flatnonzero(odd[commits.segment[at]])
    for segment in np.unique(commits.segment[at[rows]]):
        seen, window = int(np.searchsorted(commits.segment, segment)), new_window()
        for row in rows[commits.segment[at[rows]] == segment]:
            until = int(at[row]) + 1
            for each in range(seen, until):
                window.add(
                    int(commits.offset[each]),
                    order=int(commits.order[each]),
                    timestamp_ms=int(commits.timestamp_ms[each]),
                    broker_offset=int(commits.end[each]),
                )
            seen = until
            for name, value in facts_of([slot for slot in window.slots if slot]).items():
                getattr(found, name)[row] = value


class VerdictTimes(NamedTuple):
    """The times of verdicts, ``every`` seconds apart, from ``first`` to ``last``, both included.

    ``first`` and ``last`` are epoch seconds, and multiples of ``every``.
    """

    first: int
    last: int
    every: int


class Verdicts(NamedTuple):
    """Verdicts, sorted by ``segment`` and then by time. ``codes`` has one array for each rule set."""

    segment: Ints
    at: Ints
    codes: Sequence[Codes]


def evaluate(
    commits: CommitArrays, ends: LogEndArrays, segments: Segments, rule_sets: Sequence[RuleSet], span: VerdictTimes
) -> Verdicts:
    """Judge each segment of `stored` commits at each time of ``span`` until the segment's group is gone.

    A verdict uses only records that were seen up to the verdict's time.
    """
    starts = np.flatnonzero(begins(commits.segment))
    segment = commits.segment[starts]
    first = np.maximum(-(-commits.seen_ms[starts] // (span.every * 1000)) * span.every, span.first)
    last = np.minimum(-(-segments.until_ms[segment] // 1000) - 1, span.last)
    number = np.maximum(0, (last - first) // span.every + 1)
    segment = np.repeat(segment, number)
    nth = np.arange(len(segment)) - np.repeat(np.cumsum(number) - number, number)
    now = np.repeat(first, number) + nth * span.every
    if not len(now):
        return Verdicts(segment, now, [np.zeros(0, np.int8) for _ in rule_sets])
    newest_commit = newest(commits.segment, commits.seen_ms, segment, now * 1000)
    newest_end = newest(ends.source, ends.observed_ms, segments.source[segment], now * 1000)
    # Successive verdicts share a window if no commit came between the verdicts.
    is_other = begins(newest_commit)
    of_verdict, kept = np.cumsum(is_other) - 1, {}
    for intervals, min_distance in {(one.intervals, one.min_distance) for one in rule_sets}:
        found = windows(commits, newest_commit[is_other], intervals=intervals, min_distance=min_distance)
        kept[intervals, min_distance] = Windows(*(column[of_verdict] for column in found))
    least = {each: recent_least(ends, each)[newest_end] for each in {one.intervals for one in rule_sets}}
    codes = []
    for one in rule_sets:
        window = kept[one.intervals, one.min_distance]
        is_beyond = beyond_end(ends, newest_end, window.offset, commits.seen_ms[newest_commit])
        of_set = judged(window, unread_end(ends, newest_end, window.offset), least[one.intervals], now, one)
        codes.append(np.where(is_beyond, np.int8(Status.ERR), of_set))
    return Verdicts(segment, now, codes)


STOOD_STILL = -1
"""The value of ``rules`` for stand-stills. In these rows, the partitions that stood still count as bad."""

CHANGES = struct(rules=INT, group_key=LONG, at_ms=LONG, known=INT, warn=INT, err=INT)
"""Changes at the time ``at_ms`` in the counts of a group's partitions.

``known`` counts all partitions, ``warn`` those with WARN, and ``err`` those with STOP, STALL or REWIND. ``rules`` is
the index of the rule set.
"""

_ROWS_AT_ONCE = 200_000
_VERDICTS_AT_ONCE = 1_000_000
_NEVER_MS = 2**60
_UNSEEN_MS = 600_000
"""If a partition has no log-end sample for this time, its topic counts as deleted."""

Deaths = Mapping[int, Sequence[int]]


class ReplayOptions(NamedTuple):
    """The options of a replay. ``deaths`` maps the key of a group to the ascending times when the group was gone."""

    rule_sets: Sequence[RuleSet]
    span: VerdictTimes
    expire_group: int
    stood_ms: int
    deaths: Deaths


def together(commits: DataFrame, ends: DataFrame) -> DataFrame:
    """Join the rows of ``commits`` and ``ends`` in one frame for `changes`, sorted by the hash of the partition.

    The frame has only numbers. ``place`` is the offset of a commit's record, or the log start. Spark sorts only by the
    hash, because sorting a partition's rows later as arrays takes less than a tenth of the time. A collision of the
    64-bit hashes would mix the rows of two partitions. The chance of a collision in a million partitions is 1 in 40
    million.
    """
    rows = commits.sparkSession.sql(_TOGETHER, commits=commits, ends=ends)
    return rows.repartition("source_key").sortWithinPartitions("source_key")


_TOGETHER = """
SELECT xxhash64(cluster, topic, partition) AS source_key, xxhash64(cluster, consumer) AS group_key, log_offset AS place,
    log_ts_ms AS at_ms, offset, commit_ts_ms AS timestamp_ms
FROM {commits} WHERE NOT tombstone AND offset IS NOT NULL AND commit_ts_ms IS NOT NULL
UNION ALL
SELECT xxhash64(cluster, topic, partition), CAST(NULL AS BIGINT), start_offset, observed_at_ms, end_offset,
    observed_at_ms
FROM {ends} WHERE end_offset IS NOT NULL
"""


def changes(rows: DataFrame, asked: ReplayOptions) -> DataFrame:
    return rows.mapInArrow(partial(_replay, asked), CHANGES)


def _replay(asked: ReplayOptions, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for table in whole_keys(batches, "source_key", _ROWS_AT_ONCE):
        yield from _replayed(table, asked)


def _replayed(table: pa.Table, asked: ReplayOptions) -> Iterator[pa.RecordBatch]:
    source = np.cumsum(begins(ints(table, "source_key"))) - 1
    is_end = table.column("group_key").is_null().to_numpy()
    ends = _ends(table, source, np.flatnonzero(is_end))
    groups, commits, segments = _segments(table, source, np.flatnonzero(~is_end), ends, asked.deaths)
    kept = stored(commits, ends, segments, asked.expire_group)
    for first, few_commits, few_segments in _few_at_a_time(kept, segments, asked.span):
        found = evaluate(few_commits, ends, few_segments, asked.rule_sets, asked.span)
        for number, codes in enumerate(found.codes):
            yield _batch(groups[first:], number, _of_verdicts(found, codes, asked.span))
    yield _batch(groups, STOOD_STILL, _of_standstills(kept, ends, segments, asked))


def _few_at_a_time(
    commits: CommitArrays, segments: Segments, span: VerdictTimes
) -> Iterator[tuple[int, CommitArrays, Segments]]:
    """Yield chunks of segments: the index of the first segment, the commits of the segments, and the segments.

    A chunk is limited by verdicts, not by commits, because every segment is judged at every interval.
    """
    at_once = max(1, _VERDICTS_AT_ONCE // ((span.last - span.first) // span.every + 1))
    for first in range(0, len(segments.source), at_once):
        begin, stop = np.searchsorted(commits.segment, [first, first + at_once])
        few = CommitArrays(*(column[begin:stop] for column in commits))
        numbered = few._replace(segment=few.segment - first)
        yield first, numbered, Segments(*(column[first : first + at_once] for column in segments))


def _ends(table: pa.Table, source: Ints, rows: Ints) -> LogEndArrays:
    observed_ms = ints(table, "at_ms")
    rows = rows[np.lexsort((observed_ms[rows], source[rows]))]
    # Drop samples that were stored twice.
    rows = rows[begins(source[rows]) | begins(observed_ms[rows])]
    return LogEndArrays(source[rows], observed_ms[rows], ints(table, "offset")[rows], ints(table, "place")[rows])


def _segments(
    table: pa.Table, source: Ints, rows: Ints, ends: LogEndArrays, deaths: Deaths
) -> tuple[Ints, CommitArrays, Segments]:
    """Return the key of each segment's group, the commits by segment, and the segments.

    A segment ends where the group changes and where the group was gone. Commits before the first log-end sample count
    as seen at the time of that sample, as if Burrow had started then.
    """
    group, place = ints(table, "group_key"), ints(table, "place")
    rows = rows[np.lexsort((place[rows], group[rows], source[rows]))]
    source, group, place = source[rows], group[rows], place[rows]
    at_ms, offset, timestamp_ms = (ints(table, name)[rows] for name in ("at_ms", "offset", "timestamp_ms"))
    is_first = begins(source) | begins(group)
    first_ms, last_ms = _sampled_at(ends, source)
    seen_ms = _never_back(is_first, np.maximum(at_ms, first_ms))
    until_ms = np.minimum(_deaths(group, np.flatnonzero(is_first), seen_ms, deaths), last_ms + _UNSEEN_MS)
    is_first |= begins(until_ms)
    segment = np.cumsum(is_first) - 1
    commits = CommitArrays(segment, seen_ms, place, offset, timestamp_ms, end=np.zeros_like(segment))
    return group[is_first], commits, Segments(source[is_first], until_ms[is_first])


def _sampled_at(ends: LogEndArrays, source: Ints) -> tuple[Ints, Ints]:
    sources = np.arange(source[-1] + 1 if len(source) else 0)
    first, beyond = (np.searchsorted(ends.source, sources, side) for side in ("left", "right"))
    first_ms, last_ms = (np.append(ends.observed_ms, 0)[at] for at in (first, beyond - 1))
    return first_ms[source], last_ms[source]


def _deaths(group: Ints, starts: Ints, seen_ms: Ints, deaths: Deaths) -> Ints:
    """Return, for each commit, the next time at which the commit's group was gone."""
    until_ms = np.full(len(seen_ms), _NEVER_MS)
    if not deaths:
        return until_ms
    for start, stop in zip(starts, [*starts[1:], len(seen_ms)], strict=True):
        died = np.array([*deaths.get(int(group[start]), ()), _NEVER_MS])
        until_ms[start:stop] = died[np.searchsorted(died, seen_ms[start:stop])]
    return until_ms


def _never_back(is_first: Bools, at_ms: Ints) -> Ints:
    """Make the times ascend within each group. Times can decrease if the clock of a record's broker was behind."""
    if not len(at_ms):
        return at_ms
    base = at_ms.min()
    ahead = (np.cumsum(is_first) - 1) * (at_ms.max() - base + 1)
    seen: Ints = np.maximum.accumulate(at_ms - base + ahead) - ahead + base
    return seen


class _Steps(NamedTuple):
    segment: Ints
    at_ms: Ints
    known: Codes
    warn: Codes
    err: Codes


def _of_verdicts(found: Verdicts, codes: Codes, span: VerdictTimes) -> _Steps:
    def step(low: Status, high: Status) -> Codes:
        is_in, was_in = ((low <= each) & (each <= high) for each in (after, before))
        return is_in.astype(np.int8) - was_in.astype(np.int8)

    is_first = begins(found.segment)
    before = np.where(is_first, Status.NOTFOUND, np.roll(codes, 1)).astype(np.int8)
    steps = np.flatnonzero(codes != before)
    last = np.append(np.flatnonzero(is_first)[1:], len(codes)) - 1 if len(codes) else np.zeros(0, np.int64)
    last = last[(found.at[last] + span.every) <= span.last]
    gone = np.full(len(last), Status.NOTFOUND, np.int8)
    after, before = np.append(codes[steps], gone), np.append(before[steps], codes[last])
    return _Steps(
        np.append(found.segment[steps], found.segment[last]),
        np.append(found.at[steps], found.at[last] + span.every) * 1000,
        step(Status.OK, Status.REWIND),
        step(Status.WARN, Status.WARN),
        step(Status.ERR, Status.REWIND),
    )


def _of_standstills(commits: CommitArrays, ends: LogEndArrays, segments: Segments, asked: ReplayOptions) -> _Steps:
    first_ms, last_ms = asked.span.first * 1000, asked.span.last * 1000
    stood = stalls(commits, ends, segments, at_least_ms=asked.stood_ms, until_ms=last_ms)
    late = np.flatnonzero(stood.to_ms > first_ms)
    from_ms, to_ms = np.maximum(stood.from_ms[late], first_ms), stood.to_ms[late]
    up = np.repeat(np.array([1, -1], np.int8), len(late))
    return _Steps(np.tile(stood.segment[late], 2), np.append(from_ms, to_ms), up, np.zeros_like(up), up)


class Stalls(NamedTuple):
    """Stand-stills by segment, in epoch milliseconds."""

    segment: Ints
    from_ms: Ints
    to_ms: Ints


def stalls(commits: CommitArrays, ends: LogEndArrays, segments: Segments, *, at_least_ms: int, until_ms: int) -> Stalls:
    """Find the stand-stills of at least ``at_least_ms``, up to ``until_ms``, among `stored` commits.

    A stand-still begins with the first commit of an offset or, if this commit had no lag, when the log end passed the
    offset. The stand-still ends with the commit of another offset, or when the group is gone.
    """
    is_first = begins(commits.segment)
    moves = np.flatnonzero(is_first | begins(commits.offset))
    segment = commits.segment[moves]
    over = np.minimum(segments.until_ms[segment], until_ms)
    to_ms = np.where(np.append(segment[1:] == segment[:-1], False), np.roll(commits.seen_ms[moves], -1), over)
    from_ms = commits.seen_ms[moves].copy()
    # Search the log ends only for the few candidates that are long enough and began without lag.
    long = to_ms - from_ms >= at_least_ms
    for each in np.flatnonzero(long & (commits.lag[moves] == 0)):
        source, offset = int(segments.source[segment[each]]), int(commits.offset[moves[each]])
        from_ms[each] = _grown_at(ends, source, offset, int(from_ms[each]))
    kept = to_ms - from_ms >= at_least_ms
    return Stalls(segment[kept], from_ms[kept], to_ms[kept])


def _grown_at(ends: LogEndArrays, source: int, offset: int, since_ms: int) -> int:
    """Return when the log end of a source was first beyond an offset; the largest integer if never."""
    begin, stop = np.searchsorted(ends.source, [source, source + 1])
    least = np.maximum(offset, ends.start[begin:stop])
    beyond = (ends.offset[begin:stop] > least) & (ends.observed_ms[begin:stop] > since_ms)
    return int(ends.observed_ms[begin + beyond.argmax()]) if beyond.any() else np.iinfo(np.int64).max


def _batch(groups: Ints, rules: int, steps: _Steps) -> pa.RecordBatch:
    columns = [
        pa.array(np.full(len(steps.at_ms), rules, np.int32)),
        pa.array(groups[steps.segment]),
        pa.array(steps.at_ms),
        *(pa.array(each.astype(np.int32)) for each in (steps.known, steps.warn, steps.err)),
    ]
    return pa.RecordBatch.from_arrays(columns, names=CHANGES.fieldNames())


_STATUSES = """
WITH names AS (SELECT DISTINCT cluster, consumer, xxhash64(cluster, consumer) AS group_key FROM {commits}),
counts AS (
    SELECT rules, group_key, at_ms, sum(sum(known)) OVER so_far AS known, sum(sum(warn)) OVER so_far AS warn,
        sum(sum(err)) OVER so_far AS err
    FROM {changes} GROUP BY rules, group_key, at_ms
    WINDOW so_far AS (PARTITION BY rules, group_key ORDER BY at_ms ROWS UNBOUNDED PRECEDING)
), judged AS (
    SELECT rules, group_key, at_ms,
        CASE WHEN err > 0 THEN 'ERR' WHEN warn > 0 THEN 'WARN' WHEN known > 0 THEN 'OK' END AS status
    FROM counts
), changed AS (
    SELECT *, lag(status) OVER (PARTITION BY rules, group_key ORDER BY at_ms) AS before FROM judged
), runs AS (
    SELECT *, lead(at_ms) OVER (PARTITION BY rules, group_key ORDER BY at_ms) AS next_ms
    FROM changed WHERE NOT status <=> before
)
SELECT /*+ BROADCAST(names) */ rules, cluster, consumer, status, at_ms AS from_ms, coalesce(next_ms, :last_ms) AS to_ms,
    next_ms IS NULL AS is_open
FROM runs JOIN names USING (group_key) WHERE status IS NOT NULL
"""


def statuses(changes: DataFrame, commits: DataFrame, last_ms: int) -> DataFrame:
    """Compute the status runs of each group for each rule set. A group has the status of its worst partition.

    A run lasts until the next change, and the last run (``is_open``) until ``last_ms``. A group that is gone has no
    run. The names of the groups come from ``commits``.
    """
    return changes.sparkSession.sql(_STATUSES, args={"last_ms": last_ms}, changes=changes, commits=commits)


_SILENCES = """
WITH fresh AS (
    SELECT *, ceil(ceil(log_ts_ms / 1000) / :every) * :every AS judged_at
    FROM {commits} WHERE NOT tombstone AND commit_ts_ms >= (floor(log_ts_ms / 1000) - :expire_group) * 1000
), newest AS (
    SELECT cluster, consumer, judged_at, floor(max_by(commit_ts_ms, log_offset) / 1000) AS last_s,
        lead(judged_at, 1, :last + 1) OVER (PARTITION BY cluster, consumer ORDER BY judged_at) AS next_at
    FROM fresh GROUP BY cluster, consumer, judged_at
)
SELECT cluster, consumer, 1000 * gone AS at_ms
FROM (SELECT *, greatest(ceil((last_s + :expire_group + 1) / :every) * :every, judged_at) AS gone FROM newest)
WHERE gone < next_at
"""


def silences(commits: DataFrame, span: VerdictTimes, expire_group: int) -> DataFrame:
    """Find the evaluations in which a group expired. Return their ``cluster``, ``consumer`` and ``at_ms``.

    A group expires if the timestamp of its last-arrived commit is too old. This function assumes that Burrow evaluates
    a group regularly from the group's first commit on.
    """
    args = {"every": span.every, "last": span.last, "expire_group": expire_group}
    return commits.sparkSession.sql(_SILENCES, args=args, commits=commits)


def deletions(members: DataFrame) -> DataFrame:
    """Find the records that delete a group. Return their ``cluster``, ``consumer`` and ``at_ms``."""
    return members.where(F.col("version").isNull()).select(*GROUP, F.col("log_ts_ms").alias("at_ms"))


def by_group(*found: DataFrame) -> dict[int, list[int]]:
    """Collect the ascending times of each group, by the hash of its name. The times are few and fit into memory."""
    moments: dict[int, set[int]] = {}
    for group, at_ms in (row for one in found for row in one.select(F.xxhash64(*GROUP), "at_ms").collect()):
        moments.setdefault(group, set()).add(at_ms)
    return {group: sorted(at) for group, at in moments.items()}
