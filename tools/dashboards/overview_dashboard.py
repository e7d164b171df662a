"""Builds the dashboard of all groups: which is worst, since when, and whether it improves."""

from tools.dashboards.group_queries import GROUPS, LAG_LIMIT_SECONDS, group_link, group_variables, of_those, per_group
from tools.dashboards.panels import (
    BAD,
    GOOD,
    NEVER,
    OFF,
    STATUS_NAMES,
    WATCH_OUT,
    Column,
    Json,
    Query,
    Row,
    above,
    annotation,
    board,
    choice,
    lines,
    names_of,
    stat,
    table,
    timeline,
)

_LINK = group_link("__data.fields.Cluster", "__data.fields.Group")
_SERIES_LINK = group_link("__field.labels.cluster", "__field.labels.consumer")
# Status first, lag next; a group with an unknown lag still has a status.
_WORST_NOW = f"topk($rows, 1e12 * {per_group('status_code')} + ({per_group('lag')} or 0 * {per_group('status_code')}))"
_IN_ERROR, _IN_WARNING = (per_group("status", f', status="{status}"') for status in ("ERR", "WARN"))
_COLOURED = {"custom__cellOptions": {"type": "color-text"}}


def _most(metric: str, over: str = "max_over_time") -> str:
    """Return a query for the groups that were worst over the whole shown time, so that lines do not come and go."""
    return f"topk($top, max by (cluster, consumer) ({over}(karrot_consumer_{metric}{{{GROUPS}}}[$__range] @ end())))"


def _column(title: str, expr: str, unit: str, **properties: object) -> Column:
    return Column(title, f"{expr}\nand on (cluster, consumer)\n{_WORST_NOW}", {"unit": unit, **properties})


_NOW = [
    (
        4,
        stat(
            "Groups in error",
            "Groups that Burrow judges as ERR: a partition is stopped, stalled or rewound. They are on top of the "
            "table.",
            f"sum({_IN_ERROR})",
            thresholds=above((1, BAD)),
        ),
    ),
    (
        4,
        stat(
            "Groups in warning",
            "Groups that Burrow judges as WARN: they consume, and their lag grew through its whole window.",
            f"sum({_IN_WARNING})",
            thresholds=above((1, WATCH_OUT)),
        ),
    ),
    (
        4,
        stat(
            "Groups",
            "Groups heard of lately. If some are missing, look whether the notifier's threshold is 1: with 2, "
            "Burrow's default, healthy groups are never heard.",
            f"count({per_group('last_event_timestamp_seconds')})",
        ),
    ),
    (
        4,
        stat(
            "Longest lag in time",
            "How late the latest group is. Red from 5 minutes, as the alert KarrotConsumerLagGrowing has it.",
            f"max({per_group('lag_seconds')})",
            unit="s",
            thresholds=above((60, WATCH_OUT), (LAG_LIMIT_SECONDS, BAD)),
        ),
    ),
    (
        4,
        stat(
            "Lag of all groups",
            "Messages that wait, over all selected groups. How bad that is tells the lag in time.",
            f"sum({per_group('lag')})",
        ),
    ),
    (
        4,
        stat(
            "Since last heard",
            "Time since anything was heard of each cluster: from Burrow, or from Kafka itself where Karrot watches "
            "it. While this grows all numbers here are old: run karrot doctor.",
            Query(
                "time() - max by (cluster) "
                '({__name__=~"karrot_last_event_timestamp_seconds|karrot_watch_last_poll_timestamp_seconds", '
                'cluster=~"$cluster"})',
                "{{cluster}}",
            ),
            unit="s",
            thresholds=above((120, WATCH_OUT), (300, BAD)),
            text="value_and_name",
            mappings=NEVER,
        ),
    ),
]

