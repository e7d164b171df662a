"""Defines when a partition is stale, and lists cases with the expected answer.

The stream that alerts and the query over the tables are both tested with these cases.

**The rule.** ``C`` is the offset of a group's newest commit on a partition at or before ``t``. ``since`` is the time of
the first commit in the current run of commits of ``C``; to commit the same offset again does not reset it. ``seen`` is
the time of the newest observed log end of the partition at or before ``t``, and ``E(x)`` the newest log end that was
observed at or before ``x``. The partition is stale at ``t`` for a duration ``D`` if

- there is a ``C``: a tombstone deletes it, and a group that never committed has none;
- it has not moved for ``D``: ``since <= seen - D``;
- for all of that time there was something to read: ``E(seen - D) > C``, and still ``E(seen) > C``.

Time passes with the observed log ends: without them a partition does not become stale. A log that grew within ``D`` is
not enough, because the first message in an hour would make every consumer of a quiet topic stale until it commits. The
time of a commit is that of its record (``log_ts``); in the same millisecond the higher ``log_offset`` counts.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from support.pipeline.row_times import DAY, epoch_ms, second_at

CLUSTER: Final = "prod-eu"
EVALUATED_AT: Final = 600.0
"""When each case is judged, in seconds since midnight."""
STALE_AFTER: Final = 120.0
"""How long an offset must be unchanged, in seconds."""
PARTITION: Final = 3


class Commit(NamedTuple):
    """A commit ``at`` seconds after midnight; without an offset it is a tombstone."""

    at: float
    offset: int | None


class ObservedEnd(NamedTuple):
    """The log end that was observed ``at`` seconds after midnight."""

    at: float
    end: int


class ExpectedStale(NamedTuple):
    """A partition that the rule must call stale: its offset and start, and the newest log end with its time."""

    offset: int
    since: float
    end: int
    seen: float


class Case(NamedTuple):
    """The data of a group and a topic, both called ``name``, and the result of the rule at `EVALUATED_AT`."""

    name: str
    commits: Sequence[Commit]
    log_ends: Sequence[ObservedEnd]
    stale: ExpectedStale | None


def _observed(first: float, last: float, end: int, per_second: float = 0.0, *, every: float = 30) -> list[ObservedEnd]:
    """Return the log ends of a log that ends at ``end`` at the first observation and grows evenly."""
    many = int((last - first) // every) + 1
    return [ObservedEnd(first + every * n, end + round(per_second * every * n)) for n in range(many)]


_GROWS: Final = _observed(0, 600, 0, 1.0)  # one message per second: at 300 s it ends at 300
_RESTS: Final = _observed(0, 600, 150)

CASES: Final[Sequence[Case]] = (
    Case("reads on", [Commit(at, at) for at in range(5, 600, 5)], _GROWS, None),
    Case("stands while the log moves", [Commit(280, 280), Commit(300, 300)], _GROWS, ExpectedStale(300, 300, 600, 600)),
    Case(
        "commits the same again and again",
        [Commit(290, 290), *(Commit(at, 300) for at in range(300, 600, 7))],
        _GROWS,
        ExpectedStale(300, 300, 600, 600),
    ),
    Case("stands at the log end", [Commit(100, 150)], _RESTS, None),
    Case("stands before the end of an idle log", [Commit(100, 149)], _RESTS, ExpectedStale(149, 100, 150, 600)),
    Case("stands almost long enough", [Commit(470, 440), Commit(480.001, 450)], _GROWS, None),
    Case("stands just long enough", [Commit(470, 440), Commit(480, 450)], _GROWS, ExpectedStale(450, 480, 600, 600)),
    Case("first commit is young", [Commit(590, 10)], _GROWS, None),
    Case("a message has just arrived", [Commit(10, 150)], [*_observed(0, 570, 150), ObservedEnd(600, 151)], None),
    Case(
        "a message waits long enough",
        [Commit(10, 150)],
        [*_observed(0, 450, 150), *_observed(480, 600, 151)],
        ExpectedStale(150, 10, 151, 600),
    ),
    Case("was never committed", [], _GROWS, None),
    Case("log end never observed", [Commit(100, 10)], [], None),
    Case("moved after the last log end", [Commit(300, 300), Commit(595, 301)], _observed(0, 570, 0, 1.0), None),
    Case("log ends stop too early", [Commit(300, 290)], _observed(0, 400, 0, 1.0), None),
    Case("log ends stop late enough", [Commit(100, 90)], _observed(0, 400, 0, 1.0), ExpectedStale(90, 100, 390, 390)),
    Case("log ends start too late", [Commit(100, 90)], _observed(500, 600, 500, 1.0, every=20), None),
    Case("was deleted", [Commit(100, 90), Commit(400, None)], _GROWS, None),
    Case("was deleted and committed again", [Commit(100, 90), Commit(550, None), Commit(560, 90)], _GROWS, None),
    Case("was rewound just now", [Commit(100, 90), Commit(550, 40)], _GROWS, None),
    Case("was rewound and stands", [Commit(100, 90), Commit(300, 40)], _GROWS, ExpectedStale(40, 300, 600, 600)),
    Case("went back and forth", [Commit(100, 90), Commit(550, 80), Commit(560, 90)], _GROWS, None),
    Case("topic was recreated", [Commit(100, 1_000)], [*_observed(0, 300, 2_000), *_observed(330, 600, 0)], None),
    Case(
        "recreated topic has just grown beyond the offset",
        [Commit(100, 1_000)],
        [*_observed(0, 300, 2_000), *_observed(330, 510, 0), *_observed(540, 600, 1_500)],
        None,
    ),
    Case(
        "later records do not count",
        [Commit(300, 290), Commit(601, 291)],
        [*_GROWS, ObservedEnd(630, 700)],
        ExpectedStale(290, 300, 600, 600),
    ),
    Case(
        "last commit of a millisecond counts",
        [Commit(300, 290), Commit(300, 200)],
        _GROWS,
        ExpectedStale(200, 300, 600, 600),
    ),
    Case(
        "log ends are rare",
        [Commit(100, 90)],
        [ObservedEnd(400, 400), ObservedEnd(520, 520)],
        ExpectedStale(90, 100, 520, 520),
    ),
)


def commit_rows(cases: Sequence[Case] = CASES, *, until: float | None = None) -> list[dict[str, Any]]:
    """Make rows of ``commits`` with their ``day``, up to a time; missing columns of a row are NULL.

    Every tenth record appears twice, as after a repeated batch of a job.
    """
    told = [row for row in _commit_rows(cases) if until is None or row["log_ts"] <= second_at(until)]
    return told + told[::10]


def _commit_rows(cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
    position = 0
    for case in cases:
        for commit in case.commits:
            position += 1
            at = second_at(commit.at)
            tombstone = commit.offset is None
            yield {
                "cluster": CLUSTER,
                "consumer": case.name,
                "topic": case.name,
                "partition": PARTITION,
                "version": None if tombstone else 3,
                "offset": commit.offset,
                "commit_ts": None if tombstone else at,
                "commit_ts_ms": None if tombstone else epoch_ms(at),
                "tombstone": tombstone,
                "log_partition": 7,
                "log_offset": position,
                "log_ts": at,
                "log_ts_ms": epoch_ms(at),
                "day": at.date(),
            }


def end_rows(cases: Sequence[Case] = CASES, *, until: float | None = None) -> list[dict[str, Any]]:
    """Make rows of ``ends`` with their ``day``, up to a time."""
    return [
        {
            "cluster": CLUSTER,
            "topic": case.name,
            "partition": PARTITION,
            "start_offset": 0,
            "end_offset": observed.end,
            "observed_at": second_at(observed.at),
            "observed_at_ms": epoch_ms(second_at(observed.at)),
            "day": DAY,
        }
        for case in cases
        for observed in case.log_ends
        if until is None or observed.at <= until
    ]
