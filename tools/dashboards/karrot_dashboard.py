"""Builds the dashboard of Karrot itself: whether the other dashboards can be trusted."""

from tools.dashboards.karrot_queries import SELF, each_one, in_each_step, of_those_counted, per_second, percentile
from tools.dashboards.panels import (
    BAD,
    GOOD,
    NEVER,
    WATCH_OUT,
    Json,
    Query,
    Row,
    above,
    annotation,
    board,
    label_values,
    lines,
    names_of,
    stat,
)

_NOW = [
    (
        4,
        stat(
            "Version",
            "What runs. Two versions for longer than a rollout: it hangs.",
            Query(f"count by (version, instance) (karrot_build_info{{{SELF}}})", "{{version}}"),
            unit="none",
            text="name",
        ),
    ),
    (
        4,
        stat(
            "Log can be written",
            "Whether the worker that answered has committed its last event. If not, Burrow is answered 503 and "
            "verdicts are lost: look at the disk, then at the runbook KarrotLogNotWritable.",
            Query(f"min by (instance) (min_over_time(karrot_log_writable{{{SELF}}}[2m]))", "{{instance}}"),
            unit="none",
            mappings=names_of({0: ("no", BAD), 1: ("yes", GOOD)}),
        ),
    ),
    (
        4,
        stat(
            "Burrow is silent for",
            "Since the last webhook about each cluster. Above three send-intervals: is Burrow alive, is its notifier "
            "on?",
            Query(
                f"time() - max by (cluster) (karrot_last_event_timestamp_seconds{{{SELF}}})",
                "{{cluster}}",
            ),
            unit="s",
            thresholds=above((120, WATCH_OUT), (300, BAD)),
            text="value_and_name",
            mappings=NEVER,
        ),
    ),
    (
        4,
        stat(
            "Events refused",
            "In the time shown. The codes are below, what was sent is at /rejects.",
            f"sum(max by (instance, code) (increase(karrot_events_rejected_total{{{SELF}}}[$__range])))",
            thresholds=above((1, WATCH_OUT), (100, BAD)),
            decimals=0,
        ),
    ),
    (
        4,
        stat(
            "Reporters behind",
            "Age of the oldest event that a reporter has not had yet, of the one that is furthest behind.",
            f"max(karrot_reporter_backlog_age_seconds{{{SELF}}})",
            unit="s",
            thresholds=above((60, WATCH_OUT), (300, BAD)),
        ),
    ),
    (
        4,
        stat(
            "Groups",
            "Groups that have neither expired nor been deleted.",
            f"max(karrot_consumers{{{SELF}}})",
            unit="none",
        ),
    ),
]

_INTAKE = [
    (
        8,
        lines(
            "Events stored",
            "By the road they came: Burrow's webhook, its REST API, or Kafka itself.",
            per_second("events_accepted_total", "source"),
            unit="ops",
        ),
    ),
    (
        8,
        lines(
            "Verdicts by kind",
            "Incidents without observations for an hour: the notifier's threshold is 2, so healthy groups are never "
            "posted. Set it to 1.",
            per_second("webhook_events_total", "kind"),
            unit="ops",
        ),
    ),
    (
        8,
        lines(
            "Events refused",
            "By code; docs/reference/codes.md says what each means. Burrow never sends an event again. No data: none "
            "was refused.",
            of_those_counted(per_second("events_rejected_total", "code"), "events_rejected_total", "code"),
            unit="ops",
        ),
    ),
    (
        12,
        lines(
            "Time to take an event",
            "From its body to its durable commit. Burrow holds its locks meanwhile and gives up after 5 s. Slow: the "
            "disk, or a CPU limit while Burrow posts all groups at once.",
            percentile(0.5),
            percentile(0.99),
            unit="s",
        ),
    ),
    (
        12,
        lines(
            "Time of a scrape",
            "How long Prometheus waited for /metrics. Near its scrape_timeout: fewer groups "
            "(KARROT_EXCLUDE_CONSUMERS) or no partition metrics.",
            Query(f"max by (instance) (scrape_duration_seconds{{{SELF}}})", "{{instance}}"),
            unit="s",
        ),
    ),
]

_BURROW = [
    (
        8,
        lines(
            "Since Burrow was heard",
            "By webhook, of each cluster. A saw of as many seconds as the notifier's send-interval is right.",
            Query(
                f"time() - (max by (cluster) (karrot_last_event_timestamp_seconds{{{SELF}}}) > 0)",
                "{{cluster}}",
            ),
            unit="s",
            limit=300,
        ),
    ),
    (
        8,
        lines(
            "Burrow's own lag",
            "Commits on __consumer_offsets that Burrow has not read: every other lag is as old as these. Give Burrow "
            "CPU, or let it watch fewer groups.",
            Query(f"max by (cluster) (karrot_burrow_self_lag{{{SELF}}})", "{{cluster}}"),
        ),
    ),
    (
        8,
        lines(
            "Groups with series",
            "And how many were given up within each step: expired for silence, or beyond KARROT_MAX_CONSUMERS.",
            Query(each_one("consumers"), "groups {{instance}}"),
            in_each_step("consumers_expired_total", legend="expired {{instance}}"),
            in_each_step("series_dropped_total", legend="dropped {{instance}}"),
        ),
    ),
]

