"""Declares the metrics of the judge of Burrow's rules, and keeps their values and the job's health for a scrape."""

from datetime import timedelta
from typing import Final

from karrot.clock import Clock
from karrot.pipeline.evaluate.burrow_judge import JudgedBatch
from karrot.pipeline.stream.metrics_and_health_server import MetricValues
from karrot.telemetry import Metric, MetricKind
from karrot.text import duration


def _metric(name: str, kind: MetricKind, text: str, *labels: str) -> Metric:
    return Metric(name, kind, text, ("cluster", *labels))


BATCHES: Final = _metric(
    "karrot_evaluate_batches_total", "counter", "Batches that were judged, and whose verdicts were delivered."
)
BATCH_SECONDS: Final = _metric(
    "karrot_evaluate_batch_seconds",
    "gauge",
    "Duration of the last judgement and the delivery of its verdicts, in seconds.",
)
LAST_BATCH: Final = _metric(
    "karrot_evaluate_last_batch_timestamp_seconds",
    "gauge",
    "Time of the newest verdicts that all receivers have. Before the first batch, the time at which the process "
    "started.",
)
INTERVAL: Final = _metric(
    "karrot_evaluate_interval_seconds", "gauge", "How often all groups are judged (--every), in seconds."
)
GROUPS: Final = _metric("karrot_evaluate_groups", "gauge", "Consumer groups that have committed, in the last batch.")
PARTITIONS: Final = _metric(
    "karrot_evaluate_partitions", "gauge", "Partitions on which these groups have committed, one for each group."
)
VERDICTS: Final = _metric(
    "karrot_evaluate_verdicts_total",
    "counter",
    "Verdicts by outcome, for each receiver. delivered: the receiver took it. refused: the receiver refused its "
    "content, and the checkpoint keeps it. superseded: dropped while it waited, because the group has a newer verdict "
    "with the same status and incident.",
    "outcome",
)
WAITING: Final = _metric(
    "karrot_evaluate_waiting_verdicts", "gauge", "Verdicts that wait for a receiver that does not answer."
)
CATCHING_UP: Final = _metric(
    "karrot_evaluate_catching_up",
    "gauge",
    "1 while more records wait than a batch takes. The groups are not judged meanwhile, because their newest commits "
    "are not known yet.",
)
UNREADABLE: Final = _metric(
    "karrot_evaluate_unreadable_records_total",
    "counter",
    "Records of __consumer_offsets that could not be read. They are in the table quarantine.",
)
LOG_END_FAILURES: Final = _metric(
    "karrot_evaluate_log_end_failures_total", "counter", "Requests to Kafka for log end offsets that failed."
)

EVALUATE_METRICS: Final = tuple(metric for metric in tuple(globals().values()) if isinstance(metric, Metric))
"""Every metric of ``karrot pipeline offsets --judge burrow``. The service does not export these metrics."""


class EvaluateMetrics(MetricValues):
    def __init__(self, cluster: str, clock: Clock, every: timedelta) -> None:
        super().__init__(EVALUATE_METRICS)
        self._cluster, self._clock, self._ended_ms = cluster, clock, clock.boot_ms()
        self._limit_s = max(10 * every.total_seconds(), 1800.0)
        for metric in (BATCHES, UNREADABLE, LOG_END_FAILURES):
            self.add(metric, 0, cluster)
        for outcome in ("delivered", "refused", "superseded"):
            self.add(VERDICTS, 0, cluster, outcome)
        self.set(INTERVAL, every.total_seconds(), cluster)
        self.set(LAST_BATCH, clock.wall_ms() / 1000, cluster)

    def landed(self, quarantined: int) -> None:
        """Note the end of a batch, and its records that could not be read."""
        self._ended_ms = self._clock.boot_ms()
        self.add(UNREADABLE, quarantined, self._cluster)

    def judged(self, batch: JudgedBatch) -> None:
        cluster = self._cluster
        self.set(CATCHING_UP, 0 if batch.is_judged else 1, cluster)
        self.set(BATCH_SECONDS, batch.seconds, cluster)
        self.set(GROUPS, batch.groups, cluster)
        self.set(PARTITIONS, batch.partitions, cluster)
        self.add(VERDICTS, batch.delivered, cluster, "delivered")
        self.add(VERDICTS, len(batch.refused), cluster, "refused")
        self.add(VERDICTS, batch.superseded, cluster, "superseded")
        self.set(WAITING, batch.waiting, cluster)
        if batch.is_judged and not batch.waiting:
            self.add(BATCHES, 1, cluster)
            self.set(LAST_BATCH, batch.now_ms / 1000, cluster)

    def log_ends_failed(self) -> None:
        self.add(LOG_END_FAILURES, 1, self._cluster)

    def problem(self) -> str | None:
        """Return a message if no batch has ended for ten intervals and for 30 minutes, because the job then hangs.

        The limit is 30 minutes because the first batches of a large topic take minutes.
        """
        if self._clock.boot_ms() - self._ended_ms <= self._limit_s * 1000:
            return None
        return f"no batch has ended for more than {duration(self._limit_s)}"
