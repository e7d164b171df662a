"""Declares the metrics of ``karrot pipeline evaluate``, and keeps their values for a scrape."""

from typing import Final

from karrot.pipeline.evaluate.job import EvaluatedBatch
from karrot.pipeline.stream.metric_values import MetricValues
from karrot.telemetry import Metric

BATCHES: Final = Metric(
    "karrot_evaluate_batches_total", "counter", "Batches that were judged, and whose verdicts were delivered."
)
BATCH_SECONDS: Final = Metric(
    "karrot_evaluate_batch_seconds",
    "gauge",
    "Duration of the last batch and the delivery of its verdicts, in seconds.",
)
LAST_BATCH: Final = Metric(
    "karrot_evaluate_last_batch_timestamp_seconds",
    "gauge",
    "Time of the verdicts of the last batch. Before the first batch, the time at which the process started.",
)
INTERVAL: Final = Metric(
    "karrot_evaluate_interval_seconds", "gauge", "How often all groups are judged (--every), in seconds."
)
GROUPS: Final = Metric("karrot_evaluate_groups", "gauge", "Consumer groups that have committed, in the last batch.")
PARTITIONS: Final = Metric(
    "karrot_evaluate_partitions", "gauge", "Partitions on which these groups have committed, one for each group."
)
VERDICTS: Final = Metric(
    "karrot_evaluate_verdicts_total",
    "counter",
    "Verdicts by outcome, for each receiver. delivered: the receiver took it. refused: the receiver refused its "
    "content. Refused verdicts are kept in the checkpoint.",
    ("outcome",),
    known=("delivered", "refused"),
)
CATCHING_UP: Final = Metric(
    "karrot_evaluate_catching_up",
    "gauge",
    "1 while more records wait than a batch takes. The groups are not judged meanwhile, because their newest commits "
    "are not known yet.",
)
UNREADABLE: Final = Metric(
    "karrot_evaluate_unreadable_records_total",
    "counter",
    "Records of __consumer_offsets that could not be read. They are in the table quarantine.",
)
LOG_END_FAILURES: Final = Metric(
    "karrot_evaluate_log_end_failures_total", "counter", "Requests to Kafka for log end offsets that failed."
)

EVALUATE_METRICS: Final = (
    BATCHES,
    BATCH_SECONDS,
    LAST_BATCH,
    INTERVAL,
    GROUPS,
    PARTITIONS,
    VERDICTS,
    CATCHING_UP,
    UNREADABLE,
    LOG_END_FAILURES,
)
"""Every metric of ``karrot pipeline evaluate``. The service does not export them."""


class EvaluateMetrics(MetricValues):
    """The values of the metrics. They begin again when the process starts again."""

    def __init__(self, *, started_s: float, interval_s: float) -> None:
        super().__init__(EVALUATE_METRICS)
        self.add(BATCHES, 0)
        self.add(UNREADABLE, 0)
        self.add(LOG_END_FAILURES, 0)
        self.set(INTERVAL, interval_s)
        self.set(LAST_BATCH, started_s)

    def took(self, batch: EvaluatedBatch) -> None:
        """Take the counts of a batch."""
        self.set(CATCHING_UP, 0 if batch.is_judged else 1)
        self.set(BATCH_SECONDS, batch.seconds)
        self.set(GROUPS, batch.groups)
        self.set(PARTITIONS, batch.partitions)
        self.add(VERDICTS, batch.delivery.taken, "delivered")
        self.add(VERDICTS, len(batch.delivery.refused), "refused")
        self.add(UNREADABLE, batch.unreadable)
        if batch.is_judged:
            self.add(BATCHES, 1)
            self.set(LAST_BATCH, batch.now_ms / 1000)

    def log_ends_failed(self) -> None:
        """Count a request for log ends that failed."""
        self.add(LOG_END_FAILURES, 1)
