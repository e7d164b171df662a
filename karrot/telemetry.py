"""Declares each of Karrot's metrics once.

Counters are in the event log (``log.count(METRIC, by, **labels)``), so every worker shows the same values. Gauges
are read from the event log at each scrape. Karrot exports only metrics that this file declares.
"""

from dataclasses import dataclass
from typing import Literal

from karrot.runbooks_and_remedies import CODES

MetricKind = Literal["counter", "gauge", "histogram", "info"]

GROUP = ("cluster", "consumer")
PARTITION = (*GROUP, "topic", "partition")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family.

    ``name`` is the name of the samples, with ``_total`` for a counter and ``_info`` for an info. An info is a gauge in
    the text format, which has no infos. An info's labels never change while a process runs. ``known`` lists values of
    the metric's only label. Karrot exports a 0 for each of them before the first count, so that ``rate()`` sees the
    first count. ``now`` is the present name of a metric that is deprecated. Both names have the same samples.
    ``edges`` are the values of a histogram's label ``le``, in order. The log has a counter for each of them, which are
    not cumulative: each observation counts once.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    now: str | None = None
    edges: tuple[str, ...] = ()


def unit_of(family: str) -> str:
    """Return the unit of a family for OpenMetrics: the end of the family's name, or an empty text without a unit."""
    last = family.removesuffix("_total").rpartition("_")[2]
    return last if last in {"bytes", "ratio", "seconds"} else ""


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, "gauge", text, labels)


def _of_group(name: str, text: str, *labels: str) -> Metric:
    return _gauge(name, text, *GROUP, *labels)


def _counter(name: str, text: str, *labels: str, known: tuple[str, ...] = ()) -> Metric:
    return Metric(name, "counter", text, labels, known)


def _old_name(name: str, now: Metric) -> Metric:
    """The old name of a counter. Karrot exports it until the next major version."""
    return Metric(name, now.kind, f"Deprecated: the same as {now.name}.", now.labels, now.known, now=now.name)


CONSUMER_LAG = _of_group("karrot_consumer_lag", "Total lag over all partitions, in messages.")
CONSUMER_MAX_LAG = _of_group("karrot_consumer_max_lag", "Lag of the partition with the largest lag, in messages.")
CONSUMER_SCALABLE_LAG = _of_group(
    "karrot_consumer_scalable_lag",
    "Total lag minus the lag of STOP, STALL and REWIND partitions, in messages. More consumers can reduce this lag.",
)
CONSUMER_LAG_SECONDS = _of_group(
    "karrot_consumer_lag_seconds",
    "Age of the oldest message that the group has not read, in seconds: the largest age of the listed partitions.",
)
CONSUMER_LAG_SECONDS_AT_LEAST = _of_group(
    "karrot_consumer_lag_seconds_at_least", "The lag in seconds while it is only a lower bound."
)
CONSUMER_LAG_SECONDS_KIND = _of_group(
    "karrot_consumer_lag_seconds_kind",
    "How karrot_consumer_lag_seconds is known: 0 exact, 1 extrapolated, 2 at least (a lower bound).",
)
CONSUMER_CATCH_UP_SECONDS = _of_group(
    "karrot_consumer_catch_up_seconds",
    "Seconds until the group has read all messages of the max-lag partition, at the current rates. Absent while the "
    "group does not catch up.",
)
CONSUMER_PRODUCE_RATE = _of_group(
    "karrot_consumer_produce_rate", "Messages per second that are written to the max-lag partition."
)
CONSUMER_CONSUME_RATE = _of_group(
    "karrot_consumer_consume_rate", "Messages per second that the group commits on the max-lag partition."
)
CONSUMER_STATUS = _of_group("karrot_consumer_status", "Verdict: 1 for the current status, else 0.", "status")
CONSUMER_STATUS_CODE = _of_group("karrot_consumer_status_code", "Verdict: 1 OK, 2 WARN, 3 ERR.")
CONSUMER_SECOND_OPINION = _of_group(
    "karrot_consumer_second_opinion",
    "Is 1 if Burrow and Karrot's own rules judge a group differently: source and status of the other verdict.",
    "source",
    "status",
)
CONSUMER_MUTED = _of_group("karrot_consumer_muted", "Is 1 while the group is muted: its alerts do not fire.")
CONSUMER_PARTITIONS = _of_group("karrot_consumer_partitions", "Known partitions of the group.")
CONSUMER_BAD_PARTITIONS = _of_group(
    "karrot_consumer_bad_partitions",
    "Partitions that are WARN, STOP, STALL or REWIND, by status. Other metrics count BEYOND_END and NEVER_COMMITTED, "
    "and none OPEN_TRANSACTION.",
    "status",
)
CONSUMER_COMPLETE_RATIO = _of_group(
    "karrot_consumer_complete_ratio", "Share of the partitions whose window of commits is full."
)
CONSUMER_LAST_EVENT = _of_group(
    "karrot_consumer_last_event_timestamp_seconds", "Time of the newest verdict on the group."
)
CONSUMER_LAST_COMMIT = _of_group(
    "karrot_consumer_last_commit_timestamp_seconds",
    "Time of the newest commit on the max-lag partition. With watch: of the last poll that saw its offset move.",
)
CONSUMER_INCIDENT_START = _of_group(
    "karrot_consumer_incident_start_timestamp_seconds",
    "Time when the current incident began. Absent while there is no incident.",
)
CONSUMER_INCIDENTS = _counter("karrot_consumer_incidents_total", "Incidents of the group so far.", *GROUP)
CONSUMER_TOPIC_LAG = _of_group(
    "karrot_consumer_topic_lag",
    "Lag of the group by topic, in messages, from the last verdict that lists every partition, at most "
    "KARROT_STALE_AFTER ago (only with KARROT_TOPIC_METRICS).",
    "topic",
)
PARTITION_LAG = _gauge(
    "karrot_partition_lag",
    "Lag of a partition when a verdict listed it last, in messages (only with KARROT_PARTITION_METRICS).",
    *PARTITION,
)
PARTITION_STATUS_CODE = _gauge(
    "karrot_partition_status_code",
    "Status of a partition: 1 OK, 2 WARN, 4 STOP, 5 STALL, 6 REWIND. Absent for "
    "BEYOND_END and NEVER_COMMITTED (only with KARROT_PARTITION_METRICS).",
    *PARTITION,
)

