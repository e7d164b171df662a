"""The points of a time series, of the rows that one or several tables have of it."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from karrot.history.answers import Point
from karrot.history.duck import Row
from karrot.history.spans import moment_of

__all__ = ["Told", "points"]


class Told(NamedTuple):
    """What a table tells of some metrics: of each step a row of the cluster, when it began, and a value for each."""

    metrics: tuple[str, ...]
    rows: list[Row]


def points(told: Sequence[Told], metrics: Sequence[str], *, newest_first: bool, limit: int | None) -> tuple[Point, ...]:
    """The points of a group of one cluster. Of one table, rows have the values in the order of the metrics already."""
    rows = told[0].rows if len(told) == 1 else _merged(told, metrics)
    ordered = sorted(rows, key=itemgetter(1), reverse=newest_first)[:limit]
    return tuple(Point(moment_of(row[1]), row[2:]) for row in ordered)


def _merged(told: Sequence[Told], metrics: Sequence[str]) -> list[Row]:
    steps: dict[tuple[str, int], dict[str, Any]] = {}
    for table in told:
        for where, at, *values in table.rows:
            steps.setdefault((where, at), {}).update(zip(table.metrics, values, strict=True))
    return [(*step, *map(values.get, metrics)) for step, values in steps.items()]
