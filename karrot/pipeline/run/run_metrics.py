"""Declares the metrics of ``karrot pipeline run``, and keeps their values for a scrape."""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Final

from karrot.pipeline.stream.metric_values import MetricValues
from karrot.telemetry import Metric

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
    """The values of the metrics. They begin again when the process starts again."""

    def __init__(self, *, started_s: float, interval_s: float) -> None:
        super().__init__(PIPELINE_METRICS)
        for step, code in product(_STEPS, _CODES):
            self.add(FAILURES, 0, step, code)  # so that a first failure is an increase
        self.set(INTERVAL, interval_s)
        self.set(LAST_SUCCESS, started_s)
        self.set(LEASE_HELD_BY_OTHER, 0)

    def failed(self, step: str, code: str) -> None:
        """Count a failed step."""
        self.add(FAILURES, 1, step, code)

    def took(self, step: str, seconds: float) -> None:
        """Set the duration of a step."""
        self.set(STEP_SECONDS, seconds, step)

    def wrote(self, rows: Mapping[str, int]) -> None:
        """Count rows by table."""
        for table, count in rows.items():
            self.add(ROWS, count, table)

    def turn_ended(self, outcome: str, codes: Iterable[str], now_s: float) -> None:
        """Count a turn. ``codes`` are the reasons of its failed steps."""
        self.add(TURNS, 1, outcome)
        self.set(LEASE_HELD_BY_OTHER, "lease_held" in codes)
        if outcome == "done":
            self.set(LAST_SUCCESS, now_s)

    def last_success(self, at_s: float) -> None:
        """Set the time at which an earlier process ended its last turn without a failure."""
        self.set(LAST_SUCCESS, at_s)

    def newest_event(self, at_s: float) -> None:
        """Set the time of the newest event in the tables."""
        self.set(NEWEST_EVENT, at_s)
