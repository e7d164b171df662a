"""What runs beside the queries or turns of a process ends the process if it fails."""

from threading import Event

import pytest

from karrot.pipeline.stream.streaming_queries import repeated


def test_an_error_beside_the_work_ends_the_work_and_is_raised() -> None:
    is_broken, stop = Event(), Event()

    def beside() -> None:
        if is_broken.is_set():
            raise RuntimeError("Spark has ended")

    def turns() -> None:
        with repeated(beside, stop, 0.01):
            assert not stop.wait(0.1)
            is_broken.set()
            assert stop.wait(30)

    with pytest.raises(RuntimeError, match="Spark has ended"):
        turns()


def test_after_a_stop_nothing_fails_any_more() -> None:
    stop = Event()

    def beside() -> None:
        if stop.is_set():
            raise RuntimeError("Spark has ended")

    with repeated(beside, stop, 0.01):
        stop.set()
        assert not Event().wait(0.1)
