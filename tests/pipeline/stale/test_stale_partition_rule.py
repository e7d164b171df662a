"""The rule in plain Python, applied batch by batch, agrees with its definition over all data.

`test_partition_state.py` checks that the rule in Spark agrees with the rule in plain Python.
"""

import itertools
import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from karrot.event import ClusterPartition, LogEnd
from support.pipeline.stale_partition_cases import (
    CASES,
    EVALUATED_AT,
    STALE_AFTER,
    Case,
    Commit,
    ExpectedStale,
    ObservedEnd,
)
from support.pipeline.stale_watch import BatchCommits, GroupPartition, RecordPosition, StaleState, StaleWatch

_LENGTH = timedelta(seconds=STALE_AFTER)
_CLUSTER = "c"


def _stale(commits: Sequence[Commit], looks: Sequence[ObservedEnd]) -> ExpectedStale | None:
    """Apply the definition to commits and log ends in order."""
    if not commits or not looks or commits[-1].offset is None:
        return None
    offset, seen = commits[-1].offset, looks[-1]
    in_a_row = next((n for n, each in enumerate(reversed(commits)) if each.offset != offset), len(commits))
    since = commits[len(commits) - in_a_row].at
    before = [look.end for look in looks if look.at <= seen.at - STALE_AFTER]
    waits = bool(before) and min(before[-1], seen.end) > offset
    return ExpectedStale(offset, since, seen.end, seen.at) if waits and since <= seen.at - STALE_AFTER else None


def _batch(
    name: str, commits: Iterable[tuple[int, Commit]], looks: Iterable[ObservedEnd]
) -> tuple[dict[GroupPartition, BatchCommits], Any]:
    """Reduce a batch as Spark does: the newest record, and the first record of its run of equal offsets."""
    records = sorted((RecordPosition(round(each.at * 1_000), number), each.offset) for number, each in commits)
    told: dict[GroupPartition, BatchCommits] = {}
    if records:
        offset = records[-1][1]
        first = len(records) - next(
            (n for n, (_, each) in enumerate(reversed(records)) if each != offset), len(records)
        )
        before = records[first - 1][0] if first else None
        told[GroupPartition(_CLUSTER, name, name, 0)] = BatchCommits(offset, records[-1][0], records[first][0], before)
    seen = [LogEnd(round(each.at * 1_000), each.end) for each in looks]
    return told, {ClusterPartition(_CLUSTER, name, 0): seen} if seen else {}


class Rig:
    """A stale rule that restarts after every batch, with its alerts so far."""

    def __init__(self) -> None:
        self.state = StaleState()
        self.lines: list[dict[str, Any]] = []

    def take(
        self, batch: int, commits: dict[GroupPartition, BatchCommits], looks: dict[ClusterPartition, list[LogEnd]]
    ) -> list[tuple[Any, ...]]:
        """Apply a batch; return state, group and offset of each alert."""
        watch = StaleWatch(_LENGTH, msgspec.json.decode(msgspec.json.encode(self.state), type=StaleState))
        lines = [json.loads(line) for line in watch.take(batch, commits, looks)]
        assert watch.take(batch, commits, looks) == []
        self.state = watch.saved([])
        self.lines += lines
        return [(line["state"], line["group"], line["current_offset"]) for line in lines]

    def since(self) -> list[str]:
        """Return the start of each active alert. No alert may fire twice or clear without having fired."""
        standing: dict[str, str] = {}
        for line in self.lines:
            if line["state"] == "stale":
                assert line["id"] not in standing
                standing[line["id"]] = line["since"]
            else:
                assert standing.pop(line["id"]) == line["since"]
        return list(standing.values())


def _since(stale: ExpectedStale | None) -> list[str]:
    return [] if stale is None else [f"1970-01-01T00:{int(stale.since // 60):02}:{stale.since % 60:06.3f}Z"]


def _pieces(rig: Rig, case: Case, cuts: Sequence[float], *, again: bool) -> None:
    """Feed a case up to `EVALUATED_AT` in batches, with another group that never stops committing."""
    commits = [(number, each) for number, each in enumerate(case.commits) if each.at <= EVALUATED_AT]
    bounds = [-1.0, *sorted(cuts), EVALUATED_AT]
    for batch, (after, until) in enumerate(itertools.pairwise(bounds)):
        of_batch = [each for each in commits if (each[1].at <= until if again else after < each[1].at <= until)]
        told, looks = _batch(case.name, of_batch, [each for each in case.log_ends if after < each.at <= until])
        beat, _ = _batch("beat", [(batch, Commit(until, batch))], [])
        rig.take(batch, told | beat, looks)


