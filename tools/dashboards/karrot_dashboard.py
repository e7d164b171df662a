"""Builds the dashboard of Karrot itself. It shows whether you can trust the other dashboards."""

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
            "The running versions. If two versions run for longer than a rollout takes, the rollout hangs.",
            Query(f"count by (version, instance) (karrot_build_info{{{SELF}}})", "{{version}}"),
            unit="none",
            text="name",
        ),
    ),
    (
        4,
        stat(
            "Event log writable",
            "Whether the worker that answered the scrape could commit its last event. If it could not, Burrow gets "
            "the answer 503 and verdicts are lost. Check the disk, then see the runbook KarrotLogNotWritable.",
            Query(f"min by (instance) (min_over_time(karrot_log_writable{{{SELF}}}[2m]))", "{{instance}}"),
            unit="none",
            mappings=names_of({0: ("no", BAD), 1: ("yes", GOOD)}),
        ),
    ),
    (
        4,
        stat(
            "Silence of Burrow",
            "Time since the last webhook about each cluster. If the time is above three send-intervals, check that "
            "Burrow runs and that its notifier is on.",
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
            "Refused events in the shown time. A panel below shows the codes. The page /rejects shows the bodies.",
            f"sum(max by (job, code) (increase(karrot_events_rejected_total{{{SELF}}}[$__range])))",
            thresholds=above((1, WATCH_OUT), (100, BAD)),
            decimals=0,
        ),
    ),
    (
        4,
        stat(
            "Reporters behind",
            "Age of the oldest event in the backlog of the reporter that is furthest behind.",
            f"max(karrot_reporter_backlog_age_seconds{{{SELF}}})",
            unit="s",
            thresholds=above((60, WATCH_OUT), (300, BAD)),
        ),
    ),
    (
        4,
        stat(
            "Groups",
            "Groups that have not expired and are not deleted.",
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
            "Events by source: Burrow's webhook, Burrow's REST API, or Kafka itself.",
            per_second("events_accepted_total", "source"),
            unit="ops",
        ),
    ),
    (
        8,
        lines(
            "Verdicts by kind",
            "If there are incidents but no observations for an hour, the notifier's threshold is 2. Burrow then "
            "never posts healthy groups. Set the threshold to 1.",
            per_second("webhook_events_total", "kind"),
            unit="ops",
        ),
    ),
    (
        8,
        lines(
            "Events refused",
            "Refused events by code. docs/reference/codes.md explains the codes. Burrow never sends a refused event "
            "again. No data means that no event was refused.",
            of_those_counted(per_second("events_rejected_total", "code"), "events_rejected_total", "code"),
            unit="ops",
        ),
    ),
    (
        12,
        lines(
            "Time to store an event",
            "Time from the receipt of an event's body to the event's durable commit. During this time, Burrow holds "
            "its locks. Burrow gives up after 5 s. Commits are slow because of the disk, or because of a CPU limit "
            "while Burrow posts all groups at once.",
            percentile(0.5),
            percentile(0.99),
            unit="s",
        ),
    ),
    (
        12,
        lines(
            "Duration of a scrape",
            "Time that Prometheus waited for /metrics. If the time is near the scrape_timeout, export fewer groups "
            "(KARROT_EXCLUDE_CONSUMERS) or no partition metrics.",
            Query(f"max by (instance) (scrape_duration_seconds{{{SELF}}})", "{{instance}}"),
            unit="s",
        ),
    ),
]

_LAST_COMMIT = f"max by (cluster) (karrot_burrow_last_commit_timestamp_seconds{{{SELF}}})"
_BURROW = [
    (
        8,
        lines(
            "Time since the last webhook, and since Burrow read a commit",
            "Time since the last webhook about each cluster. Normally, the line rises to the notifier's send-interval "
            "and then falls to 0, again and again. With resync, also the time since Burrow read its newest commit of "
            "any group. If Burrow is cut off from Kafka, this line has a second name.",
            Query(
                f"time() - (max by (cluster) (karrot_last_event_timestamp_seconds{{{SELF}}}) > 0)",
                "{{cluster}}",
            ),
            Query(f"time() - {_LAST_COMMIT}", "{{cluster}} commit"),
            Query(
                f"time() - {_LAST_COMMIT} and on (cluster) max by (cluster) (karrot_burrow_cut_off{{{SELF}}}) > 0",
                "{{cluster}} cut off",
            ),
            unit="s",
            limit=300,
        ),
    ),
    (
        8,
        lines(
            "Burrow's own lag",
            "Commits in __consumer_offsets that Burrow has not read. The lags of other groups do not include these "
            "commits yet. If the lag stays, give Burrow more CPU, or let it watch fewer groups.",
            Query(f"max by (cluster) (karrot_burrow_self_lag{{{SELF}}})", "{{cluster}}"),
        ),
    ),
    (
        8,
        lines(
            "Groups with series",
            "Groups with series, and the groups that lost their series within each step. A group expires after "
            "silence, or is dropped because there are more than KARROT_MAX_CONSUMERS groups.",
            Query(each_one("consumers"), "groups {{job}}"),
            in_each_step("consumers_expired_total", legend="expired {{job}}"),
            in_each_step("series_dropped_total", legend="dropped {{job}}"),
        ),
    ),
]

