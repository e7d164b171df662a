"""The process of ``karrot pipeline run`` ends when Spark does."""

import threading

import pytest

from karrot.pipeline.run.pipeline_steps import ended_with_spark
from karrot.pipeline.run.step_loop import CannotContinue


def test_the_end_of_spark_between_two_turns_ends_the_process() -> None:
    spark_ended, stop = threading.Event(), threading.Event()

    def turns() -> None:
        with ended_with_spark(lambda: not spark_ended.is_set(), stop, 0.01):
            assert not stop.wait(0.1)
            spark_ended.set()
            assert stop.wait(30)

    with pytest.raises(CannotContinue, match="Spark has ended"):
        turns()


def test_a_stop_before_the_end_of_spark_is_no_failure() -> None:
    stop = threading.Event()
    with ended_with_spark(lambda: not stop.is_set(), stop, 0.01):
        stop.set()
