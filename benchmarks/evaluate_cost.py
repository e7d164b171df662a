"""Measures the cost of a minute of `karrot pipeline offsets --judge burrow` in one bucket, by CPU, without Spark.

Each partition commits every ten seconds. The yardstick is numpy's sort of the same commits by partition and place.

    PYTHONPATH=tests python benchmarks/evaluate_cost.py [--partitions 24000] [--minutes 5]
"""

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import click
import numpy as np

from karrot.burrow.notification_rules import NotifierSettings
from karrot.pipeline.evaluate.bucket_records import NewCommits, NewRecords, take
from karrot.pipeline.evaluate.bucket_state import BucketState, EvaluateRules, LogEnds, Texts, source_key
from karrot.pipeline.evaluate.bucket_verdicts import BucketTask
from karrot.pipeline.window_arrays.judge_windows import Ints, LogEndArrays

T = TypeVar("T")
_OF_A_GROUP, _OF_A_MINUTE = 10, 6
_START_S = 1_800_000_000
_ASKED = EvaluateRules(notifier=NotifierSettings(threshold=2, send_close=True), lists_all=False)


@click.command()
@click.option("--partitions", default=24_000, show_default=True)
@click.option("--minutes", default=5, show_default=True)
def main(partitions: int, minutes: int) -> None:
    """Print the CPU time of each step, and the size of the state."""
    rng = np.random.default_rng(1)
    groups = partitions // _OF_A_GROUP
    number = np.arange(groups * _OF_A_GROUP)
    group, partition = number // _OF_A_GROUP, number % _OF_A_GROUP
    names = np.array([f"consumer-group-{each}" for each in range(groups)], np.object_)
    topics = np.array([f"topic-{each}" for each in range(groups)], np.object_)
    keys = rng.integers(-(2**62), 2**62, (2, groups))
    source = source_key(keys[1][group], partition)
    by_key = np.argsort(source)
    state, content = BucketState.empty(_ASKED.rules.intervals), b""
    for minute in range(minutes):
        now = _START_S + 60 * (minute + 1)
        log_ends = _log_ends(source[by_key], now, topics)
        rows = np.tile(number, _OF_A_MINUTE)
        at_ms = (now - 60 + 10 * np.repeat(np.arange(_OF_A_MINUTE), len(number))) * 1000
        commits = NewCommits(
            keys[0][group[rows]],
            keys[1][group[rows]],
            partition[rows],
            minute * len(rows) + np.arange(len(rows)),
            at_ms // 1000 - _START_S + rng.integers(0, 3, len(rows)),
            at_ms,
            at_ms,
            names[group[rows]],
            topics[group[rows]],
        )
        sort_s, _ = _cpu(partial(np.lexsort, (commits.order, commits.partition, commits.group_key)))
        read_s = 0.0
        if minute:
            read_s, state = _cpu(partial(BucketState.from_bytes, content))
        take_s, state = _cpu(partial(take, state, NewRecords(commits, {}, {}), log_ends, _ASKED))
        judge_s, (state, sent) = _cpu(partial(BucketTask(_ASKED, "c", now * 1000, "batch").judge, state, log_ends))
        write_s, content = _cpu(state.to_bytes)
        total = read_s + take_s + judge_s + write_s
        click.echo(
            f"minute {minute + 1}: read {read_s:.3f}, take {take_s:.3f}, judge {judge_s:.3f}, write {write_s:.3f} s; "
            f"{total / len(number) * 1e6:.1f} us a partition and verdict, {total / len(rows) * 1e6:.2f} us a commit, "
            f"{total / sort_s:.1f} times the sort; {len(sent)} notifications"
        )
    click.echo(f"state: {len(content) / len(number):.0f} bytes a partition")


def _cpu(run: Callable[[], T]) -> tuple[float, T]:
    began = time.process_time()
    result = run()
    return time.process_time() - began, result


def _log_ends(keys: Ints, now: int, topics: Texts) -> LogEnds:
    """Ten log ends of each partition, one for each ten seconds up to now."""
    source = np.repeat(np.arange(len(keys)), 10)
    at_ms = np.tile((now - 100 + 10 * np.arange(10)) * 1000, len(keys))
    ends = LogEndArrays(source, at_ms, at_ms // 1000 - _START_S + 5, np.zeros_like(source))
    return LogEnds(keys, ends, dict.fromkeys(topics, _OF_A_GROUP), {})


if __name__ == "__main__":
    main()
