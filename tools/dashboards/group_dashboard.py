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
            "Burrow's verdict. WARN: the group consumes, but its lag grew during Burrow's whole window. ERR: "
            "a partition is stopped, stalled or rewound; the panels below show which of these.",
            by_group("status_code"),
            unit="none",
            mappings=names_of(STATUS_NAMES),
        ),
    ),
    (
        3,
        stat(
            "Lag in time",
            "Age of the oldest unread message, on the partition where it is largest.",
            by_group("lag_seconds"),
            unit="s",
            thresholds=above((60, WATCH_OUT), (LAG_LIMIT_SECONDS, BAD)),
        ),
    ),
    (3, stat("Lag", "Unread messages of all partitions.", by_group("lag"))),
    (
        3,
        stat(
            "Caught up in",
            "Time to catch up at current rates. If there is lag but no value, the group is not faster than "
            "its producers. It needs more consumers, or faster ones.",
            by_group("catch_up_seconds"),
            unit="s",
            noValue="no end in sight",
        ),
    ),
    (
        3,
        stat(
            "In incident for",
            "Time since the group's status became worse than OK.",
            f"time() - {by_group('incident_start_timestamp_seconds')}",
            unit="s",
            thresholds=above((0, WATCH_OUT), (900, BAD)),
            noValue="in none",
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
            "Time in OK",
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
            "Age of the shown values. If it is above two minutes, check whether Burrow is silent or the "
            "group is deleted.",
            f"time() - {by_group('last_event_timestamp_seconds')}",
            unit="s",
            thresholds=above((120, WATCH_OUT), (300, BAD)),
            noValue="not heard of",
        ),
    ),
]

_STATUS = timeline(
    "Status",
    "Burrow's verdicts. A gap means that no verdict on the group arrived.",
    Query(by_group("status_code"), "{{consumer}}"),
    STATUS_NAMES,
)

_LAG = [
    (
        12,
        lines(
            "Lag in time",
            "If it rises as fast as the clock, the group consumes nothing. If it rises more slowly, the "
            "group falls behind. The dashed line is the alert's threshold of 5 minutes. Where Karrot knows only a "
            "lower bound, the messages are older.",
            Query(by_group("lag_seconds"), "lag in time"),
            Query(f"{by_group('lag_seconds')} and {by_group('lag_seconds_kind')} == 2", "lower bound"),
            unit="s",
            limit=LAG_LIMIT_SECONDS,
        ),
    ),
    (
        12,
        lines(
            "Lag",
            "If scalable lag is far below the lag, most unread messages are on partitions without progress, "
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
            "Messages per second on the partition with the largest lag. The partition catches up while "
            "committed is above written.",
            Query(by_group("produce_rate"), "written"),
            Query(by_group("consume_rate"), "committed"),
            unit="mps",
            colours={"written": WATCH_OUT, "committed": GOOD},
        ),
    ),
    (
        12,
        lines(
            "Lag gained",
            "Growth of the lag of all partitions in messages per second, over 15 minutes. Above 0 the group "
            "falls behind.",
            Query(f"deriv(({by_group('lag')})[15m:1m])", "gained"),
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
            "went back. For all three, check the consumers; more consumers do not help.",
            Query(f"max {_STOPS} (karrot_consumer_bad_partitions{{{GROUP}}})", "{{status}}"),
            stacked=True,
            colours=_PARTITION_COLOURS,
        ),
    ),
    (
        6,
        lines(
            "Partitions",
            "Partitions of the group that Burrow knows. After an increase, check that the consumers were "
            "restarted or rebalanced.",
            Query(by_group("partitions"), "partitions"),
        ),
    ),
    (
        6,
        lines(
            "Age of the newest commit",
            "Age at the time of the verdict, on the partition with the largest lag. If it grows with lag, "
            "the group commits nothing. If it grows without lag, no messages are written.",
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
            "Windows full",
            "Share of the partitions with a full window of commits. Below 100 % Burrow has too few commits "
            "for a verdict: after its start, or because the group rarely commits.",
            Query(by_group("complete_ratio"), "windows full"),
            unit="percentunit",
        ),
    ),
]

_LISTED = [
    (
        12,
        lines(
            "Lag by topic",
            "Needs KARROT_TOPIC_METRICS=true and verdicts that list every partition: from Burrow's REST API or from "
            "Kafka.",
            Query(f"max by (cluster, consumer, topic) (karrot_consumer_topic_lag{{{GROUP}}})", "{{topic}}"),
            stacked=True,
        ),
    ),
    (
        12,
        lines(
            "Lag by partition",
            "The 20 partitions with the largest lag. This needs KARROT_PARTITION_METRICS=true. A webhook "
            "lists only partitions that are not OK, and the one with the largest lag.",
            Query(f"topk(20, max {_PARTITION} (karrot_partition_lag{{{GROUP}}}))", "{{topic}} {{partition}}"),
        ),
    ),
    (
        24,
        timeline(
            "Status by partition",
            "Needs KARROT_PARTITION_METRICS=true. All partitions of one consumer at once: that consumer. One alone: "
            "its data.",
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
            "The state should be Stable. If it is PreparingRebalance for long, a member does not poll within "
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
            "Rebalances within each step. If they repeat, members come and go, or take too long between two polls.",
            Query(
                f"max by (cluster, consumer) (increase(karrot_consumer_rebalances_total{{{GROUP}}}[$__interval]))",
                "rebalances",
            ),
            bars=True,
        ),
    ),
    (
        12,
        lines(
            "Retention margin",
            "Messages between the oldest unread message and the next one that Kafka deletes, on the "
            "partition with the smallest margin. At 0 unread messages are lost: first increase retention.ms.",
            Query(by_group("retention_margin"), "margin"),
        ),
    ),
    (
        12,
        lines(
            "Messages lost",
            "Messages that Kafka deleted before the group read them, until the group continues after them.",
            Query(by_group("messages_lost"), "lost"),
            colours={"lost": BAD},
        ),
    ),
]

ONE_GROUP: Json = board(
    "karrot-group",
    "Karrot / Consumer group",
    "One consumer group: its lag in messages and in time, Burrow's verdict, and its bad partitions.",
    variables=group_variables(several=False),
    rows=[
        Row("Now", _NOW, height=4),
        Row("Verdicts", [(24, _STATUS)], height=4),
        Row("Lag", _LAG),
        Row("Partitions", _PARTITIONS),
        Row("Topics and partitions one by one (settings of their own)", _LISTED, folded=True),
        Row("Seen by Kafka itself (with watch)", _WATCHED, folded=True),
    ],
    annotations=[
        annotation(
            "Incidents",
            by_group("incident_start_timestamp_seconds"),
            BAD,
            "Incident",
            "Burrow judged {{consumer}} worse than OK for as long as this lasts.",
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
