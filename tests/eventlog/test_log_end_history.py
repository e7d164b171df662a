import random
from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.event import LogEnd
from karrot.eventlog.log_end_history import REFRESH_MS, Age, LogEndHistory
from support.eventlog.age_cases import AGE_CASES, AT_LEAST, EXACT, AgeCase

NOW_MS = 1_000_000_000
DAY_MS = 86_400_000


def history(*samples: tuple[float, int]) -> LogEndHistory:
    """Return a history of samples (seconds ago, log end), recorded one by one."""
    made = LogEndHistory()
    for ago, offset in samples:
        made.record([LogEnd(NOW_MS - int(ago * 1000), offset)])
    return made


@pytest.mark.parametrize("case", AGE_CASES.values(), ids=AGE_CASES)
def test_the_age_of_a_committed_offset_follows_from_the_log_ends(case: AgeCase) -> None:
    assert history(*case.log_ends).age_at(case.committed, NOW_MS, refresh_ms=case.refresh_ms) == case.age


def test_without_a_sample_the_age_is_not_known() -> None:
    assert LogEndHistory().age_at(5, NOW_MS, refresh_ms=0) is None


def test_an_older_log_end_of_the_last_minute_is_left_out() -> None:
    made = history((100, 1000), (50, 1500), (5, 1900))
    assert not made.record([LogEnd(NOW_MS, 1600)])
    assert made.samples == history((100, 1000), (50, 1500), (5, 1900)).samples


def test_a_log_end_below_all_of_the_last_minute_starts_the_history_again() -> None:
    made = history((100, 1000), (50, 1500), (5, 1900))
    assert made.record([LogEnd(NOW_MS, 900)])
    assert made.samples == [LogEnd(NOW_MS, 900)]
    assert made.age_at(100, NOW_MS + 5000, refresh_ms=0) == Age(5.0, AT_LEAST)


def test_an_older_sample_below_the_history_does_not_start_it_again() -> None:
    made = history((100, 1000), (50, 1500), (5, 1900))
    assert not made.record([LogEnd(NOW_MS - 70_000, 40)])
    assert made.samples == history((100, 1000), (50, 1500), (5, 1900)).samples


def test_a_new_topic_is_told_from_the_old_one_within_one_verdict() -> None:
    made = LogEndHistory()
    assert not made.record([LogEnd(NOW_MS - 300_000, 90_000), LogEnd(NOW_MS - 5000, 40), LogEnd(NOW_MS, 50)])
    assert made.samples == [LogEnd(NOW_MS, 50)]


def test_the_commits_of_a_verdict_fill_the_time_before_it() -> None:
    made = history((1000, 1000), (10, 3000))
    made.record([LogEnd(NOW_MS - 500_000, 2900), LogEnd(NOW_MS - 100_000, 2950), LogEnd(NOW_MS, 3100)])
    assert made.age_at(2900, NOW_MS, refresh_ms=0) == Age(500.0, EXACT)


def test_commits_of_another_clock_are_left_out() -> None:
    made = history(*((ago, 100_000 - 10 * ago) for ago in range(7200, 0, -30)))
    before = made.samples
    made.record([LogEnd(NOW_MS - 3_600_000, 99_950), LogEnd(NOW_MS, 100_000)])
    assert made.samples == [*before, LogEnd(NOW_MS, 100_000)]


def test_an_offset_that_no_log_can_have_is_left_out() -> None:
    made = history((10, 1000))
    assert not made.record([LogEnd(NOW_MS, 2**63)])
    assert made.samples == history((10, 1000)).samples


def test_old_samples_are_forgotten_but_for_the_one_where_a_line_starts() -> None:
    made = history((300, 1000), (200, 2000), (100, 3000), (0, 4000))
    made.forget_before(NOW_MS - 150_000)
    assert made.samples == history((200, 2000), (100, 3000), (0, 4000)).samples


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 2**63 - 1)), max_size=200))
def test_packed_bytes_give_the_same_history(samples: list[tuple[int, int]]) -> None:
    made = LogEndHistory()
    for sample in samples:
        made.record([LogEnd(*sample)])
    unpacked = LogEndHistory.unpack(made.pack())
    assert unpacked is not None
    assert unpacked.samples == made.samples


@given(st.binary(max_size=200).filter(lambda data: data != LogEndHistory().pack()))
def test_damaged_bytes_give_no_history(data: bytes) -> None:
    packed = history((100, 1000), (0, 2000)).pack()
    assert LogEndHistory.unpack(data) is None
    assert LogEndHistory.unpack(packed[:-1]) is None
    assert LogEndHistory.unpack(packed[:-1] + bytes([packed[-1] ^ 1])) is None


@given(st.lists(st.tuples(st.integers(-(10**6), 10**8), st.integers(-5, 2**64)), max_size=300))
def test_times_and_offsets_never_decrease_whatever_arrives(samples: list[tuple[int, int]]) -> None:
    made = LogEndHistory()
    for sample in samples:
        made.record([LogEnd(*sample)])
        times, offsets = [each.at_ms for each in made.samples], [each.offset for each in made.samples]
        assert times == sorted(times)
        assert offsets == sorted(offsets)
    age = made.age_at(0, 10**8, refresh_ms=10_000)
    assert age is None or age.seconds >= 0


def uneven_log(seed: int) -> list[LogEnd]:
    """Return a day of log ends, one every 15 s, of a producer whose rate changes at random, with idle hours."""
    rng = random.Random(seed)
    offset, rate = 0, 5.0
    samples = []
    for at_ms in range(0, DAY_MS, 15_000):
        if rng.random() < 0.02:
            rate = rng.choice((0.0, 0.2, 5.0, 50.0, 500.0))
        offset += int(rng.random() * 2 * rate * 15)
        samples.append(LogEnd(at_ms, offset))
    return samples


@pytest.mark.parametrize("seed", range(8))
def test_thinning_costs_at_most_one_refresh_or_one_percent_of_the_age(seed: int) -> None:
    all_samples = uneven_log(seed)
    made = LogEndHistory()
    for sample in all_samples:
        made.record([sample])
    kept = made.samples
    now_ms = all_samples[-1].at_ms
    assert len(kept) <= 640
    for offset, at_ms in {each.offset: each.at_ms for each in all_samples}.items():
        right = bisect_left(kept, offset, key=lambda each: each.offset)
        if not right or kept[right].offset == offset:
            continue
        older, newer = kept[right - 1], kept[right]
        on_line = older.at_ms + (offset - older.offset) / (newer.offset - older.offset) * (newer.at_ms - older.at_ms)
        tolerated = max(REFRESH_MS, 0.01 * (now_ms - newer.at_ms))
        assert abs(on_line - at_ms) <= tolerated + 15_000  # a sample within half a refresh of another is not needed


def test_a_steady_log_needs_few_samples() -> None:
    made = LogEndHistory()
    for number in range(5760):
        made.record([LogEnd(number * 15_000, number * 75)])
    assert len(made.samples) <= 97