_REPORTERS = [
    (
        8,
        lines(
            "Events handed to reporters",
            "Events per second for each reporter. A reporter is stuck if it gets no events while other reporters get "
            "events. The page /reporters shows its last error.",
            per_second("reporter_events_total", "reporter"),
            unit="ops",
        ),
    ),
    (
        8,
        lines(
            "Age of the backlog",
            "Age of the oldest event in each reporter's backlog. A growing backlog of one reporter does not "
            "delay other reporters. Housekeeping: the time since a leader last worked, normally at most 5 s. See the "
            "runbook KarrotNoLeader.",
            Query(each_one("reporter_backlog_age_seconds", "reporter"), "{{reporter}} {{job}}"),
            Query(each_one("log_housekeeping_age_seconds"), "housekeeping {{job}}"),
            unit="s",
            limit=300,
        ),
    ),
    (
        8,
        lines(
            "Failed and dropped",
            "Karrot repeats a failed report, but not a dropped event. The reason shows the cause.",
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
            "Events in the log that each reporter has not handled yet. If the log deletes an event first, the "
            "event counts as dropped.",
            Query(each_one("reporter_backlog_events", "reporter"), "{{reporter}} {{job}}"),
        ),
    ),
    (
        8,
        lines(
            "Calls to CloudWatch",
            "PutMetricData calls by status. 400: CloudWatch refused the data for good. 403: a permission is missing. "
            "error: there was no answer. docs/cloudwatch.md lists all statuses.",
            per_second("reporter_cloudwatch_requests_total", "status"),
            unit="reqps",
        ),
    ),
    (
        8,
        lines(
            "Data for CloudWatch",
            "Data per second that CloudWatch accepted. AWS bills by metric, not by datum.",
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
            "KARROT_MAX_LOG_BYTES limits the size. If the write-ahead log is far larger than 4 MB, a program keeps "
            "the database open.",
            Query(each_one("log_size_bytes"), "log {{job}}"),
            Query(each_one("log_wal_bytes"), "write-ahead log {{job}}"),
            unit="bytes",
        ),
    ),
    (
        8,
        lines(
            "Events in the log",
            "KARROT_RETENTION and KARROT_MAX_LOG_BYTES limit the number. The oldest events are deleted first.",
            Query(each_one("log_events"), "events {{job}}"),
        ),
    ),
    (
        8,
        lines(
            "Pruned and damaged",
            "Pruning is normal housekeeping. If it fails, Karrot's log output has the reason. If the event log was "
            "ever damaged or replaced, check the disk and see the runbook KarrotLogDamaged. Log ends are dropped "
            "if a topic was created again or KARROT_LOG_END_MAX_BYTES is reached. If a changed certificate or secret "
            "cannot be used, correct it before the old one expires.",
            in_each_step("log_pruned_total", legend="pruned {{job}}"),
            in_each_step("log_housekeeping_failures_total", legend="housekeeping failed {{job}}"),
            in_each_step("log_ends_dropped_total", legend="log ends dropped {{job}}"),
            in_each_step("log_damaged_total", legend="damaged {{job}}"),
            in_each_step("log_replaced_total", legend="replaced {{job}}"),
            in_each_step("log_lost_events_total", legend="lost {{job}}"),
            in_each_step("file_reload_failures_total", "files", legend="unusable {{files}} {{job}}"),
            bars=True,
        ),
    ),
]