CONSUMER_GROUP_STATE = _of_group(
    "karrot_consumer_group_state",
    "State of the group: 1 for the current state, 0 for the other states (only with KARROT_WATCH_BOOTSTRAP).",
    "state",
)
CONSUMER_MEMBERS = _of_group("karrot_consumer_members", "Members of the group (only with KARROT_WATCH_BOOTSTRAP).")
CONSUMER_COORDINATOR = _of_group(
    "karrot_consumer_coordinator_id",
    "ID of the broker that coordinates the group (only with KARROT_WATCH_BOOTSTRAP).",
)
CONSUMER_REBALANCES = _counter(
    "karrot_consumer_rebalances_total",
    "Rebalances of the group that Karrot noticed between two polls (only with KARROT_WATCH_BOOTSTRAP).",
    *GROUP,
)
CONSUMER_MESSAGES_LOST = _of_group(
    "karrot_consumer_messages_lost",
    "Messages that Kafka deleted before the group read them. A message counts until the group commits an offset after "
    "it, or until the partition has no message that the group can read (only with KARROT_WATCH_BOOTSTRAP).",
)
CONSUMER_RETENTION_MARGIN = _of_group(
    "karrot_consumer_retention_margin",
    "Messages that Kafka can delete from a partition before the group loses unread messages: the committed offset "
    "minus the log start offset, where this is the smallest share of the log. Absent if the "
    "group has read everything (only with KARROT_WATCH_BOOTSTRAP).",
)
CONSUMER_BEYOND_END = _of_group(
    "karrot_consumer_beyond_end_partitions",
    "Partitions whose committed offset was past the log end in two polls in a row. Their lag is not known (only with "
    "KARROT_WATCH_BOOTSTRAP).",
)
CONSUMER_UNCOMMITTED = _of_group(
    "karrot_consumer_uncommitted_partitions",
    "Partitions that a member owns and that have no committed offset. Their lag is not known, and no metric of lag "
    "contains it (only with KARROT_WATCH_BOOTSTRAP).",
)
CONSUMER_OPEN_TRANSACTION = _of_group(
    "karrot_consumer_open_transaction_partitions",
    "Owned partitions on which an open transaction has held back all unread records for a window (only with "
    "KARROT_WATCH_BOOTSTRAP).",
)