_TABLE = table(
    "Worst groups now",
    "Those in ERR first, then WARN, then by lag in time. A click on a group's name opens its board. Change in 1 h "
    "above 0: it falls further behind. No catch-up time: at present rates it never will.",
    [
        _column(
            "Status",
            per_group("status_code"),
            "none",
            mappings=names_of(STATUS_NAMES),
            custom__cellOptions={"type": "color-background"},
            custom__width=80,
        ),
        _column(
            "Lag in time",
            per_group("lag_seconds"),
            "s",
            thresholds=above((60, WATCH_OUT), (LAG_LIMIT_SECONDS, BAD), below=OFF),
            **_COLOURED,
        ),
        _column("Lag", per_group("lag"), "short"),
        _column(
            "Change in 1 h",
            f"max by (cluster, consumer) (delta(karrot_consumer_lag{{{GROUPS}}}[1h]))",
            "short",
            decimals=0,
            thresholds=above((-1, OFF), (1, WATCH_OUT), below=GOOD),
            **_COLOURED,
        ),
        _column("Caught up in", per_group("catch_up_seconds"), "s"),
        _column(
            "Bad partitions",
            "sum by (cluster, consumer) (max by (cluster, consumer, status) "
            f"(karrot_consumer_bad_partitions{{{GROUPS}}}))",
            "none",
            thresholds=above((1, WATCH_OUT), below=OFF),
            **_COLOURED,
        ),
        _column("In incident for", f"time() - {per_group('incident_start_timestamp_seconds')}", "s"),
        _column("Last verdict", f"1000 * {per_group('last_event_timestamp_seconds')}", "dateTimeFromNow"),
    ],
    {
        "cluster": Column("Cluster", "", {}),
        "consumer": Column("Group", "", {"links": [_LINK], "custom__minWidth": 200}),
    },
    sort=["Status", "Lag in time"],
)

_COURSE = [
    (
        12,
        lines(
            "Lag in time, worst groups",
            "How long ago the newest consumed message was written, of the groups that were latest in the time shown. "
            "Rising as fast as the clock: nothing is consumed. The dashed line is the alert's 5 minutes.",
            of_those(per_group("lag_seconds"), _most("lag_seconds")),
            unit="s",
            limit=LAG_LIMIT_SECONDS,
            links=[_SERIES_LINK],
        ),
    ),
    (
        12,
        lines(
            "Lag, worst groups",
            "Messages that wait, of the groups that had most in the time shown. A busy group may have many and be on "
            "time: compare with the lag in time.",
            of_those(per_group("lag"), _most("lag")),
            links=[_SERIES_LINK],
        ),
    ),
]

_STATUSES = timeline(
    "Status, most troubled groups",
    "Burrow's verdicts on the groups that were longest not OK in the time shown. A gap: nothing was heard of it. "
    "Several groups that turn red at once share a cause: a broker, a topic, a deployment.",
    of_those(per_group("status_code"), _most("status_code", "avg_over_time")),
    STATUS_NAMES,
    links=[_SERIES_LINK],
)

_CLUSTERS = [
    (
        8,
        lines(
            "Groups by status",
            "A step down of all at once is Burrow or Karrot, not the groups.",
            Query(f'count_values("status", {per_group("status_code")})', "{{status}}"),
            stacked=True,
            names=STATUS_NAMES,
        ),
    ),
    (
        8,
        lines(
            "Lag by cluster",
            "Messages that wait, over all selected groups of each cluster.",
            Query(f"sum by (cluster) ({per_group('lag')})", "{{cluster}}"),
            stacked=True,
        ),
    ),
    (
        8,
        lines(
            "Incidents begun",
            "Incidents that began within each step, by cluster. Many small ones of few groups: they flap; look at the "
            "table of KarrotConsumerFlapping's runbook.",
            Query(
                "sum by (cluster) (max by (cluster, consumer) "
                f"(increase(karrot_consumer_incidents_total{{{GROUPS}}}[$__interval])))",
                "{{cluster}}",
            ),
            bars=True,
            stacked=True,
        ),
    ),
]

OVERVIEW: Json = board(
    "karrot-overview",
    "Karrot / Overview",
    "Which consumer group is worst, since when, and whether it gets better. Any name leads to the group's own board.",
    variables=[
        *group_variables(several=True),
        choice("rows", "Rows", (50, 100, 250, 1000), 100),
        choice("top", "Lines", (5, 10, 20, 50), 10),
    ],
    rows=[
        Row("Now", _NOW, height=4),
        Row("Who is behind", [(24, _TABLE)], height=12),
        Row("How it went", _COURSE, height=9),
        Row("Verdicts", [(24, _STATUSES)], height=9),
        Row("All groups together", _CLUSTERS),
    ],
    annotations=[
        annotation(
            "Incidents in error",
            f"1000 * {per_group('incident_start_timestamp_seconds')}\nand on (cluster, consumer)\n{_IN_ERROR} == 1",
            BAD,
            "{{consumer}} ({{cluster}})",
            "An incident began that came to ERR.",
            value_is_time=True,
        )
    ],
    hours=6,
)
