"""Builds the dashboard of one consumer group: what is wrong with it, and since when."""

from tools.dashboards.group_queries import GROUP, LAG_LIMIT_SECONDS, by_group, group_variables
from tools.dashboards.panels import (
    BAD,
    GOOD,
    STATUS_NAMES,
    WATCH_OUT,
    Json,
    Query,
    Row,
    above,
    annotation,
    board,
    lines,
    names_of,
    stat,
    timeline,
)

_PARTITION_NAMES = {
    1: ("OK", GOOD),
    2: ("WARN", WATCH_OUT),
    4: ("STOP", BAD),
    5: ("STALL", "purple"),
    6: ("REWIND", "blue"),
}
_PARTITION_COLOURS = {text: colour for text, colour in _PARTITION_NAMES.values() if text != "OK"}
_STOPS, _PARTITION = "by (cluster, consumer, status)", "by (cluster, consumer, topic, partition)"

_NOW = [
    (
        3,
        stat(
            "Status",
            "The verdict. WARN: the group consumes, but its lag grew during the whole window of commits. ERR: a "
            "partition is stopped, stalled or rewound, or has no usable offset. The panel Bad partitions shows which.",
            by_group("status_code"),
            unit="none",
            mappings=names_of(STATUS_NAMES),
        ),
    ),
    (
        3,
        stat(
            "Lag in seconds",
            "Age of the oldest unread message, on the partition with the oldest one.",
            by_group("lag_seconds"),
            unit="s",
            thresholds=above((60, WATCH_OUT), (LAG_LIMIT_SECONDS, BAD)),
        ),
    ),
    (3, stat("Lag", "Unread messages of all partitions.", by_group("lag"))),
    (
        3,
        stat(
            "Catch-up time",
            "Time to catch up at current rates. If there is lag but no value, the group is not faster than "
            "its producers. The group then needs more consumers, or faster consumers.",
            by_group("catch_up_seconds"),
            unit="s",
            noValue="not catching up",
        ),
    ),
    (
        3,
        stat(
            "Length of the incident",
            "Time since the open incident began, when the group's status became worse than OK.",
            f"time() - {by_group('incident_start_timestamp_seconds')}",
            unit="s",
            thresholds=above((0, WATCH_OUT), (900, BAD)),
            noValue="no incident",
        ),
    ),
    (
        3,
        stat(
            "Incidents",
            "Incidents that began in the shown time. Many incidents mean that the group flaps, often because "
            "of rebalances or batches.",
            f"max by (cluster, consumer) (increase(karrot_consumer_incidents_total{{{GROUP}}}[$__range]))",
            thresholds=above((1, WATCH_OUT)),
            decimals=0,
        ),
    ),
    (
        3,
        stat(
            "Share of time in OK",
            "Share of the shown time in which the group's status was OK. Time without verdicts does not count.",
            "avg_over_time((max by (cluster, consumer) "
            f'(karrot_consumer_status{{{GROUP}, status="OK"}}))[$__range:1m])',
            unit="percentunit",
            thresholds=above((0.95, WATCH_OUT), (0.99, GOOD), below=BAD),
            decimals=1,
        ),
    ),
    (
        3,
        stat(
            "Last verdict",
            "Age of the shown values. If the age is above two minutes, check whether verdicts still come for "
            "other groups, or the group is deleted.",
            f"time() - {by_group('last_event_timestamp_seconds')}",
            unit="s",
            thresholds=above((120, WATCH_OUT), (300, BAD)),
            noValue="no verdict",
        ),
    ),
]

_STATUS = timeline(
    "Status",
    "The verdicts. A gap means that no verdict on the group arrived.",
    Query(by_group("status_code"), "{{consumer}}"),
    STATUS_NAMES,
)

_LAG = [
    (
        12,
        lines(
            "Lag in seconds",
            "If the lag rises as fast as the clock, the group consumes nothing. If the lag rises more slowly, the "
            "group falls behind. The dashed line is the alert's threshold of 5 minutes. Where Karrot knows only a "
            "lower bound, the messages are older.",
            Query(by_group("lag_seconds"), "lag in seconds"),
            Query(f"{by_group('lag_seconds')} and {by_group('lag_seconds_kind')} == 2", "lower bound"),
            unit="s",
            limit=LAG_LIMIT_SECONDS,
        ),
    ),
    (
        12,
        lines(
            "Lag",
            "If the scalable lag is far below the lag, most unread messages are on partitions without progress, "
            "so more consumers do not help. If one partition has nearly all of the lag, the keys are uneven.",
            Query(by_group("lag"), "all partitions"),
            Query(by_group("scalable_lag"), "scalable"),
            Query(by_group("max_lag"), "worst partition"),
        ),
    ),
    (
        12,
        lines(
            "Written and committed",
            "Messages per second on the partition with the largest lag. The group catches up there while "
            "the line committed is above the line written.",
            Query(by_group("produce_rate"), "written"),
            Query(by_group("consume_rate"), "committed"),
            unit="mps",
            colours={"written": WATCH_OUT, "committed": GOOD},
        ),
    ),
    (
        12,
        lines(
            "Growth of the lag",
            "Growth of the lag of all partitions, in messages per second over 15 minutes. If the growth is above 0, "
            "the group falls behind.",
            Query(f"deriv(({by_group('lag')})[15m:1m])", "growth"),
            unit="mps",
            negative=True,
        ),
    ),
]

