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
            "Burrow's verdict. WARN: it consumes, and its lag grew through Burrow's whole window. ERR: a partition is "
            "stopped, stalled or rewound; which of these is below.",
            by_group("status_code"),
            unit="none",
            mappings=names_of(STATUS_NAMES),
        ),
    ),
    (
        3,
        stat(
            "Lag in time",
            "How long ago the newest message that was consumed had been written, on the partition that lags most.",
            by_group("lag_seconds"),
            unit="s",
            thresholds=above((60, WATCH_OUT), (LAG_LIMIT_SECONDS, BAD)),
        ),
    ),
    (3, stat("Lag", "Messages that wait, over all partitions.", by_group("lag"))),
    (
        3,
        stat(
            "Caught up in",
            "At present rates. Nothing here while there is lag: the group is not faster than its producers, and needs "
            "consumers or faster ones.",
            by_group("catch_up_seconds"),
            unit="s",
            noValue="no end in sight",
        ),
    ),
    (
        3,
        stat(
            "In incident for",
            "Since Burrow judged it worse than OK.",
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
            "Incidents that began in the time shown. Many: it flaps, often by rebalances or batches.",
            f"max by (cluster, consumer) (increase(karrot_consumer_incidents_total{{{GROUP}}}[$__range]))",
            thresholds=above((1, WATCH_OUT)),
            decimals=0,
        ),
    ),
    (
        3,
        stat(
            "Time in OK",
            "Share of the time shown in which Burrow judged it OK, of the time it was heard of.",
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
            "Age of what is shown here. Above two minutes: look whether Burrow is silent or the group is gone.",
            f"time() - {by_group('last_event_timestamp_seconds')}",
            unit="s",
            thresholds=above((120, WATCH_OUT), (300, BAD)),
            noValue="not heard of",
        ),
    ),
]

_STATUS = timeline(
    "Status",
    "Burrow's verdicts. A gap: nothing was heard of the group.",
    Query(by_group("status_code"), "{{consumer}}"),
    STATUS_NAMES,
)

_LAG = [
    (
        12,
        lines(
            "Lag in time",
            "Rising as fast as the clock: nothing is consumed. Rising more slowly: it falls behind. The dashed line "
            "is the alert's 5 minutes.",
            Query(by_group("lag_seconds"), "lag in time"),
            unit="s",
            limit=LAG_LIMIT_SECONDS,
        ),
    ),
    (
        12,
        lines(
            "Lag",
            "Where scalable lag is far below the lag, waiting messages are on partitions that nobody works off: more "
            "consumers do not help. Where one partition has nearly all of it, keys are uneven.",
            Query(by_group("lag"), "all partitions"),
            Query(by_group("scalable_lag"), "scalable"),
            Query(by_group("max_lag"), "worst partition"),
        ),
    ),
    (
        12,
        lines(
            "Written and committed",
            "Messages per second on the partition that lags most. It catches up while committed is above written.",
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
            "Messages per second by which the lag of all partitions grew, over 15 minutes. Above 0 it falls behind.",
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
            "STOP: no commits come. STALL: commits come and do not move. REWIND: they went back. For all three look "
            "at the consumers, not at their number.",
            Query(f"max {_STOPS} (karrot_consumer_bad_partitions{{{GROUP}}})", "{{status}}"),
            stacked=True,
            colours=_PARTITION_COLOURS,
        ),
    ),
    (
        6,
        lines(
            "Partitions",
            "Partitions that Burrow knows of the group. After an increase, have the consumers been restarted or "
            "rebalanced?",
            Query(by_group("partitions"), "partitions"),
        ),
    ),
    (
        6,
        lines(
            "Age of the newest commit",
            "When the verdict was taken, on the partition that lags most. Growing with lag: nothing is committed. "
            "Growing without: nothing is written.",
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
            "Share of the partitions whose window of commits is full. Below 100 % Burrow has seen too little to "
            "judge: after its start, or with few commits.",
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
            "The 20 partitions with most. Needs KARROT_PARTITION_METRICS=true. A webhook lists only partitions that "
            "are not OK, and the one that lags most.",
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
            "Consumers in the group. 0 with lag: nobody consumes.",
            Query(by_group("members"), "members"),
        ),
    ),
    (
        8,
        lines(
            "State",
            "Stable is where it should be. Long in PreparingRebalance: a member does not poll within "
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
            "Within each step. Again and again: members come and go, or take too long between two polls.",
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
            "Messages between the oldest unread one and what Kafka deletes next, where that is least. At 0 unread "
            "messages are lost: lengthen retention.ms before all else.",
            Query(by_group("retention_margin"), "margin"),
        ),
    ),
    (
        12,
        lines(
            "Messages lost",
            "Deleted by Kafka before the group read them, until it goes on behind them.",
            Query(by_group("messages_lost"), "lost"),
            colours={"lost": BAD},
        ),
    ),
]

ONE_GROUP: Json = board(
    "karrot-group",
    "Karrot / Consumer group",
    "One consumer group: its lag in messages and in time, what Burrow makes of it, and what of it is bad.",
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