_REPLICAS = [
    (
        6,
        stat(
            "Leader",
            "The replica that leads. It hands the events to the reporters, and runs resync and watch. No data means "
            "that no replica leads, or that the event log is not in PostgreSQL. See the runbook KarrotNoLeader.",
            Query(f"max by (job, replica) (karrot_leader_info{{{SELF}}})", "{{replica}}"),
            unit="none",
            text="name",
        ),
    ),
    (
        6,
        lines(
            "Replicas that lead",
            "The value of the replica that leads is 1. Each change is a failover, a restart or an upgrade.",
            Query(f"max by (instance) (karrot_replica_leads{{{SELF}}})", "{{instance}}"),
            unit="none",
        ),
    ),
    (
        6,
        lines(
            "Age of values from memory",
            "Above 0, a replica cannot read the event log, and exports its last known values. See the runbook "
            "KarrotLogNotWritable.",
            Query(f"max by (instance) (karrot_log_memory_age_seconds{{{SELF}}})", "{{instance}}"),
            unit="s",
        ),
    ),
    (
        6,
        lines(
            "Lag of standbys",
            "How long a commit takes to reach the disk of a standby of the database. If the database fails over, an "
            "asynchronous standby can lack the events of this time. See the runbook KarrotStandbyBehind.",
            Query(each_one("log_standby_lag_seconds", "standby"), "{{standby}} {{job}}"),
            unit="s",
            limit=30,
        ),
    ),
]

_OTHER_ROADS = [
    (
        8,
        lines(
            "Resync: passes",
            "Passes in which Karrot reads all groups from Burrow's REST API (KARROT_BURROW_URL), by outcome. If passes "
            "fail, check the URL and that Burrow answers.",
            in_each_step("resync_runs_total", "outcome"),
            bars=True,
            stacked=True,
        ),
    ),
    (
        8,
        lines(
            "Resync: groups",
            "Groups in the passes of resync, by outcome. unavailable: Burrow has no answer about the group yet.",
            in_each_step("resync_groups_total", "outcome"),
            bars=True,
            stacked=True,
        ),
    ),
    (
        8,
        lines(
            "Watch: age of the last poll",
            "Time since the last poll of all groups in Kafka (KARROT_WATCH_BOOTSTRAP). If the time grows, check "
            "the brokers and the permissions, as in the runbook KarrotWatchSilent.",
            Query(
                f"time() - (max by (cluster) (karrot_watch_last_poll_timestamp_seconds{{{SELF}}}) > 0)",
                "{{cluster}}",
            ),
            unit="s",
            limit=120,
        ),
    ),
    (
        8,
        lines(
            "Watch: duration of a poll",
            "Duration of one poll. If it is near KARROT_WATCH_INTERVAL, there are too many groups for the interval: "
            "increase the interval.",
            Query(f"max by (cluster) (karrot_watch_poll_seconds{{{SELF}}})", "{{cluster}}"),
            unit="s",
        ),
    ),
    (
        8,
        lines(
            "Watch: abandoned groups",
            "Finished jobs and other groups without members that cause no alert, by the settings "
            "KARROT_ABANDONED_AFTER and KARROT_ABANDONED_GROUPS.",
            Query(f"max by (cluster) (karrot_watch_abandoned_groups{{{SELF}}})", "{{cluster}}"),
        ),
    ),
    (
        8,
        lines(
            "Watch: failures",
            "Groups, partitions and clusters that Kafka could not describe, by Kafka's name for the error.",
            in_each_step("watch_failures_total", "reason"),
            bars=True,
            stacked=True,
        ),
    ),
    (
        12,
        lines(
            "Archive: segments",
            "Segments that were written, and segments that were deleted because of their age or the total size.",
            in_each_step("reporter_archive_segments_total", "outcome"),
            bars=True,
            stacked=True,
        ),
    ),
    (
        12,
        lines(
            "Archive: bytes",
            "Compressed bytes per second of the written segments.",
            per_second("reporter_archive_bytes_total", "outcome"),
            unit="Bps",
        ),
    ),
]

ITSELF: Json = board(
    "karrot-itself",
    "Karrot / Itself",
    "Whether you can trust the other dashboards: Burrow posts, every event is stored, and every reporter gets it.",
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
        Row("Replicas (only with PostgreSQL)", _REPLICAS, folded=True),
        Row("Resync, watch and archive (if they are on)", _OTHER_ROADS, folded=True),
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
