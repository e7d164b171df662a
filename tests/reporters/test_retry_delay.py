"""The delay before the next attempt to reach a destination."""

from random import Random

from karrot.reporters.base import retry_delay_s


def test_a_random_delay_is_between_half_of_the_doubled_one_and_the_whole() -> None:
    waits = [retry_delay_s(failures, Random(failures)) for failures in (1, 2, 3, 4, 10, 10_000)]
    for wait, whole in zip(waits, (1, 2, 4, 8, 60, 60), strict=True):
        assert whole / 2 <= wait <= whole
