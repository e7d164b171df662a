"""Groups whose unread messages are hard to count. `watch`, the tables and the judge must say the same about them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from karrot.event import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
POLL_S = 10
STANDS_STILL = frozenset({"STOP", "STALL"})

Steps = Sequence[tuple[int, int]]
"""Values, each with the number of the poll from which it holds. Nothing holds before the first one."""


@dataclass(frozen=True, slots=True)
class Case:
    """A group of one topic or two. Polls count from 0, and the case is judged after the poll ``judged``.

    - ``starts`` and ``ends``: the log start (0 by default) and log end of each partition.
    - ``commits``: the committed offsets.
    - ``members``: what the group's member owns. Nothing means that the group is Empty.
    - ``lags``: what must be known in the end: the state or status, one of several, and the lag; ``None``: unknown.
    - ``complete``: the share of the group's partitions whose lag is known.
    """

    name: str
    ends: Mapping[TopicPartition, Steps]
    commits: Mapping[TopicPartition, Steps]
    members: Sequence[tuple[int, Sequence[TopicPartition]]]
    lags: Mapping[TopicPartition, tuple[frozenset[str], int | None]]
    status: str
    complete: float = 1.0
    starts: Mapping[TopicPartition, Steps] = field(default_factory=dict)
    judged: int = 40

    @property
    def total_lag(self) -> int | None:
        known = [lag for _, lag in self.lags.values() if lag is not None]
        return sum(known) if known else None


def at(steps: Steps, poll: int) -> int | None:
    """Return the value that holds at a poll."""
    return next((value for since, value in reversed(steps) if since <= poll), None)


def moves(steps: Steps, judged: int) -> Iterator[tuple[int, int]]:
    return ((poll, value) for poll, value in steps if poll <= judged)


def one(state: str, lag: int | None) -> tuple[frozenset[str], int | None]:
    return frozenset({state}), lag


_OWNS_A0 = ((0, (A0,)),)
_FULL = ((0, 500),)

CASES = (
    Case("read to the end", {A0: _FULL}, {A0: _FULL}, _OWNS_A0, {A0: one("OK", 0)}, "OK"),
    Case(
        "all unread messages are deleted",
        {A0: _FULL},
        {A0: ((0, 100),)},
        _OWNS_A0,
        {A0: one("OK", 0)},
        "OK",
        starts={A0: ((5, 500),)},
    ),
    Case(
        "some unread messages are deleted",
        {A0: _FULL},
        {A0: ((0, 100),)},
        _OWNS_A0,
        {A0: (STANDS_STILL, 200)},
        "ERR",
        starts={A0: ((5, 300),)},
    ),
    Case(
        "past the log end",
        {A0: ((0, 200),)},
        {A0: ((0, 150), (3, 10_000))},
        _OWNS_A0,
        {A0: one("BEYOND_END", None)},
        "ERR",
        complete=0.0,
    ),
    Case(
        "past the log end of a topic that was created again",
        {A0: ((0, 500), (4, 20))},
        {A0: _FULL},
        _OWNS_A0,
        {A0: one("BEYOND_END", None)},
        "ERR",
        complete=0.0,
    ),
    Case(
        "no commit, and messages come",
        {A0: ((0, 0), (6, 50))},
        {},
        _OWNS_A0,
        {A0: one("NEVER_COMMITTED", None)},
        "ERR",
        complete=0.0,
    ),
    Case(
        "no commit, and no messages come",
        {A0: ((0, 50),)},
        {},
        _OWNS_A0,
        {A0: one("NEVER_COMMITTED", None)},
        "OK",
        complete=0.0,
    ),
    Case(
        "no commit on one of two partitions",
        {A0: _FULL, A1: ((0, 0), (6, 50))},
        {A0: _FULL},
        ((0, (A0, A1)),),
        {A0: one("OK", 0), A1: one("NEVER_COMMITTED", None)},
        "ERR",
        complete=0.5,
    ),
    Case(
        "a topic was left",
        {A0: _FULL, B0: ((0, 500), (10, 900))},
        {A0: _FULL, B0: ((0, 400),)},
        ((0, (A0, B0)), (3, (A0,))),
        {A0: one("OK", 0), B0: one("LEFT", None)},
        "OK",
    ),
    Case(
        "a topic was left, and then all members went",
        {A0: _FULL, B0: ((0, 500), (10, 900))},
        {A0: _FULL, B0: ((0, 400),)},
        ((0, (A0, B0)), (3, (A0,)), (30, ())),
        {A0: one("OK", 0), B0: one("LEFT", None)},
        "OK",
    ),
    Case(
        "members read another topic for a short time",
        {A0: _FULL, B0: ((0, 500), (10, 900))},
        {A0: ((0, 500),), B0: ((0, 400),)},
        ((0, ()), (36, (A0,))),
        {A0: one("OK", 0), B0: (frozenset({"STOP", "STALL", "OK"}), 500)},
        "OK",
    ),
    Case(
        "the members of one topic went a little earlier",
        {A0: ((0, 500), (10, 600)), B0: ((0, 500), (10, 900))},
        {A0: _FULL, B0: _FULL},
        ((0, (A0, B0)), (3, (A0,)), (5, ())),
        {A0: (STANDS_STILL, 100), B0: (STANDS_STILL, 400)},
        "ERR",
    ),
    Case(
        "stopped",
        {A0: ((0, 500), (5, 900))},
        {A0: _FULL},
        ((0, (A0,)), (4, ())),
        {A0: (STANDS_STILL, 400)},
        "ERR",
    ),
    Case(
        "the log end cannot be read any more",
        {A0: ((0, 500), (5, -1)), A1: _FULL},
        {A0: ((0, 400),), A1: _FULL},
        ((0, (A0, A1)),),
        {A0: (STANDS_STILL, None), A1: one("OK", 0)},
        "ERR",
        complete=0.5,
        judged=100,
    ),
)
"""A log end of -1 stands for an answer without a log end."""
