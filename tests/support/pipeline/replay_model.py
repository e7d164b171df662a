"""Commits and log ends as a few rows, judged by the reference model one moment after the other."""

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from karrot.burrow.rules import evaluate_partition
from karrot.burrow.storage import Storage
from karrot.event import LogEnd, Status
from karrot.pipeline.replay.arrays import CommitArrays, LogEndArrays, Segments, stored
from karrot.pipeline.replay.rule_sets import RuleSet
from karrot.pipeline.replay.verdicts import VerdictTimes, evaluate

__all__ = ["Commit", "PartitionHistory", "verdicts_by_arrays", "verdicts_by_model"]

NEVER_MS = 2**60
EXPIRE = 1_000


class Commit(NamedTuple):
    seen_ms: int
    order: int
    offset: int
    timestamp_ms: int


class PartitionHistory(NamedTuple):
    """One consumer's commits of one partition as they arrived, and the partition's log ends."""

    commits: Sequence[Commit]
    ends: Sequence[LogEnd]


def verdicts_by_model(
    stream: PartitionHistory, rules: RuleSet, span: VerdictTimes, *, expire_group: int = EXPIRE
) -> dict[int, Status]:
    """The verdict at each moment at which Burrow would know the partition."""
    storage = Storage(intervals=rules.intervals, min_distance=rules.min_distance, expire_group=expire_group)
    waiting: list[Commit | LogEnd] = sorted([*stream.ends, *stream.commits], key=itemgetter(0))
    verdicts: dict[int, Status] = {}
    for now in range(span.first, span.last + 1, span.every):
        while waiting and waiting[0][0] <= now * 1000:
            _tell(storage, waiting.pop(0))
        # Asked by itself, a group would be forgotten: that is the business of who cuts streams into segments.
        for group in storage.groups():
            storage._groups[group].last_commit_ms = NEVER_MS
            for tracked in storage.fetch(group, now) or ():
                told = evaluate_partition(
                    tracked, now, allowed_lag=rules.allowed_lag, minimum_complete=rules.minimum_complete
                )
                verdicts[now] = Status[told.status_text]
    return verdicts


def _tell(storage: Storage, happened: Commit | LogEnd) -> None:
    match happened:
        case LogEnd(_, offset):
            storage.put_log_end("t", 0, offset, partition_count=1)
        case Commit(seen_ms, order, offset, timestamp_ms):
            storage.put_commit("g", "t", 0, offset, order=order, timestamp_ms=timestamp_ms, now=seen_ms // 1000)


def verdicts_by_arrays(
    streams: Sequence[PartitionHistory], rule_sets: Sequence[RuleSet], span: VerdictTimes, *, expire_group: int = EXPIRE
) -> list[list[dict[int, Status]]]:
    """The same by `evaluate`, all streams and sets of rules at once: a list for each set, of a dict for each stream."""
    ends, segments = _ends(streams), Segments(np.arange(len(streams)), np.full(len(streams), NEVER_MS))
    kept = stored(_commits(streams), ends, segments, expire_group)
    verdicts = evaluate(kept, ends, segments, rule_sets, span)
    found: list[list[dict[int, Status]]] = [[{} for _ in streams] for _ in rule_sets]
    for of_set, codes in zip(found, verdicts.codes, strict=True):
        for segment, at, code in zip(verdicts.segment, verdicts.at, codes, strict=True):
            of_set[segment][int(at)] = Status(code)
    return found


def _commits(streams: Sequence[PartitionHistory]) -> CommitArrays:
    rows = [(number, *commit, 0) for number, stream in enumerate(streams) for commit in stream.commits]
    return CommitArrays(*_columns(rows, len(CommitArrays._fields)))


def _ends(streams: Sequence[PartitionHistory]) -> LogEndArrays:
    rows = [(number, *end) for number, stream in enumerate(streams) for end in stream.ends]
    return LogEndArrays(*_columns(rows, len(LogEndArrays._fields)))


def _columns(rows: Iterable[Sequence[int]], width: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.array(list(rows), np.int64).reshape(-1, width).T.copy()
