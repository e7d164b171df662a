"""Declares each of Karrot's metrics once.

Counters live in the event log (``log.count(METRIC.name, by, **labels)``), so that every worker shows the same; gauges
are read from it when somebody scrapes. What is not declared here is not exported.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

MetricKind = Literal["counter", "gauge", "histogram"]

GROUP = ("cluster", "consumer")
PARTITION = (*GROUP, "topic", "partition")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family.

    ``name`` is the name of its samples, ``_total`` of a counter included. ``known`` are the values of its only label
    that are known beforehand: they are shown as 0 until counted, so that the first increase is seen as one.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    known: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Histogram(Metric):
    """A histogram kept as counters: ``_bucket`` per upper bound (not cumulative, so one per observation) and ``_sum``.

    ``bounds`` are the upper bounds in ascending order; ``+Inf`` is implied.
    """

    bounds: tuple[float, ...] = ()
    edges: tuple[str, ...] = field(init=False)
    """The values of the label ``le``, in order."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", (*map(str, self.bounds), "+Inf"))

    def observe(self, count: Callable[..., None], value: float) -> None:
        """Count one observation through ``count(name, by, **labels)``."""
        count(f"{self.name}_bucket", 1, le=self.edges[bisect_left(self.bounds, value)])
        count(f"{self.name}_sum", value)


CONSUMER_LAG = Metric("karrot_consumer_lag", "gauge", "Total lag over all partitions, in messages.", GROUP)
CONSUMER_MAX_LAG = Metric(
    "karrot_consumer_max_lag", "gauge", "Lag of the partition that lags most, in messages.", GROUP
)
CONSUMER_SCALABLE_LAG = Metric(
    "karrot_consumer_scalable_lag",
    "gauge",
    "Total lag less that of STOP, STALL and REWIND partitions: what more consumers could work off, in messages.",
    GROUP,
)
CONSUMER_LAG_SECONDS = Metric(
    "karrot_consumer_lag_seconds",
    "gauge",
    "How long ago the log end of the max-lag partition stood where its newest commit stands.",
    GROUP,
)
CONSUMER_CATCH_UP_SECONDS = Metric(
    "karrot_consumer_catch_up_seconds",
    "gauge",
    "Time until the max-lag partition has no lag at the present rates; absent while it does not catch up.",
    GROUP,
)
CONSUMER_PRODUCE_RATE = Metric(
    "karrot_consumer_produce_rate", "gauge", "Messages per second written to the max-lag partition.", GROUP
)
CONSUMER_CONSUME_RATE = Metric(
    "karrot_consumer_consume_rate", "gauge", "Messages per second committed on the max-lag partition.", GROUP
)
CONSUMER_STATUS = Metric(
    "karrot_consumer_status",
    "gauge",
    "Burrow's verdict: 1 for the present status, 0 for the others.",
    (*GROUP, "status"),
)
CONSUMER_STATUS_CODE = Metric(
    "karrot_consumer_status_code", "gauge", "Burrow's verdict as its number: 1 OK, 2 WARN, 3 ERR.", GROUP
)
CONSUMER_PARTITIONS = Metric("karrot_consumer_partitions", "gauge", "Partitions that Burrow knows of the group.", GROUP)
CONSUMER_BAD_PARTITIONS = Metric(
    "karrot_consumer_bad_partitions", "gauge", "Partitions by status, of those worse than OK.", (*GROUP, "status")
)
CONSUMER_COMPLETE_RATIO = Metric(
    "karrot_consumer_complete_ratio", "gauge", "Share of the partitions whose window of commits is full.", GROUP
)
CONSUMER_LAST_EVENT = Metric(
    "karrot_consumer_last_event_timestamp_seconds", "gauge", "When the newest verdict on the group was taken.", GROUP
)
CONSUMER_LAST_COMMIT = Metric(
    "karrot_consumer_last_commit_timestamp_seconds",
    "gauge",
    "When the newest commit of the max-lag partition was made, by the broker's clock.",
    GROUP,
)
CONSUMER_INCIDENT_START = Metric(
    "karrot_consumer_incident_start_timestamp_seconds",
    "gauge",
    "When the present incident began; absent outside one.",
    GROUP,
)
CONSUMER_INCIDENTS = Metric("karrot_consumer_incidents_total", "counter", "Incidents of the group so far.", GROUP)
CONSUMER_TOPIC_LAG = Metric(
    "karrot_consumer_topic_lag",
    "gauge",
    "Lag by topic, in messages; only of verdicts that list every partition (KARROT_TOPIC_METRICS).",
    (*GROUP, "topic"),
)
PARTITION_LAG = Metric(
    "karrot_partition_lag", "gauge", "Lag of a listed partition, in messages (KARROT_PARTITION_METRICS).", PARTITION
)
PARTITION_STATUS_CODE = Metric(
    "karrot_partition_status_code",
    "gauge",
    "Status of a listed partition: 1 OK, 2 WARN, 4 STOP, 5 STALL, 6 REWIND (KARROT_PARTITION_METRICS).",
    PARTITION,
)

