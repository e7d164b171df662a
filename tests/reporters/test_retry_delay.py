"""The delay before the next attempt to reach a destination."""

from random import Random

from karrot.reporters.base import Backoff, Retry
from support.manual_clock import ManualClock


def test_delays_double_from_a_second_to_a_minute_until_a_success() -> None:
    clock = ManualClock()
    retry = Retry(clock.boot_ms)
    assert (retry.is_waiting, retry.due_in()) == (False, 0.0)
    waits = []
    for _ in range(8):
        retry.failed()
        waits.append(retry.due_in())
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    clock.advance(61_000)
    assert retry.is_waiting
    assert retry.due_in() == -1
    retry.went_well()
    assert (retry.is_waiting, retry.due_in()) == (False, 0.0)


def test_years_of_failures_cause_no_overflow() -> None:
    retry = Retry(ManualClock().boot_ms)
    for _ in range(5_000):
        retry.failed()
    assert retry.due_in() == 60


def test_a_random_delay_is_between_half_of_the_doubled_one_and_the_whole() -> None:
    waits = [Backoff(1, 60).spread_seconds(failures, Random(failures)) for failures in (1, 2, 3, 4, 10, 10_000)]
    for wait, whole in zip(waits, (1, 2, 4, 8, 60, 60), strict=True):
        assert whole / 2 <= wait <= whole
