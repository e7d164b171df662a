"""The loop of ``karrot pipeline run``, without Spark."""

from datetime import timedelta
from threading import Event

import pytest
from prometheus_client import CollectorRegistry

from karrot.pipeline.run.step_loop import (
    CannotContinue,
    RunMetrics,
    StepFailure,
    StepResult,
    TurnLoop,
    Work,
)
from support.manual_clock import ManualClock


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


def _turns(stop: Event, **steps: Work) -> tuple[TurnLoop, CollectorRegistry, ManualClock]:
    clock, registry = ManualClock(), CollectorRegistry()
    metrics = RunMetrics(started_s=clock.wall_ms() / 1000, interval_s=900)
    registry.register(metrics)

    def explain(_step: str, error: Exception) -> StepFailure:
        return StepFailure(type(error).__name__, str(error), is_final=isinstance(error, MemoryError))

    turns = TurnLoop(timedelta(seconds=900), clock, metrics, stop, steps=steps, explain=explain)
    return turns, registry, clock


def _failing(*errors: Exception | None) -> Work:
    left = iter(errors)

    def work(_stop: Event) -> StepResult:
        if error := next(left):
            raise error
        return StepResult("nothing")

    return work


def test_turns_start_at_the_interval_however_long_they_take() -> None:
    stop = Pauses(2)

    def work(_stop: Event) -> StepResult:
        clock.advance(100_000)
        return StepResult("10 events", {}, {"events": 10})

    turns, registry, clock = _turns(stop, events=work)
    turns.run()
    assert stop.taken == [800.0, 800.0]
    assert registry.get_sample_value("karrot_pipeline_rows_total", {"table": "events"}) == 20
    assert registry.get_sample_value("karrot_pipeline_step_seconds", {"step": "events"}) == 100
    assert registry.get_sample_value("karrot_pipeline_turns_total", {"outcome": "done"}) == 2
    assert registry.get_sample_value("karrot_pipeline_last_success_timestamp_seconds") == clock.wall_ms() / 1000


def test_a_turn_that_takes_longer_than_the_interval_is_followed_at_once() -> None:
    stop = Pauses(1)

    def work(_stop: Event) -> StepResult:
        clock.advance(2_000_000)
        return StepResult("")

    turns, _, clock = _turns(stop, derive=work)
    turns.run()
    assert stop.taken == [0.0]


def test_a_failed_turn_is_tried_again_sooner_and_then_later_and_later() -> None:
    stop, away = Pauses(7), OSError("no route to host")
    turns, registry, _ = _turns(stop, events=_failing(*[away] * 6, None))
    turns.run()
    assert stop.taken == [60.0, 120.0, 240.0, 480.0, 900.0, 900.0, 900.0]
    assert registry.get_sample_value("karrot_pipeline_turns_total", {"outcome": "failed"}) == 6
    assert registry.get_sample_value("karrot_pipeline_failures_total", {"step": "events", "code": "OSError"}) == 6


def test_a_failed_step_does_not_keep_the_others_from_their_work() -> None:
    done: list[str] = []

    def work(_stop: Event) -> StepResult:
        done.append("derive")
        return StepResult("")

    turns, registry, _ = _turns(Event(), events=_failing(OSError("the archive is away")), derive=work)
    assert turns.turn() == [StepFailure("OSError", "the archive is away")]
    assert done == ["derive"]
    success = registry.get_sample_value("karrot_pipeline_last_success_timestamp_seconds")
    assert success == ManualClock().wall_ms() / 1000, "a failed turn is no success"


def test_the_end_of_a_turn_is_remembered_only_if_no_step_failed() -> None:
    remembered: list[float] = []
    turns, _, clock = _turns(Event(), events=_failing(OSError("the archive is away"), None))
    turns.remember = remembered.append
    turns.turn()
    assert remembered == []
    turns.turn()
    assert remembered == [clock.wall_ms() / 1000]


def test_a_turn_whose_end_cannot_be_stored_has_not_failed() -> None:
    def full(_now_s: float) -> None:
        raise OSError("the disk is full")

    turns, registry, _ = _turns(Event(), events=_failing(None))
    turns.remember = full
    assert turns.turn() == []
    assert registry.get_sample_value("karrot_pipeline_turns_total", {"outcome": "done"}) == 1


def test_a_step_that_is_not_due_is_left_out() -> None:
    turns, registry, _ = _turns(Event(), compact=lambda _stop: None)
    told: list[object] = []
    turns.tell = lambda *outcome: told.append(outcome)
    assert turns.turn() == []
    assert told == []
    assert registry.get_sample_value("karrot_pipeline_step_seconds", {"step": "compact"}) is None
    assert registry.get_sample_value("karrot_pipeline_turns_total", {"outcome": "done"}) == 1


def test_the_outcome_of_each_step_is_told() -> None:
    turns, _, _ = _turns(Event(), events=_failing(OSError("away")), derive=_failing(None))
    told: list[object] = []
    turns.tell = lambda step, outcome, _seconds: told.append((step, outcome))
    turns.turn()
    assert told == [("events", StepFailure("OSError", "away")), ("derive", StepResult("nothing"))]


def test_an_error_that_no_later_turn_can_mend_ends_the_process() -> None:
    turns, registry, _ = _turns(Event(), derive=_failing(MemoryError("the heap is full")))
    with pytest.raises(CannotContinue, match="the heap is full"):
        turns.run()
    assert registry.get_sample_value("karrot_pipeline_turns_total", {"outcome": "failed"}) == 1


def test_a_stop_ends_the_turn_after_its_step_and_is_no_failure() -> None:
    stop = Event()

    def work(linked: Event) -> StepResult:
        stop.set()
        assert linked.is_set()
        raise RuntimeError("the job was cancelled")

    turns, registry, _ = _turns(stop, events=work, derive=_failing(OSError("must not run")))
    turns.run()
    assert registry.get_sample_value("karrot_pipeline_turns_total", {"outcome": "stopped"}) == 1
    assert registry.get_sample_value("karrot_pipeline_turns_total", {"outcome": "failed"}) == 0