_REPORTERS = [
    (
        8,
        lines(
            "Handed to reporters",
            "Events per second. A reporter that gets none while others do is stuck: /reporters shows its last error.",
            per_second("reporter_events_count_total", "reporter"),
            unit="ops",
        ),
    ),
    (
        8,
        lines(
            "Age of the backlog",
            "Of the oldest event that each reporter has not had yet. One that grows does not hold up the others.",
            Query(each_one("reporter_backlog_age_seconds", "reporter"), "{{reporter}} {{instance}}"),
            unit="s",
            limit=300,
        ),
    ),
    (
        8,
        lines(
            "Failed and dropped",
            "Reports that failed will be tried again; what was dropped never comes. The reason says whose fault it is.",
            in_each_step("reporter_failures_total", "reporter", "reason", legend="{{reporter}} failed: {{reason}}"),
            in_each_step("reporter_dropped_total", "reporter", "reason", legend="{{reporter}} dropped: {{reason}}"),
            bars=True,
            stacked=True,
        ),
    ),
    (
        8,
        lines(
            "Backlog",
            "Events in the log that each reporter has not had yet. What falls out of the log first is dropped.",
            Query(each_one("reporter_backlog_events", "reporter"), "{{reporter}} {{instance}}"),
        ),
    ),
    (
        8,
        lines(
            "Calls of CloudWatch",
            "PutMetricData by status. 400: refused for good, 403: rights, error: no answer. docs/cloudwatch.md has "
            "them all.",
            per_second("reporter_cloudwatch_api_count_total", "status"),
            unit="reqps",
        ),
    ),
    (
        8,
        lines(
            "Data for CloudWatch",
            "Data per second that it took. Each is paid for by the metric, not by the datum.",
            per_second("reporter_cloudwatch_data_total", "outcome"),
            unit="ops",
        ),
    ),
]

_LOG = [
    (
        8,
        lines(
            "Size of the log",
            "Bound by KARROT_MAX_LOG_BYTES. A write-ahead log far above 4 MB: a program holds the database open.",
            Query(each_one("log_size_bytes"), "log {{instance}}"),
            Query(each_one("log_wal_bytes"), "write-ahead log {{instance}}"),
            unit="bytes",
        ),
    ),
    (
        8,
        lines(
            "Events in the log",
            "Bound by KARROT_RETENTION and KARROT_MAX_LOG_BYTES; the oldest go first.",
            Query(each_one("log_events"), "events {{instance}}"),
        ),
    ),
    (
        8,
        lines(
            "Pruned and damaged",
            "Pruned is housekeeping; where that fails, Karrot's own log says why. Damaged or replaced, ever: look at "
            "the disk; runbook KarrotLogDamaged.",
            in_each_step("log_pruned_total", legend="pruned {{instance}}"),
            in_each_step("log_housekeeping_failures_total", legend="housekeeping failed {{instance}}"),
            in_each_step("log_damaged_total", legend="damaged {{instance}}"),
            in_each_step("log_replaced_total", legend="replaced {{instance}}"),
            bars=True,
        ),
    ),
]

_OTHER_ROADS = [
    (
        8,
        lines(
            "Resync: passes",
            "Passes over Burrow's REST API by outcome (KARROT_BURROW_URL). Failed: is the address right, does Burrow "
            "answer?",
            in_each_step("resync_runs_total", "outcome"),
            bars=True,
            stacked=True,
        ),
    ),
    (
        8,
        lines(
            "Resync: groups",
            "Groups of these passes by outcome. unavailable: Burrow has no answer on them yet.",
            in_each_step("resync_groups_total", "outcome"),
            bars=True,
            stacked=True,
        ),
    ),
    (
        8,
        lines(
            "Watch: age of the last poll",
            "Since Kafka was last asked about all groups (KARROT_WATCH_BOOTSTRAP). Growing: brokers or rights; "
            "runbook KarrotWatchSilent.",
            Query(
                f"time() - (max by (cluster) (karrot_watch_last_poll_timestamp_seconds{{{SELF}}}) > 0)",
                "{{cluster}}",
            ),
            unit="s",
            limit=120,
        ),
    ),
    (
        12,
        lines(
            "Watch: time of a poll",
            "Near KARROT_WATCH_INTERVAL: too many groups for one round, lengthen it.",
            Query(f"max by (cluster) (karrot_watch_poll_seconds{{{SELF}}})", "{{cluster}}"),
            unit="s",
        ),
    ),
    (
        12,
        lines(
            "Watch: failures",
            "Groups, partitions and clusters that Kafka did not tell about, by its name of the error.",
            in_each_step("watch_failures_total", "reason"),
            bars=True,
            stacked=True,
        ),
    ),
    (
        12,
        lines(
            "Archive: segments",
            "Segments that were written, and those deleted for their age or the size of all.",
            in_each_step("reporter_archive_segments_total", "outcome"),
            bars=True,
            stacked=True,
        ),
    ),
    (
        12,
        lines(
            "Archive: bytes",
            "Bytes of these segments per second, compressed.",
            per_second("reporter_archive_bytes_total", "outcome"),
            unit="Bps",
        ),
    ),
]

ITSELF: Json = board(
    "karrot-itself",
    "Karrot / Itself",
    "Whether what the other boards show can be believed: is Burrow heard, is every event stored, does every reporter "
    "get it.",
    variables=[
        label_values("job", "Job", "label_values(karrot_build_info, job)", everything=".+"),
        label_values("instance", "Instance", 'label_values(karrot_build_info{job=~"$job"}, instance)', everything=".+"),
    ],
    rows=[
        Row("Now", _NOW, height=4),
        Row("Events in", _INTAKE),
        Row("Burrow", _BURROW),
        Row("Events out", _REPORTERS),
        Row("Event log", _LOG),
        Row("Resync, watch and archive (where they are on)", _OTHER_ROADS, folded=True),
    ],
    annotations=[
        annotation(
            "Alerts",
            f'max by (alertname) (ALERTS{{alertname=~"Karrot.+", alertstate="firing", {SELF}}})',
            WATCH_OUT,
            "{{alertname}}",
            "This alert fired.",
        )
    ],
    hours=6,
)
