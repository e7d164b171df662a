"""Lists the groups of a time range: the query, its rows and their order."""

from collections.abc import Iterable
from enum import StrEnum

from karrot.event import Status
from karrot.history.duckdb_reader import Row
from karrot.history.moments import IN_SPAN, moment_of
from karrot.history.results import GroupHistory
from karrot.history.time_series import severity


class GroupOrder(StrEnum):
    """The orders in which groups are listed."""

    NAME = "name"
    LAG = "lag"
    LAG_MAX = "lag_max"
    NOT_OK = "not_ok"
    INCIDENTS = "incidents"


GROUPS = f"""
SELECT cluster, consumer, epoch_ms(min(minute)), epoch_ms(max(minute)), arg_max(severity, minute), max(severity),
  arg_max(lag_last, minute), max(lag_max), max(lag_seconds_max), count(*), count(*) FILTER (not_ok > 0)
FROM (SELECT *, {severity("worst_status")} AS severity FROM {{table}} WHERE {IN_SPAN}{{named}}) GROUP BY ALL
"""  # noqa: S608 (constants; every value is bound)
"""The query uses the numbers of statuses. With texts, it takes 1.5 times as long. ``arg_max`` ignores NULL."""


JUDGED = f"""
SELECT DISTINCT filename, cluster, consumer
FROM {{table_with_files}}
WHERE {IN_SPAN} AND worst_status IS NOT NULL{{named}}
"""  # noqa: S608 (constants; every value is bound)
"""The files with verdicts on each group."""


def group_of(row: Row, incidents: int, *, counts_all: bool) -> GroupHistory:
    """Make a group from a row of `GROUPS`. ``counts_all``: the incidents of all the group's days are known.

    If some are unknown, the group's ``incidents`` counts the known ones, or is ``None`` if no incident is known.
    """
    cluster, group, first, last, status, worst, lag, lag_max, lag_seconds, minutes, not_ok = row
    return GroupHistory(
        cluster,
        group,
        moment_of(first),
        moment_of(last),
        _status(status),
        _status(worst),
        lag,
        lag_max,
        lag_seconds,
        minutes,
        not_ok,
        incidents if incidents or (counts_all and worst is not None) else None,
    )


def groups_in_order(groups: Iterable[GroupHistory], order: GroupOrder) -> list[GroupHistory]:
    """Sort the groups in this order. Groups that are equal in this order are sorted by name."""
    return sorted(groups, key=_KEYS[order])


def _status(severity: int | None) -> str | None:
    return None if severity is None else Status(severity).name


_KEYS = {
    GroupOrder.NAME: lambda each: (each.cluster, each.group),
    GroupOrder.LAG: lambda each: (-(each.lag or 0), each.cluster, each.group),
    GroupOrder.LAG_MAX: lambda each: (-(each.lag_max or 0), each.cluster, each.group),
    GroupOrder.NOT_OK: lambda each: (-each.minutes_not_ok, each.cluster, each.group),
    GroupOrder.INCIDENTS: lambda each: (-(each.incidents or 0), each.cluster, each.group),
}