CONSUMER_GROUP_STATE = Metric(
    "karrot_consumer_group_state",
    "gauge",
    "State of the group: 1 for the present one, 0 for the others (only with KARROT_WATCH_BOOTSTRAP).",
    (*GROUP, "state"),
)
CONSUMER_MEMBERS = Metric(
    "karrot_consumer_members", "gauge", "Members of the group (only with KARROT_WATCH_BOOTSTRAP).", GROUP
)
CONSUMER_COORDINATOR = Metric(
    "karrot_consumer_coordinator_id",
    "gauge",
    "Id of the broker that coordinates the group (only with KARROT_WATCH_BOOTSTRAP).",
    GROUP,
)
CONSUMER_REBALANCES = Metric(
    "karrot_consumer_rebalances_total",
    "counter",
    "Rebalances of the group that polls could see (only with KARROT_WATCH_BOOTSTRAP).",
    GROUP,
)
CONSUMER_MESSAGES_LOST = Metric(
    "karrot_consumer_messages_lost",
    "gauge",
    "Messages deleted before the group read them, until it goes on behind them (only with KARROT_WATCH_BOOTSTRAP).",
    GROUP,
)
CONSUMER_RETENTION_MARGIN = Metric(
    "karrot_consumer_retention_margin",
    "gauge",
    "Messages between the log start and the oldest unread one, where that is least; absent if nothing is unread "
    "(only with KARROT_WATCH_BOOTSTRAP).",
    GROUP,
)

BUILD_INFO = Metric("karrot_build_info", "gauge", "Always 1; the labels say what runs.", ("version", "python"))
EVENTS_ACCEPTED = Metric(
    "karrot_events_accepted_total",
    "counter",
    "Events stored durably, by source.",
    ("source",),
    known=("webhook", "rest", "kafka"),
)
WEBHOOK_EVENTS = Metric(
    "karrot_webhook_events_total",
    "counter",
    "Events stored that came by webhook, by kind: observation (a healthy group), incident, close.",
    ("kind",),
    known=("observation", "incident", "close"),
)
EVENTS_REJECTED = Metric(
    "karrot_events_rejected_total",
    "counter",
    "Events refused, by code.",
    ("code",),
    known=(
        "invalid_json",
        "not_an_object",
        "unsupported_template",
        "invalid_field",
        "invalid_text",
        "incomplete_body",
        "too_large",
        "length_required",
        "unsupported_media_type",
        "unauthorized",
        "overloaded",
        "log_unavailable",
        "unconfirmed",
        "internal_error",
    ),
)
EVENT_HANDLING_SECONDS = Histogram(
    "karrot_event_handling_seconds",
    "histogram",
    "Time from the body of an event to its durable commit.",
    bounds=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)
