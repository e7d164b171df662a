"""Builds the dashboard of all groups: which groups are worst, since when, and whether they improve."""

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
# Order by status, then by lag. A group with an unknown lag counts as a group without lag.
_WORST_NOW = f"topk($rows, 1e12 * {per_group('status_code')} + ({per_group('lag')} or 0 * {per_group('status_code')}))"
_IN_ERROR, _IN_WARNING = (per_group("status", f', status="{status}"') for status in ("ERR", "WARN"))
_COLOURED = {"custom__cellOptions": {"type": "color-text"}}


def _most(metric: str, over: str = "max_over_time") -> str:
    """Return a query for the groups that were worst over the whole shown time, so that no line begins or ends early."""
    return f"topk($top, max by (cluster, consumer) ({over}(karrot_consumer_{metric}{{{GROUPS}}}[$__range] @ end())))"


def _column(title: str, expr: str, unit: str, **properties: object) -> Column:
    return Column(title, f"{expr}\nand on (cluster, consumer)\n{_WORST_NOW}", {"unit": unit, **properties})


_NOW = [
    (
        4,
        stat(
            "Groups in error",
            "Groups with status ERR: a partition is stopped, stalled or rewound. The table lists these groups first.",
            f"sum({_IN_ERROR})",
            thresholds=above((1, BAD)),
        ),
    ),
    (
        4,
        stat(
            "Groups in warning",
            "Groups with status WARN: they consume, but their lag grew during the whole window of commits.",
            f"sum({_IN_WARNING})",
            thresholds=above((1, WATCH_OUT)),
        ),
    ),
    (
        4,
        stat(
            "Groups",
            "Groups with recent verdicts. With Burrow, if some groups are missing, check that the notifier's "
            "threshold is 1. With 2, Burrow's default, Burrow never posts healthy groups.",
            f"count({per_group('last_event_timestamp_seconds')})",
        ),
    ),
    (
        4,
        stat(
            "Largest lag in seconds",
            "The largest lag in seconds of all groups. The number is red from 5 minutes, the threshold of the alert "
            "KarrotConsumerLagGrowing.",
            f"max({per_group('lag_seconds')})",
            unit="s",
            thresholds=above((60, WATCH_OUT), (LAG_LIMIT_SECONDS, BAD)),
        ),
    ),
    (
        4,
        stat(
            "Lag of all groups",
            "Unread messages of all selected groups. The lag in seconds shows how serious this is.",
            f"sum({per_group('lag')})",
        ),
    ),
    (
        4,
        stat(
            "Time since the last event",
            "Time since the last event (with Burrow) or the last poll (with watch) of each cluster. If the time "
            "grows, all numbers on this dashboard are old: run karrot doctor.",
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
    "Groups in ERR come first, then groups in WARN, then groups with the largest lag in seconds. Where only a lower "
    "bound of this lag is known, it is in the column At least. Click a group's name to open its dashboard. If the "
    "change in 1 h is above 0, the group falls further behind. A group with lag and without a catch-up time never "
    "catches up at current rates.",
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
            "Lag in seconds",
            f"{per_group('lag_seconds')} unless {per_group('lag_seconds_at_least')}",
            "s",
            thresholds=above((60, WATCH_OUT), (LAG_LIMIT_SECONDS, BAD), below=OFF),
            **_COLOURED,
        ),
        _column("At least", per_group("lag_seconds_at_least"), "s"),
        _column("Lag", per_group("lag"), "short"),
        _column(
            "Change in 1 h",
            f"max by (cluster, consumer) (delta(karrot_consumer_lag{{{GROUPS}}}[1h]))",
            "short",
            decimals=0,
            thresholds=above((-1, OFF), (1, WATCH_OUT), below=GOOD),
            **_COLOURED,
        ),
        _column("Catch-up time", per_group("catch_up_seconds"), "s"),
        _column(
            "Bad partitions",
            "sum by (cluster, consumer) (max by (cluster, consumer, status) "
            f"(karrot_consumer_bad_partitions{{{GROUPS}}}))",
            "none",
            thresholds=above((1, WATCH_OUT), below=OFF),
            **_COLOURED,
        ),
        _column("Length of the incident", f"time() - {per_group('incident_start_timestamp_seconds')}", "s"),
        _column("Last verdict", f"1000 * {per_group('last_event_timestamp_seconds')}", "dateTimeFromNow"),
    ],
    {
        "cluster": Column("Cluster", "", {}),
        "consumer": Column("Group", "", {"links": [_LINK], "custom__minWidth": 200}),
    },
    sort=["Status", "Lag in seconds"],
)

_COURSE = [
    (
        12,
        lines(
            "Lag in seconds, worst groups",
            "Age of the oldest unread message, for the groups with the largest age in the shown time. If the age "
            "rises as fast as the clock, the group consumes nothing. The dashed line is the alert's threshold of 5 "
            "minutes.",
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
            "Unread messages of the groups with the most unread messages in the shown time. A busy group can have "
            "many unread messages and still be on time, so compare with the lag in seconds.",
            of_those(per_group("lag"), _most("lag")),
            links=[_SERIES_LINK],
        ),
    ),
]

_STATUSES = timeline(
    "Status, groups with the longest time not OK",
    "The verdicts on the groups that were not OK for the longest time. A gap means that no verdict arrived. If "
    "several groups turn red at the same time, they have a common cause, such as a broker, a topic or a "
    "deployment.",
    of_those(per_group("status_code"), _most("status_code", "avg_over_time")),
    STATUS_NAMES,
    links=[_SERIES_LINK],
)

_CLUSTERS = [
    (
        8,
        lines(
            "Groups by status",
            "If the numbers of all statuses fall at once, the cause is the source of verdicts or Karrot.",
            Query(f'count_values("status", {per_group("status_code")})', "{{status}}"),
            stacked=True,
            names=STATUS_NAMES,
        ),
    ),
    (
        8,
        lines(
            "Lag by cluster",
            "Unread messages of all selected groups of each cluster.",
            Query(f"sum by (cluster) ({per_group('lag')})", "{{cluster}}"),
            stacked=True,
        ),
    ),
    (
        8,
        lines(
            "New incidents",
            "Incidents that began within each step, by cluster. A group with many short incidents flaps: see the "
            "table in the runbook of KarrotConsumerFlapping.",
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
    "Which consumer groups are worst, since when, and whether they improve. Click a group to open its dashboard.",
    variables=[
        *group_variables(several=True),
        choice("rows", "Rows", (50, 100, 250, 1000), 100),
        choice("top", "Lines", (5, 10, 20, 50), 10),
    ],
    rows=[
        Row("Now", _NOW, height=4),
        Row("Worst groups", [(24, _TABLE)], height=12),
        Row("Lag of the worst groups over time", _COURSE, height=9),
        Row("Verdicts", [(24, _STATUSES)], height=9),
        Row("All groups", _CLUSTERS),
    ],
    annotations=[
        annotation(
            "Incidents in error",
            f"1000 * {per_group('incident_start_timestamp_seconds')}\nand on (cluster, consumer)\n{_IN_ERROR} == 1",
            BAD,
            "{{consumer}} ({{cluster}})",
            "An incident that reached ERR began.",
            value_is_time=True,
        )
    ],
    hours=6,
)