def test_every_case_gives_its_alert_for_any_split_into_batches() -> None:
    for cuts in ([], [300.0], [float(at) for at in range(0, 600, 30)], [485.0, 486.0]):
        for again in (False, True):
            for case in CASES:
                rig = Rig()
                _pieces(rig, case, cuts, again=again)
                assert rig.since() == _since(case.stale), (case.name, cuts)


_TIMES = st.integers(0, 120).map(lambda at: 5.0 * at)
_COMMITS = st.lists(st.builds(Commit, _TIMES, st.none() | st.integers(0, 3)), max_size=8)
_LOOKS = st.lists(st.builds(ObservedEnd, _TIMES, st.integers(0, 4)), max_size=12, unique_by=lambda look: look.at)


@given(_COMMITS, _LOOKS, st.lists(_TIMES, max_size=5, unique=True), st.booleans())
def test_batches_and_restarts_do_not_change_the_alerts(
    commits: list[Commit],
    looks: list[ObservedEnd],
    cuts: list[float],
    again: bool,  # noqa: FBT001 (hypothesis names it)
) -> None:
    commits.sort(key=lambda each: each.at)
    looks.sort(key=lambda each: each.at)
    rig = Rig()
    _pieces(rig, Case("g", commits, looks, None), cuts, again=again)
    assert rig.since() == _since(_stale(commits, looks))


def test_the_definition_agrees_with_the_cases() -> None:
    for case in CASES:
        known = (
            [each for each in case.commits if each.at <= EVALUATED_AT],
            [each for each in case.log_ends if each.at <= EVALUATED_AT],
        )
        assert _stale(*known) == case.stale, case.name


def test_an_alert_clears_when_the_offset_moves_or_is_deleted_or_no_message_is_unread() -> None:
    grows = [ObservedEnd(at, 100 + at) for at in range(0, 301, 30)]
    for moved, told in ((Commit(310, 51), 51), (Commit(310, None), None)):
        rig = Rig()
        assert rig.take(0, *_batch("g", [(0, Commit(10, 50))], grows)) == [("stale", "g", 50)]
        assert rig.take(1, *_batch("g", [(1, Commit(305, 50))], [ObservedEnd(330, 430)])) == []
        assert rig.take(2, *_batch("g", [(2, moved)], [])) == [("cleared", "g", told)]
        assert [line["id"] for line in rig.lines] == [rig.lines[0]["id"]] * 2
        # A compacted batch comes again as another file.
        again, looks = _batch("g", [(0, Commit(10, 50))], [ObservedEnd(360, 460)])
        assert rig.take(3, again | _batch("beat", [(3, Commit(360, 1))], [])[0], looks) == []

    rig = Rig()
    assert rig.take(0, *_batch("g", [(0, Commit(10, 50))], grows)) == [("stale", "g", 50)]
    assert rig.take(1, *_batch("g", [], [ObservedEnd(330, 0)])) == [("cleared", "g", 50)]  # the topic was recreated


def test_no_partition_becomes_stale_while_the_offsets_job_catches_up() -> None:
    rig = Rig()
    rig.take(0, *_batch("g", [(0, Commit(10, 5))], [ObservedEnd(10, 9)]))
    # The offsets job was down for an hour: log ends are there again at once, commits arrive in parts.
    assert rig.take(1, *_batch("g", [], [ObservedEnd(3_600, 900)])) == []
    assert rig.take(2, *_batch("g", [(1, Commit(1_800, 400))], [ObservedEnd(3_630, 905)])) == []
    assert rig.take(3, *_batch("g", [(2, Commit(3_640, 900))], [ObservedEnd(3_660, 910)])) == []
    assert rig.take(4, *_batch("g", [], [ObservedEnd(3_760, 950)])) == [("stale", "g", 900)]

    # If no commits arrive for that long, then there are none.
    rig = Rig()
    rig.take(0, *_batch("g", [(0, Commit(10, 5))], [ObservedEnd(10, 9)]))
    looks = ([ObservedEnd(at, 900)] for at in (3_600, 3_630, 3_719, 3_720))
    assert [rig.take(1 + n, *_batch("g", [], each)) for n, each in enumerate(looks)] == [
        [],
        [],
        [],
        [("stale", "g", 5)],
    ]


def test_the_kept_state_is_bounded() -> None:
    rig = Rig()
    for batch in range(200):
        rig.take(batch, *_batch("g", [(batch, Commit(batch, batch))], [ObservedEnd(batch, batch)]))
    assert len(rig.state.looks[0][1]) <= 66
    month = timedelta(days=32).total_seconds()
    rig.take(200, *_batch("other", [(200, Commit(month, 1))], [ObservedEnd(month, 1)]))
    assert [key.group for key, _ in rig.state.standings] == ["other"]
    assert [log.topic for log, _ in rig.state.looks] == ["other"]
