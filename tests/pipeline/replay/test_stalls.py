import numpy as np

from karrot.pipeline.replay.commit_arrays import CommitArrays, Ints, LogEndArrays, Segments, stored
from karrot.pipeline.replay.stalls import standstills

NEVER_MS = 2**60


def found(
    commits: list[tuple[int, int]], ends: list[tuple[int, int]], *, gone_at: int = NEVER_MS
) -> list[tuple[int, int]]:
    """From when to when, of one partition's (seconds, offset), for at least 100 s in 1,000."""
    at, offset = (
        np.array(column) * factor for column, factor in zip(zip(*commits, strict=True), (1_000, 1), strict=True)
    )
    seen_at, end = (np.array(column) for column in zip(*ends, strict=True))
    zeros: Ints = np.zeros_like(at)
    log, segments = (
        LogEndArrays(np.zeros_like(end), seen_at * 1_000, end),
        Segments(np.array([0]), np.array([gone_at * 1_000])),
    )
    kept = stored(CommitArrays(zeros, at, np.arange(len(at)), offset, at, zeros), log, segments, 10**9)
    stood = standstills(kept, log, segments, at_least_ms=100_000, until_ms=1_000_000)
    return [
        (begin // 1_000, end // 1_000) for begin, end in zip(stood.from_ms.tolist(), stood.to_ms.tolist(), strict=True)
    ]


def test_who_commits_the_same_while_there_is_more_stands_still_until_he_moves() -> None:
    assert found([(10, 5), (20, 8), (60, 8), (150, 8), (200, 9), (250, 9)], [(0, 20)]) == [(20, 200), (200, 1_000)]


def test_who_has_read_all_stands_still_once_there_is_more() -> None:
    assert found([(10, 5), (300, 5), (400, 7)], [(0, 5), (120, 5), (240, 6)]) == [(240, 400)]
    assert found([(10, 5), (900, 5)], [(0, 5), (930, 6)]) == []


def test_a_short_pause_is_none_and_one_of_a_group_that_is_gone_ends() -> None:
    assert found([(10, 5), (109, 6), (300, 9)], [(0, 9)], gone_at=900) == [(109, 300)]
    assert found([(10, 5)], [(0, 9)], gone_at=500) == [(10, 500)]