BUILD_INFO = Metric(
    "karrot_build_info", "info", "Always 1. The labels hold the versions of Karrot and Python.", ("version", "python")
)
EVENTS_ACCEPTED = _counter(
    "karrot_events_accepted_total",
    "Events that Karrot stored durably, by source.",
    "source",
    known=("webhook", "rest", "kafka"),
)
WEBHOOK_EVENTS = _counter(
    "karrot_webhook_events_total",
    "Stored events that came by webhook, by kind: observation (a healthy group), incident, close.",
    "kind",
    known=("observation", "incident", "close"),
)
EVENTS_REJECTED = _counter(
    "karrot_events_rejected_total",
    "Events that Karrot refused, by problem code. not_found and method_not_allowed: they were sent to a wrong path.",
    "code",
    known=tuple(CODES)[:-2],  # the last two are no codes of events
)
EVENT_HANDLING_SECONDS = Metric(
    "karrot_event_handling_seconds",
    "histogram",
    "Seconds from the arrival of an event's body to its durable commit.",
    edges=("0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "+Inf"),
)
LAST_EVENT = _gauge(
    "karrot_last_event_timestamp_seconds",
    "Time of the last webhook from the cluster's Burrow. A cluster in KARROT_EXPECTED_CLUSTERS has the value 0 before "
    "its first webhook. The series never expires: only `karrot forget-cluster` ends it.",
    "cluster",
)
BURROW_SELF_LAG = _gauge(
    "karrot_burrow_self_lag",
    "Lag of Burrow itself on __consumer_offsets, in messages. While it grows, its lags of groups are out of date.",
    "cluster",
)
BURROW_LAST_COMMIT = _gauge(
    "karrot_burrow_last_commit_timestamp_seconds",
    "When Burrow read its newest commit of any group, by Burrow's clock (only with KARROT_BURROW_URL).",
    "cluster",
)
BURROW_CUT_OFF = _gauge(
    "karrot_burrow_cut_off",
    "Whether Burrow reads no more commits: 1 or 0 (only with KARROT_BURROW_URL). At 1, its groups have no lag metrics.",
    "cluster",
)
WATCH_LAST_POLL = _gauge(
    "karrot_watch_last_poll_timestamp_seconds",
    "Time of the last poll of a cluster that Kafka answered. It is 0 before the first answer, and never expires (only "
    "with KARROT_WATCH_BOOTSTRAP).",
    "cluster",
)
WATCH_POLL_SECONDS = _gauge(
    "karrot_watch_poll_seconds",
    "Duration of the last poll of Kafka, in seconds (only with KARROT_WATCH_BOOTSTRAP).",
    "cluster",
)
WATCH_ABANDONED = _gauge(
    "karrot_watch_abandoned_groups", "Abandoned groups at the last poll (only with KARROT_WATCH_BOOTSTRAP).", "cluster"
)
WATCH_FAILURES = _counter(
    "karrot_watch_failures_total",
    "Failures in polls of Kafka, by Kafka's error name. The reason is client_died if the process of the Kafka client "
    "ended, properties or the kind of AWS's error if no client can be created, memory if the state could not be "
    "saved, and unexpected for any other error.",
    "reason",
)
RESYNC_RUNS = _counter(
    "karrot_resync_runs_total", "Resyncs from Burrow's REST API, by outcome (only with KARROT_BURROW_URL).", "outcome"
)
RESYNC_GROUPS = _counter(
    "karrot_resync_groups_total",
    "Groups in resyncs, by outcome: taken, refused, deleted, not_found, unaddressable, unavailable, failed.",
    "outcome",
)
LOG_WRITABLE = _gauge(
    "karrot_log_writable",
    "The last commit to the event log: 1 if it succeeded, 0 if it failed or hangs for 5 s. Each worker shows its own "
    "commits.",
)
LOG_MEMORY_AGE = _gauge(
    "karrot_log_memory_age_seconds",
    "Age of the values in this answer, if they come from memory because the event log cannot be read. Otherwise 0.",
)
LEADER_INFO = _gauge(
    "karrot_leader_info",
    "Always 1. The label is an id of the replica that leads. Absent while no replica leads (only with PostgreSQL).",
    "replica",
)
REPLICA_LEADS = _gauge(
    "karrot_replica_leads", "Whether this replica leads: 1 if it leads, 0 if it does not (only with PostgreSQL)."
)
LOG_STANDBY_LAG = _gauge(
    "karrot_log_standby_lag_seconds",
    "How long commits take to reach the disk of a standby of the event log's PostgreSQL server, in seconds. 0 if the "
    "standby has everything. The label is an id (only with PostgreSQL, if Karrot's role may see standbys).",
    "standby",
)
CONSUMERS = _gauge("karrot_consumers", "Consumer groups that have not expired and were not deleted.")
CONSUMERS_EXPIRED = _counter(
    "karrot_consumers_expired_total", "Consumer groups that expired because they had no event for KARROT_STALE_AFTER."
)
SERIES_DROPPED = _counter(
    "karrot_series_dropped_total",
    "Times that a consumer group got no series, because there were more than KARROT_MAX_CONSUMERS groups, or because "
    "another group with the same shortened name had a newer event. Also times that a group got no series for its "
    "partitions and topics, because all groups had more than 100,000 partitions.",
)
LOG_EVENTS = _gauge("karrot_log_events", "Events in the event log.")
LOG_SIZE_BYTES = _gauge("karrot_log_size_bytes", "Size of the event log on disk, in bytes.")
LOG_WAL_BYTES = _gauge(
    "karrot_log_wal_bytes",
    "Size of the event log's write-ahead log on disk, in bytes. It grows far above 4 MB while a program holds a read "
    "transaction open on the event log.",
)
LOG_ENDS_DROPPED = _counter(
    "karrot_log_ends_dropped_total",
    "Log-end histories of partitions that Karrot dropped or could not store, by reason. contradicted: a log end went "
    "back, so the history started again. damaged: the stored history did not match its checksum. full: all histories "
    "together reached KARROT_LOG_END_MAX_BYTES.",
    "reason",
    known=("contradicted", "damaged", "full"),
)
LOG_PRUNED = _counter(
    "karrot_log_pruned_total", "Events deleted from the event log because of their age or the log's size."
)
LOG_DAMAGED = _counter("karrot_log_damaged_total", "Groups whose stored state did not match its checksum.")
LOG_REPLACED = _counter(
    "karrot_log_replaced_total", "Damaged event logs that Karrot set aside and replaced with a new one."
)
LOG_LOST_EVENTS = _counter(
    "karrot_log_lost_events_total",
    "Events that a worker or the archive knows, but that the event log lost: its write-ahead log was damaged, or a "
    "standby of PostgreSQL without them took over.",
)
LOG_HOUSEKEEPING_AGE = _gauge(
    "karrot_log_housekeeping_age_seconds",
    "Seconds since a leading worker last expired groups and pruned events. It grows while no worker leads. Before the "
    "first time, it counts from the start of the worker that answers.",
)
LOG_HOUSEKEEPING_FAILURES = _counter(
    "karrot_log_housekeeping_failures_total",
    "Times that the leading worker could not expire groups or prune events, by reason. The worker tries again.",
    "reason",
    known=("log_unavailable", "overloaded", "unexpected"),
)
FILE_FAILURES = _counter(
    "karrot_file_reload_failures_total",
    "Changed files that a worker could not use, so that it keeps the old certificate or secrets. Each worker counts a "
    "version of the files once.",
    "files",
    known=("certificate", "secrets"),
)
REPORTER_EVENTS = _counter("karrot_reporter_events_total", "Events that a reporter got.", "reporter")
REPORTER_EVENTS_OLD = _old_name("karrot_reporter_events_count_total", REPORTER_EVENTS)
REPORTER_FAILURES = _counter("karrot_reporter_failures_total", "Reports that failed, by reason.", "reporter", "reason")
REPORTER_DROPPED = _counter(
    "karrot_reporter_dropped_total",
    "Events that a reporter will never get, and values that it will never send, by reason.",
    "reporter",
    "reason",
)
REPORTER_CLOUDWATCH_REQUESTS = _counter(
    "karrot_reporter_cloudwatch_requests_total",
    "Requests of PutMetricData, by the HTTP status of the answer. The status is error if there was no answer.",
    "reporter",
    "status",
)
REPORTER_CLOUDWATCH_REQUESTS_OLD = _old_name("karrot_reporter_cloudwatch_api_count_total", REPORTER_CLOUDWATCH_REQUESTS)
REPORTER_CLOUDWATCH_DATA = _counter(
    "karrot_reporter_cloudwatch_data_total",
    "By outcome. sent: data that CloudWatch accepted. name_cut: names that Karrot cut because they were too long.",
    "reporter",
    "outcome",
)
REPORTER_ARCHIVE_SEGMENTS = _counter(
    "karrot_reporter_archive_segments_total",
    "Archive segments by outcome: written, or deleted because of their age or the archive's size.",
    "reporter",
    "outcome",
)
REPORTER_ARCHIVE_BYTES = _counter(
    "karrot_reporter_archive_bytes_total", "Compressed bytes of archive segments, by outcome.", "reporter", "outcome"
)
REPORTER_BACKLOG_EVENTS = _gauge(
    "karrot_reporter_backlog_events", "Events in the event log that a reporter has not handled yet.", "reporter"
)
REPORTER_BACKLOG_AGE = _gauge(
    "karrot_reporter_backlog_age_seconds",
    "Age of the oldest event that a reporter has not handled yet, in seconds.",
    "reporter",
)

METRICS: tuple[Metric, ...] = tuple(metric for metric in tuple(globals().values()) if isinstance(metric, Metric))
"""Every metric, in the order of this file. The exposition has the same order."""
