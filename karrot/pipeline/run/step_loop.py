"""Runs the steps of the pipeline in turns, until the process has to stop.

A step that fails does not stop the other steps or the process: the next turn tries again. After a failure, the next
turn starts earlier than usual. Each further failure doubles the pause, up to the interval.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import product
from threading import Event
from typing import Final, NamedTuple

import structlog

from karrot.clock import Clock
from karrot.pipeline.stream.metrics_and_health_server import MetricValues
from karrot.telemetry import Metric
from karrot.text import duration

TURNS: Final = Metric(
    "karrot_pipeline_turns_total",
    "counter",
    "Turns by outcome. done: no step failed. failed: a step failed, and the next turn tries again. stopped: the "
    "process had to end.",
    ("outcome",),
    known=("done", "failed", "stopped"),
)
FAILURES: Final = Metric(
    "karrot_pipeline_failures_total",
    "counter",
    "Failed steps by reason. lease_held: another process writes the tables. source_away: Kafka or the archive cannot "
    "be read. disk_full: a disk has no space. failed: any other reason.",
    ("step", "code"),
)
STEP_SECONDS: Final = Metric(
    "karrot_pipeline_step_seconds",
    "gauge",
    "Duration of a step in the last turn that finished it, in seconds.",
    ("step",),
)
ROWS: Final = Metric(
    "karrot_pipeline_rows_total", "counter", "Rows that ingest and offsets wrote, by table.", ("table",)
)
LAST_SUCCESS: Final = Metric(
    "karrot_pipeline_last_success_timestamp_seconds",
    "gauge",
    "Time at which the last turn on these tables without a failure ended, also in an earlier process. Before the first "
    "such turn, the time at which the process started.",
)
NEWEST_EVENT: Final = Metric(
    "karrot_pipeline_newest_event_timestamp_seconds",
    "gauge",
    "Time at which Karrot received the newest event of the tables. Absent while the tables have no event.",
)
INTERVAL: Final = Metric(
    "karrot_pipeline_interval_seconds", "gauge", "Time between the starts of two turns (--every), in seconds."
)
LEASE_HELD_BY_OTHER: Final = Metric(
    "karrot_pipeline_lease_held_by_other",
    "gauge",
    "Whether another process held a lease of the tables in the last turn: 1 if it did, 0 if it did not.",
)

_STEPS: Final = ("ingest", "offsets", "ends", "derive", "compact")
_CODES: Final = ("lease_held", "source_away", "disk_full", "failed")

PIPELINE_METRICS: Final = (
    TURNS,
    FAILURES,
    STEP_SECONDS,
    ROWS,
    LAST_SUCCESS,
    NEWEST_EVENT,
    INTERVAL,
    LEASE_HELD_BY_OTHER,
)
"""Every metric of ``karrot pipeline run``. The service does not export them."""


class RunMetrics(MetricValues):
    def __init__(self, *, started_s: float, interval_s: float) -> None:
        super().__init__(PIPELINE_METRICS)
        for step, code in product(_STEPS, _CODES):
            self.add(FAILURES, 0, step, code)  # so that a first failure is an increase
        self.set(INTERVAL, interval_s)
        self.set(LAST_SUCCESS, started_s)
        self.set(LEASE_HELD_BY_OTHER, 0)

    def failed(self, step: str, code: str) -> None:
        self.add(FAILURES, 1, step, code)


_log = structlog.get_logger(__name__)

FIRST_RETRY: Final = timedelta(minutes=1)
"""The pause after the first failed turn. It doubles with each further failed turn, up to the usual interval."""


class StepResult(NamedTuple):
    rows: Mapping[str, int]
    text: str


class Step(NamedTuple):
    """A part of a turn. ``work`` gets an event that is set when the process has to stop."""

    name: str
    work: Callable[[Event], StepResult]
    is_due: Callable[[], bool] = lambda: True


class StepFailure(NamedTuple):
    """The reason why a step failed: a stable code and a sentence. If ``is_final``, no later turn can succeed."""

    code: str
    reason: str
    is_final: bool = False


class CannotContinue(RuntimeError):  # noqa: N818 (names the state of the process)
    """No later turn can succeed. The process has to end, and its supervisor has to start it again."""


@dataclass(slots=True)
class TurnLoop:
    """The loop. ``explain`` turns the name and the error of a step into a `StepFailure`.

    ``remember`` gets the end of a turn without a failure, in epoch seconds. Errors of ``remember`` are logged.

    ``started_ms`` is the time on the boot clock at which the open turn started; ``None`` between two turns.
    """

    steps: Sequence[Step]
    every: timedelta
    clock: Clock
    metrics: RunMetrics
    explain: Callable[[str, Exception], StepFailure]
    stop: Event = field(default_factory=Event)
    remember: Callable[[float], object] = lambda _now_s: None
    started_ms: int | None = None

    def run(self) -> list[StepFailure]:
        """Run turns until ``stop`` is set, and return no failures. Raises `CannotContinue`."""
        failed = 0
        while not self.stop.is_set():
            began = self.clock.boot_ms()
            failed = 0 if not self.turn() else failed + 1
            left = self.every - timedelta(milliseconds=self.clock.boot_ms() - began)
            self.stop.wait(max(0.0, (self.pause_after(failed) if failed else left).total_seconds()))
        return []

    def pause_after(self, failed: int) -> timedelta:
        return min(self.every, FIRST_RETRY * (1 << min(failed - 1, 20)))

    def turn(self) -> list[StepFailure]:
        """Run the steps that are due, one after the other. Return the reasons of the failed ones.

        Raises `CannotContinue` if a reason is final.
        """
        self.started_ms = self.clock.boot_ms()
        failures: list[StepFailure] = []
        for step in self.steps:
            if self.stop.is_set():
                break
            if failure := self._done(step):
                failures.append(failure)
                if failure.is_final:
                    break
        self.started_ms = None
        outcome = "failed" if failures else "stopped" if self.stop.is_set() else "done"
        now_s = self.clock.wall_ms() / 1000
        self.metrics.add(TURNS, 1, outcome)
        self.metrics.set(LEASE_HELD_BY_OTHER, any(each.code == "lease_held" for each in failures))
        if outcome == "done":
            self.metrics.set(LAST_SUCCESS, now_s)
            try:
                self.remember(now_s)
            except Exception as error:  # noqa: BLE001 (the turn itself succeeded, and the next one tries again)
                reason = self.explain("turn", error).reason
                _log.warning("the time of this turn is not stored", code="turn_not_stored", reason=reason)
        if failures and failures[-1].is_final:
            raise CannotContinue(failures[-1].reason)
        return failures

    def _done(self, step: Step) -> StepFailure | None:
        began = self.clock.boot_ms()
        try:
            if not step.is_due():
                return None
            done = step.work(self.stop)
        except Exception as error:  # noqa: BLE001 (the outermost loop: every error is explained, logged and counted)
            if self.stop.is_set():
                _log.info("step abandoned", step=step.name)
                return None
            failure = self.explain(step.name, error)
            self.metrics.failed(step.name, failure.code)
            _log.error("step failed", step=step.name, code=failure.code, reason=failure.reason)
            return failure
        seconds = (self.clock.boot_ms() - began) / 1000
        self.metrics.set(STEP_SECONDS, seconds, step.name)
        for table, count in done.rows.items():
            self.metrics.add(ROWS, count, table)
        _log.info("step done", step=step.name, seconds=round(seconds, 1), result=done.text)
        return None


class TurnHealth:
    """Says why the process is not healthy. While Spark starts, the process is healthy."""

    def __init__(self, clock: Clock, turn_limit: timedelta) -> None:
        self._clock, self._limit = clock, turn_limit
        self.watched: tuple[TurnLoop, Callable[[], bool]] | None = None

    def __call__(self) -> str | None:
        if self.watched is None:
            return None
        turns, spark_is_alive = self.watched
        began = turns.started_ms
        if began is not None and self._clock.boot_ms() - began > self._limit.total_seconds() * 1000:
            return f"a turn has been running for more than {duration(self._limit.total_seconds())}"
        return None if spark_is_alive() else "Spark has ended"
