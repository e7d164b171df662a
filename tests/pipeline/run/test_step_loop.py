"""The loop of ``karrot pipeline run``, without Spark."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from threading import Event

import pytest
from prometheus_client import CollectorRegistry

from karrot.pipeline.run.step_loop import (
    CannotContinue,
    RunMetrics,
    Step,
    StepFailure,
    StepResult,
    TurnLoop,
)
from support.manual_clock import ManualClock

Work = Callable[[Event], StepResult]


class Pauses(Event):
    """Records the pauses between turns instead of waiting, and is set after a number of turns."""

    def __init__(self, turns: int) -> None:
        super().__init__()
        self.left, self.taken = turns, list[float]()

    def wait(self, timeout: float | None = None) -> bool:
        self.taken.append(timeout or 0)
        self.left -= 1
        if not self.left:
            self.set()
        return self.is_set()


def _turns(stop: Event, *steps: Step, every: int = 900) -> tuple[TurnLoop, CollectorRegistry, ManualClock]:
    clock, registry = ManualClock(), CollectorRegistry()
    metrics = RunMetrics(started_s=clock.wall_ms() / 1000, interval_s=every)
    registry.register(metrics)

    def explain(_step: str, error: Exception) -> StepFailure:
        return StepFailure(type(error).__name__, str(error), is_final=isinstance(error, MemoryError))

    return TurnLoop(steps, timedelta(seconds=every), clock, metrics, explain, stop), registry, clock


def _failing(*errors: Exception | None) -> Work:
    left: Iterator[Exception | None] = iter(errors)

    def work(_stop: Event) -> StepResult:
        if error := next(left):
            raise error
        return StepResult({}, "nothing")

    return work


def test_turns_start_at_the_interval_however_long_they_take() -> None:
    stop = Pauses(2)

    def work(_stop: Event) -> StepResult:
        clock.advance(100_000)
        return StepResult({"events": 10}, "10 events")

    turns, registry, clock = _turns(stop, Step("ingest", work))
    turns.run()
    assert stop.taken == [800.0, 800.0]
    assert registry.get_sample_value("karrot_pipeline_rows_total", {"table": "events"}) == 20
    assert registry.get_sample_value("karrot_pipeline_step_seconds", {"step": "ingest"}) == 100
    assert registry.get_sample_value("karrot_pipeline_turns_total", {"outcome": "done"}) == 2
    assert registry.get_sample_value("karrot_pipeline_last_success_timestamp_seconds") == clock.wall_ms() / 1000


def test_a_turn_that_takes_longer_than_the_interval_is_followed_at_once() -> None:
    stop = Pauses(1)

    def work(_stop: Event) -> StepResult:
        clock.advance(2_000_000)
        return StepResult({}, "")

    turns, _, clock = _turns(stop, Step("derive", work))
    turns.run()
    assert stop.taken == [0.0]


def test_a_failed_turn_is_tried_again_sooner_and_then_later_and_later() -> None:
    stop, away = Pauses(7), OSError("no route to host")
    turns, registry, _ = _turns(stop, Step("ingest", _failing(*[away] * 6, None)))
    turns.run()
    assert stop.taken == [60.0, 120.0, 240.0, 480.0, 900.0, 900.0, 900.0]
    assert registry.get_sample_value("karrot_pipeline_turns_total", {"outcome": "failed"}) == 6
    assert registry.get_sample_value("karrot_pipeline_failures_total", {"step": "ingest", "code": "OSError"}) == 6


def test_a_failed_step_does_not_keep_the_others_from_their_work() -> None:
    done: list[str] = []

    def work(_stop: Event) -> StepResult:
        done.append("derive")
        return StepResult({}, "")

    turns, registry, _ = _turns(Event(), Step("ingest", _failing(OSError("the archive is away"))), Step("derive", work))
    assert turns.turn() == [StepFailure("OSError", "the archive is away")]
    assert done == ["derive"]
    success = registry.get_sample_value("karrot_pipeline_last_success_timestamp_seconds")
    assert success == ManualClock().wall_ms() / 1000, "a failed turn is no success"


def test_the_end_of_a_turn_is_remembered_only_if_no_step_failed() -> None:
    remembered: list[float] = []
    turns, _, clock = _turns(Event(), Step("ingest", _failing(OSError("the archive is away"), None)))
    turns.remember = remembered.append
    turns.turn()
    assert remembered == []
    turns.turn()
    assert remembered == [clock.wall_ms() / 1000]


def test_a_turn_whose_end_cannot_be_stored_has_not_failed() -> None:
    def full(_now_s: float) -> None:
        raise OSError("the disk is full")

    turns, registry, _ = _turns(Event(), Step("ingest", _failing(None)))
    turns.remember = full
    assert turns.turn() == []
    assert registry.get_sample_value("karrot_pipeline_turns_total", {"outcome": "done"}) == 1


def test_a_step_that_is_not_due_is_left_out() -> None:
    turns, registry, _ = _turns(Event(), Step("compact", _failing(OSError("must not run")), lambda: False))
    assert turns.turn() == []
    assert registry.get_sample_value("karrot_pipeline_turns_total", {"outcome": "done"}) == 1


def test_a_step_that_cannot_tell_whether_it_is_due_has_failed() -> None:
    def is_due() -> bool:
        raise OSError("S3 is away")

    turns, registry, _ = _turns(Event(), Step("compact", _failing(OSError("must not run")), is_due))
    assert turns.turn() == [StepFailure("OSError", "S3 is away")]
    assert registry.get_sample_value("karrot_pipeline_failures_total", {"step": "compact", "code": "OSError"}) == 1


def test_an_error_that_no_later_turn_can_mend_ends_the_process() -> None:
    turns, registry, _ = _turns(Event(), Step("derive", _failing(MemoryError("the heap is full"))))
    with pytest.raises(CannotContinue, match="the heap is full"):
        turns.run()
    assert registry.get_sample_value("karrot_pipeline_turns_total", {"outcome": "failed"}) == 1


def test_a_stop_ends_the_turn_after_its_step_and_is_no_failure() -> None:
    stop = Event()

    def work(linked: Event) -> StepResult:
        stop.set()
        assert linked.is_set()
        raise RuntimeError("the job was cancelled")

    turns, registry, _ = _turns(stop, Step("ingest", work), Step("derive", _failing(OSError("must not run"))))
    turns.run()
    assert registry.get_sample_value("karrot_pipeline_turns_total", {"outcome": "stopped"}) == 1
    assert registry.get_sample_value("karrot_pipeline_turns_total", {"outcome": "failed"}) == 0