_PARTITIONS = [
    (
        6,
        lines(
            "Bad partitions",
            "STOP: no commits arrive. STALL: commits arrive with an unchanged offset. REWIND: the offset "
            "decreased. In all three cases, check the consumers, because more consumers do not help.",
            Query(f"max {_STOPS} (karrot_consumer_bad_partitions{{{GROUP}}})", "{{status}}"),
            stacked=True,
            colours=_PARTITION_COLOURS,
        ),
    ),
    (
        6,
        lines(
            "Partitions",
            "Known partitions of the group, and those without a usable offset. After an increase, "
            "check that the consumers were restarted or rebalanced.",
            Query(by_group("partitions"), "partitions"),
            Query(by_group("uncommitted_partitions"), "never committed"),
            Query(by_group("beyond_end_partitions"), "committed past the log end"),
            Query(by_group("open_transaction_partitions"), "behind an open transaction"),
        ),
    ),
    (
        6,
        lines(
            "Age of the newest commit",
            "Age at the time of the verdict, on the partition with the largest lag. If the age grows and there is lag, "
            "the group commits nothing. If the age grows without lag, no messages are written.",
            Query(
                f"{by_group('last_event_timestamp_seconds')} - {by_group('last_commit_timestamp_seconds')}",
                "newest commit",
            ),
            unit="s",
        ),
    ),
    (
        6,
        lines(
            "Full windows",
            "Share of the partitions with a full window of commits. Below 100 %, there are too few commits "
            "for a full verdict, because the source has just started or the group rarely commits.",
            Query(by_group("complete_ratio"), "full windows"),
            unit="percentunit",
        ),
    ),
]

_LISTED = [
    (
        12,
        lines(
            "Lag by topic",
            "This panel needs KARROT_TOPIC_METRICS=true. It also needs verdicts that list every partition. Such "
            "verdicts come from Kafka or, with Burrow, from its REST API.",
            Query(f"max by (cluster, consumer, topic) (karrot_consumer_topic_lag{{{GROUP}}})", "{{topic}}"),
            stacked=True,
        ),
    ),
    (
        12,
        lines(
            "Lag by partition",
            "The 20 partitions with the largest lag. This panel needs KARROT_PARTITION_METRICS=true. A webhook "
            "changes only the partitions that are not OK, and the partition with the largest lag.",
            Query(f"topk(20, max {_PARTITION} (karrot_partition_lag{{{GROUP}}}))", "{{topic}} {{partition}}"),
        ),
    ),
    (
        24,
        timeline(
            "Status by partition",
            "This panel needs KARROT_PARTITION_METRICS=true. If all partitions of one consumer are bad, check that "
            "consumer. If a single partition is bad, check the messages on it.",
            Query(f"max {_PARTITION} (karrot_partition_status_code{{{GROUP}}})", "{{topic}} {{partition}}"),
            _PARTITION_NAMES,
        ),
    ),
]

_WATCHED = [
    (
        8,
        lines(
            "Members",
            "Consumers in the group. 0 members with lag means that no consumer runs.",
            Query(by_group("members"), "members"),
        ),
    ),
    (
        8,
        lines(
            "State",
            "The normal state is Stable. If the state stays PreparingRebalance, a member does not poll within "
            "max.poll.interval.ms.",
            Query(
                f"max by (cluster, consumer, state) (karrot_consumer_group_state{{{GROUP}}}) > 0",
                "{{state}}",
            ),
            stacked=True,
        ),
    ),
    (
        8,
        lines(
            "Rebalances",
            "Rebalances within each step. If rebalances are frequent, members come and go, or poll too rarely.",
            Query(
                f"max by (cluster, consumer) (increase(karrot_consumer_rebalances_total{{{GROUP}}}[$__interval]))",
                "rebalances",
            ),
            bars=True,
        ),
    ),
    (
        8,
        lines(
            "Retention margin",
            "Messages that Kafka can still delete before it deletes an unread message, on the partition with the "
            "smallest margin. At 0, unread messages are lost: first increase retention.ms.",
            Query(by_group("retention_margin"), "margin"),
        ),
    ),
    (
        8,
        lines(
            "Messages lost",
            "Messages that Kafka deleted before the group read them, until the group commits a later offset.",
            Query(by_group("messages_lost"), "lost"),
            colours={"lost": BAD},
        ),
    ),
    (
        8,
        lines(
            "Second opinion and mute",
            "The verdict of another source that judges the group differently, and whether the group is muted.",
            Query(
                f"max by (cluster, consumer, source, status) (karrot_consumer_second_opinion{{{GROUP}}})",
                "{{source}}: {{status}}",
            ),
            Query(f"max by (cluster, consumer) (karrot_consumer_muted{{{GROUP}}})", "muted"),
        ),
    ),
]

ONE_GROUP: Json = board(
    "karrot-group",
    "Karrot / Consumer group",
    "One consumer group: its lag in messages and in seconds, its verdict, and its bad partitions.",
    variables=group_variables(several=False),
    rows=[
        Row("Now", _NOW, height=4),
        Row("Verdicts", [(24, _STATUS)], height=4),
        Row("Lag", _LAG),
        Row("Partitions", _PARTITIONS),
        Row("Lag and status of each topic and partition (only with extra settings)", _LISTED, folded=True),
        Row("Data from Kafka itself (only with watch)", _WATCHED, folded=True),
    ],
    annotations=[
        annotation(
            "Incidents",
            by_group("incident_start_timestamp_seconds"),
            BAD,
            "Incident",
            "The status of {{consumer}} is worse than OK during this incident.",
        ),
        annotation(
            "Alerts",
            f'max by (alertname) (ALERTS{{alertname=~"Karrot.+", alertstate="firing", {GROUP}}})',
            WATCH_OUT,
            "{{alertname}}",
            "This alert fired.",
        ),
    ],
    hours=6,
)
