"""Long work is done in short bursts with pauses, and gives all of its results."""

from collections.abc import Iterator

import pytest

from karrot.web.pages.gil_yielding import gently


class Day:
    """A clock that work and sleep advance; ``rests`` has the seconds of work before each pause."""

    def __init__(self) -> None:
        self.now = self.woke = 0.0
        self.rests: list[float] = []

    def work(self, seconds: float, times: int) -> Iterator[int]:
        for number in range(times):
            self.now += seconds
            yield number

    def sleep(self, seconds: float) -> None:
        self.rests.append(self.now - self.woke)
        self.now = self.woke = self.now + seconds


def test_a_little_work_has_no_pause() -> None:
    day = Day()
    assert list(gently(day.work(0.00001, 5), clock=lambda: day.now, sleep=day.sleep)) == [0, 1, 2, 3, 4]
    assert day.rests == []


def test_long_work_is_done_in_bursts_and_in_order() -> None:
    day = Day()
    assert list(gently(day.work(0.00003, 100), clock=lambda: day.now, sleep=day.sleep)) == list(range(100))
    assert len(day.rests) >= 25
    assert max(day.rests) == pytest.approx(0.00012, abs=0.00003)


def test_an_item_as_long_as_a_burst_is_followed_by_a_pause() -> None:
    day = Day()
    assert list(gently(day.work(0.002, 3), clock=lambda: day.now, sleep=day.sleep)) == [0, 1, 2]
    assert day.rests == pytest.approx([0.002] * 3)
