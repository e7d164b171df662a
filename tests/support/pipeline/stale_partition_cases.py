"""What is stale and what is not: one data set for the stream that alerts and for the query over the tables.

**The rule.** ``C`` is the offset of a group's newest commit on a partition at or before ``t``, ``since`` the moment of
the first of the commits in a row that say it (commits of the same offset again change nothing). ``seen`` is the newest
look at the log end of the partition at or before ``t``, and ``E(x)`` the end that the newest look at or before ``x``
told. The partition is stale at ``t`` for a duration ``D`` if

- there is a ``C``: a tombstone takes it back, and what was never committed has none;
- it has stood for ``D``: ``since <= seen - D``;
- for as long there has been something to read: ``E(seen - D) > C``, and ``E(seen) > C`` still.

Time is told by the looks: what nobody looked at is not known, so it does not grow stale. That the log moved within
``D`` is not enough, because the first message in an hour would make every consumer of a quiet topic stale until it
commits. The moment of a commit is that of its record (``log_ts``); of one millisecond the higher ``log_offset`` counts.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

__all__ = ["AT", "CASES", "CLUSTER", "FOR", "Case", "Commit", "Look", "Stale", "commit_rows", "end_rows", "moment"]

_MIDNIGHT: Final = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
CLUSTER: Final = "prod-eu"
AT: Final = 600.0
"""When each case is judged, in seconds since midnight."""
FOR: Final = 120.0
"""How long an offset must have stood, in seconds."""
PARTITION: Final = 3


class Commit(NamedTuple):
    """A commit so many seconds after midnight; without an offset it is a tombstone."""

    at: float
    offset: int | None


class Look(NamedTuple):
    """A look at the log end."""

    at: float
    end: int


class Stale(NamedTuple):
    """What is said of a stale partition: since when it stands at which offset, and the end that was seen when."""

    offset: int
    since: float
    end: int
    seen: float


class Case(NamedTuple):
    """What was known of a group and a topic, both of which are called ``name``, and what follows at `AT` for `FOR`."""

    name: str
    commits: Sequence[Commit]
    looks: Sequence[Look]
    stale: Stale | None


def _looks(first: float, last: float, end: int, per_second: float = 0.0, *, every: float = 30) -> list[Look]:
    """Looks at a log that ends at ``end`` when it is first seen and grows evenly."""
    many = int((last - first) // every) + 1
    return [Look(first + every * n, end + round(per_second * every * n)) for n in range(many)]


_GROWS: Final = _looks(0, 600, 0, 1.0)  # a message a second: at 300 it ends at 300
_RESTS: Final = _looks(0, 600, 150)

CASES: Final[Sequence[Case]] = (
    Case("reads on", [Commit(at, at) for at in range(5, 600, 5)], _GROWS, None),
    Case("stands while the log moves", [Commit(280, 280), Commit(300, 300)], _GROWS, Stale(300, 300, 600, 600)),
    Case(
        "commits the same again and again",
        [Commit(290, 290), *(Commit(at, 300) for at in range(300, 600, 7))],
        _GROWS,
        Stale(300, 300, 600, 600),
    ),
    Case("stands where the log ends", [Commit(100, 150)], _RESTS, None),
    Case("stands before what nobody adds to", [Commit(100, 149)], _RESTS, Stale(149, 100, 150, 600)),
    Case("stands almost long enough", [Commit(470, 440), Commit(480.001, 450)], _GROWS, None),
    Case("stands just long enough", [Commit(470, 440), Commit(480, 450)], _GROWS, Stale(450, 480, 600, 600)),
    Case("first commit is young", [Commit(590, 10)], _GROWS, None),
    Case("a message has just come", [Commit(10, 150)], [*_looks(0, 570, 150), Look(600, 151)], None),
    Case(
        "a message waits long enough",
        [Commit(10, 150)],
        [*_looks(0, 450, 150), *_looks(480, 600, 151)],
        Stale(150, 10, 151, 600),
    ),
    Case("was never committed", [], _GROWS, None),
    Case("was never looked at", [Commit(100, 10)], [], None),
    Case("moved after the last look", [Commit(300, 300), Commit(595, 301)], _looks(0, 570, 0, 1.0), None),
    Case("looks ended too early", [Commit(300, 290)], _looks(0, 400, 0, 1.0), None),
    Case("looks ended late enough", [Commit(100, 90)], _looks(0, 400, 0, 1.0), Stale(90, 100, 390, 390)),
    Case("looks began too late", [Commit(100, 90)], _looks(500, 600, 500, 1.0, every=20), None),
    Case("was taken back", [Commit(100, 90), Commit(400, None)], _GROWS, None),
    Case("was taken back and committed again", [Commit(100, 90), Commit(550, None), Commit(560, 90)], _GROWS, None),
    Case("was rewound just now", [Commit(100, 90), Commit(550, 40)], _GROWS, None),
    Case("was rewound and stands", [Commit(100, 90), Commit(300, 40)], _GROWS, Stale(40, 300, 600, 600)),
    Case("went back and forth", [Commit(100, 90), Commit(550, 80), Commit(560, 90)], _GROWS, None),
    Case("topic was made anew", [Commit(100, 1_000)], [*_looks(0, 300, 2_000), *_looks(330, 600, 0)], None),
    Case(
        "topic made anew has only just grown beyond",
        [Commit(100, 1_000)],
        [*_looks(0, 300, 2_000), *_looks(330, 510, 0), *_looks(540, 600, 1_500)],
        None,
    ),
    Case(
        "what comes later is not known",
        [Commit(300, 290), Commit(601, 291)],
        [*_GROWS, Look(630, 700)],
        Stale(290, 300, 600, 600),
    ),
    Case("last of a millisecond counts", [Commit(300, 290), Commit(300, 200)], _GROWS, Stale(200, 300, 600, 600)),
    Case("looks are rare", [Commit(100, 90)], [Look(400, 400), Look(520, 520)], Stale(90, 100, 520, 520)),
)


def moment(seconds: float) -> dt.datetime:
    """So many seconds after the midnight of the cases."""
    return _MIDNIGHT + dt.timedelta(milliseconds=round(seconds * 1_000))


def commit_rows(cases: Sequence[Case] = CASES, *, until: float | None = None) -> list[dict[str, Any]]:
    """Rows of ``commits`` with their ``day``, up to a moment; a row may be missing columns, which are NULL.

    Every tenth record comes twice, as it does where a job has written a batch again.
    """
    told = [row for row in _commit_rows(cases) if until is None or row["log_ts"] <= moment(until)]
    return told + told[::10]


def _commit_rows(cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
    position = 0
    for case in cases:
        for commit in case.commits:
            position += 1
            at = moment(commit.at)
            tombstone = commit.offset is None
            yield {
                "cluster": CLUSTER,
                "consumer": case.name,
                "topic": case.name,
                "partition": PARTITION,
                "version": None if tombstone else 3,
                "offset": commit.offset,
                "commit_ts": None if tombstone else at,
                "commit_ts_ms": None if tombstone else _ms(at),
                "tombstone": tombstone,
                "log_partition": 7,
                "log_offset": position,
                "log_ts": at,
                "log_ts_ms": _ms(at),
                "day": at.date(),
            }


def end_rows(cases: Sequence[Case] = CASES, *, until: float | None = None) -> list[dict[str, Any]]:
    """Rows of ``ends`` with their ``day``, up to a moment."""
    return [
        {
            "cluster": CLUSTER,
            "topic": case.name,
            "partition": PARTITION,
            "start_offset": 0,
            "end_offset": look.end,
            "observed_at": moment(look.at),
            "observed_at_ms": _ms(moment(look.at)),
            "day": _MIDNIGHT.date(),
        }
        for case in cases
        for look in case.looks
        if until is None or look.at <= until
    ]


def _ms(at: dt.datetime) -> int:
    return round(at.timestamp() * 1_000)
