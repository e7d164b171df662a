"""Runs the steps of the pipeline in turns, until the process has to stop.

A step that fails does not stop the other steps or the process: the next turn tries again. After a failure, the next
turn starts earlier than usual. Each further failure doubles the pause, up to the interval.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import product
from threading import Event
from typing import Any, Final, NamedTuple

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
    "karrot_pipeline_rows_total", "counter", "Rows that the steps events and offsets wrote, by table.", ("table",)
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

_STEPS: Final = ("events", "offsets", "ends", "derive", "compact", "report")
_CODES: Final = ("lease_held", "source_away", "disk_full", "failed")

PIPELINE_METRICS: Final = tuple(metric for metric in tuple(globals().values()) if isinstance(metric, Metric))
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
    """What a step did: a sentence, its numbers for JSON, and the rows that it wrote by table."""

    text: str
    details: Mapping[str, Any] = {}
    rows: Mapping[str, int] = {}


Work = Callable[[Event], StepResult | None]
"""The work of a step; ``None`` if it was not due. It gets an event that is set when the process has to stop."""


class StepFailure(NamedTuple):
    """The reason why a step failed: a stable code and a sentence. If ``is_final``, no later turn can succeed.

    If ``is_refused``, the step did not begin, because its options or its input are wrong.
    """

    code: str
    reason: str
    is_final: bool = False
    is_refused: bool = False


class CannotContinue(RuntimeError):  # noqa: N818 (names the state of the process)
    """No later turn can succeed. The process has to end, and its supervisor has to start it again."""


def log_outcome(step: str, outcome: StepResult | StepFailure, seconds: float) -> None:
    if isinstance(outcome, StepResult):
        _log.info("step done", step=step, seconds=round(seconds, 1), result=outcome.text)
    else:
        _log.error("step failed", step=step, code=outcome.code, reason=outcome.reason)


def _unexplained(_step: str, error: Exception) -> StepFailure:
    raise error


@dataclass(slots=True)
class TurnLoop:
    """The loop. Set the steps, ``explain``, ``remember`` and ``is_alive`` when Spark has started.

    ``explain`` turns the name and the error of a step into a `StepFailure`. ``tell`` gets the outcome of each step.
    ``remember`` gets the end of a turn without a failure, in epoch seconds. Errors of ``remember`` are logged.

    ``started_ms`` is the time on the boot clock at which the open turn started; ``None`` between two turns.
    """

    every: timedelta
    clock: Clock
    metrics: RunMetrics
    stop: Event
    tell: Callable[[str, StepResult | StepFailure, float], object] = log_outcome
    steps: Mapping[str, Work] = field(default_factory=dict)
    explain: Callable[[str, Exception], StepFailure] = _unexplained
    remember: Callable[[float], object] = lambda _now_s: None
    is_alive: Callable[[], bool] = lambda: True
    started_ms: int | None = None

    def run(self) -> list[StepFailure]:
        """Run turns until ``stop`` is set, and return no failures. Raises `CannotContinue` if a failure is final."""
        failed = 0
        while not self.stop.is_set():
            began = self.clock.boot_ms()
            failures = self.turn()
            if failures and failures[-1].is_final:
                raise CannotContinue(failures[-1].reason)
            failed = failed + 1 if failures else 0
            left = self.every - timedelta(milliseconds=self.clock.boot_ms() - began)
            self.stop.wait(max(0.0, (self.pause_after(failed) if failed else left).total_seconds()))
        return []

    def pause_after(self, failed: int) -> timedelta:
        return min(self.every, FIRST_RETRY * (1 << min(failed - 1, 20)))

    def turn(self) -> list[StepFailure]:
        """Run the steps that are due, one after the other. Return the reasons of the failed ones."""
        self.started_ms = self.clock.boot_ms()
        failures: list[StepFailure] = []
        for step, work in self.steps.items():
            if self.stop.is_set():
                break
            if failure := self._done(step, work):
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
        return failures

    def problem(self, limit: timedelta) -> str | None:
        """Say why the process is not healthy; ``None`` if it is. While Spark starts, the process is healthy."""
        began = self.started_ms
        if began is not None and self.clock.boot_ms() - began > limit.total_seconds() * 1000:
            return f"a turn has been running for more than {duration(limit.total_seconds())}"
        return None if self.is_alive() else "Spark has ended"

    def require_alive(self) -> None:
        """Raise `CannotContinue` if Spark has ended.

        A signal to ``spark-submit`` ends only the JVM. Without this check, its Python process would live until the next
        turn.
        """
        if not self.is_alive():
            raise CannotContinue("Spark has ended")

    def _done(self, step: str, work: Work) -> StepFailure | None:
        began = self.clock.boot_ms()
        failure: StepFailure | None = None
        try:
            outcome: StepResult | StepFailure | None = work(self.stop)
        except Exception as error:  # noqa: BLE001 (the outermost loop: every error is explained, logged and counted)
            if self.stop.is_set():
                _log.info("step abandoned", step=step)
                return None
            outcome = failure = self.explain(step, error)
            self.metrics.failed(step, failure.code)
        seconds = (self.clock.boot_ms() - began) / 1000
        if isinstance(outcome, StepResult):
            self.metrics.set(STEP_SECONDS, seconds, step)
            for table, count in outcome.rows.items():
                self.metrics.add(ROWS, count, table)
        if outcome is not None:
            self.tell(step, outcome, seconds)
        return failure