LAST_EVENT = Metric(
    "karrot_last_event_timestamp_seconds",
    "gauge",
    "When the Burrow of a cluster was last heard by webhook; never expires, 0 for an expected cluster not heard yet.",
    ("cluster",),
)
BURROW_SELF_LAG = Metric(
    "karrot_burrow_self_lag",
    "gauge",
    "Lag of Burrow itself on __consumer_offsets, in messages: while it grows, every other lag is old.",
    ("cluster",),
)
WATCH_LAST_POLL = Metric(
    "karrot_watch_last_poll_timestamp_seconds",
    "gauge",
    "When Kafka was last asked about all groups of a cluster, 0: never; never expires (with KARROT_WATCH_BOOTSTRAP).",
    ("cluster",),
)
WATCH_POLL_SECONDS = Metric(
    "karrot_watch_poll_seconds",
    "gauge",
    "How long the last poll of Kafka took, in seconds (only with KARROT_WATCH_BOOTSTRAP).",
    ("cluster",),
)
WATCH_FAILURES = Metric(
    "karrot_watch_failures_total",
    "counter",
    "Groups, partitions and clusters that Kafka did not tell about, by Kafka's name of the error.",
    ("reason",),
)
RESYNC_RUNS = Metric(
    "karrot_resync_runs_total",
    "counter",
    "Passes over Burrow's REST API by outcome (only with KARROT_BURROW_URL).",
    ("outcome",),
)
RESYNC_GROUPS = Metric(
    "karrot_resync_groups_total",
    "counter",
    "Groups of these passes by outcome: taken, deleted, not_found, unaddressable, unavailable, failed.",
    ("outcome",),
)
LOG_WRITABLE = Metric("karrot_log_writable", "gauge", "Whether the answering worker's last commit succeeded.")
CONSUMERS = Metric("karrot_consumers", "gauge", "Consumer groups that have neither expired nor been deleted.")
CONSUMERS_EXPIRED = Metric(
    "karrot_consumers_expired_total", "counter", "Consumer groups that fell silent for KARROT_STALE_AFTER."
)
SERIES_DROPPED = Metric(
    "karrot_series_dropped_total",
    "counter",
    "Times a consumer group got no series: it was beyond KARROT_MAX_CONSUMERS, or its name met a newer one's when cut.",
)
LOG_EVENTS = Metric("karrot_log_events", "gauge", "Events in the log.")
LOG_SIZE_BYTES = Metric("karrot_log_size_bytes", "gauge", "Size of the log on disk.")
LOG_WAL_BYTES = Metric(
    "karrot_log_wal_bytes",
    "gauge",
    "Size of the log's write-ahead log on disk; far above 4 MB while a program holds a read transaction on it.",
)
LOG_PRUNED = Metric("karrot_log_pruned_total", "counter", "Events deleted from the log for their age or its size.")
LOG_DAMAGED = Metric("karrot_log_damaged_total", "counter", "Groups whose state did not match its checksum any more.")
LOG_REPLACED = Metric(
    "karrot_log_replaced_total", "counter", "Damaged logs that were set aside; a new one began each time."
)
LOG_HOUSEKEEPING_FAILURES = Metric(
    "karrot_log_housekeeping_failures_total",
    "counter",
    "Times that the leading worker could neither expire groups nor prune events, by reason; it tries again.",
    ("reason",),
    known=("log_unavailable", "overloaded", "unexpected"),
)
REPORTER_EVENTS = Metric("karrot_reporter_events_count_total", "counter", "Events handed to a reporter.", ("reporter",))
REPORTER_FAILURES = Metric(
    "karrot_reporter_failures_total", "counter", "Reports that failed, by reason.", ("reporter", "reason")
)
REPORTER_DROPPED = Metric(
    "karrot_reporter_dropped_total",
    "counter",
    "Events that a reporter never got and values that it will never send, by reason.",
    ("reporter", "reason"),
)
REPORTER_CLOUDWATCH_API = Metric(
    "karrot_reporter_cloudwatch_api_count_total",
    "counter",
    "Calls of PutMetricData by the HTTP status of the answer; error where none came.",
    ("reporter", "status"),
)
REPORTER_CLOUDWATCH_DATA = Metric(
    "karrot_reporter_cloudwatch_data_total",
    "counter",
    "Data that CloudWatch took (sent), and names that were too long for it (name_cut).",
    ("reporter", "outcome"),
)
REPORTER_ARCHIVE_SEGMENTS = Metric(
    "karrot_reporter_archive_segments_total",
    "counter",
    "Segments of the archive that were written, and those deleted because they were too old or all were too large.",
    ("reporter", "outcome"),
)
REPORTER_ARCHIVE_BYTES = Metric(
    "karrot_reporter_archive_bytes_total", "counter", "Bytes of those segments, compressed.", ("reporter", "outcome")
)
REPORTER_BACKLOG_EVENTS = Metric(
    "karrot_reporter_backlog_events", "gauge", "Events in the log that a reporter has not had yet.", ("reporter",)
)
REPORTER_BACKLOG_AGE = Metric(
    "karrot_reporter_backlog_age_seconds", "gauge", "Age of the oldest event a reporter has not had yet.", ("reporter",)
)

METRICS: tuple[Metric, ...] = tuple(metric for metric in tuple(globals().values()) if isinstance(metric, Metric))
"""Every metric, in the order of this file, which is that of the exposition."""
