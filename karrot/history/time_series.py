"""A time series: the question to a table, and the points of the rows that one or several have of it."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from karrot.history.duckdb_reader import Row
from karrot.history.moments import IN_SPAN, moment_of
from karrot.history.results import SeriesPoint
from karrot.history.series_metrics import SeriesMetric

__all__ = ["TableSeries", "points", "question"]

_STEP = "epoch_ms(minute) // $step * $step"

_STEPS = f"""
SELECT cluster, began, {{values}}
FROM (SELECT *, {_STEP} AS began{{edges}} FROM {{table}} WHERE {IN_SPAN}{{named}}) GROUP BY ALL
"""  # noqa: S608 (constants; every value is bound)

_EDGES = ", ".join(
    f"minute = {pick}(minute) OVER (PARTITION BY cluster, topic, partition, {_STEP}) AS {name}"
    for name, pick in (("oldest", "min"), ("newest", "max"))
)


class TableSeries(NamedTuple):
    """What a table tells of some metrics: of each step a row of the cluster, when it began, and a value for each."""

    metrics: tuple[str, ...]
    rows: list[Row]


def question(metrics: Sequence[SeriesMetric], named: str) -> str:
    """The question for metrics of one table; ``named`` are the conditions on what was named."""
    edges = f", {_EDGES}" if "partition" in metrics[0].parts else ""
    values = ", ".join(metric.value for metric in metrics)
    return _STEPS.replace("{values}", values).replace("{edges}", edges).replace("{named}", named)


def points(
    told: Sequence[TableSeries], metrics: Sequence[str], *, newest_first: bool, limit: int | None
) -> tuple[SeriesPoint, ...]:
    """The points of a group of one cluster. Of one table, rows have the values in the order of the metrics already."""
    rows = told[0].rows if len(told) == 1 else _merged(told, metrics)
    ordered = sorted(rows, key=itemgetter(1), reverse=newest_first)[:limit]
    return tuple(SeriesPoint(moment_of(row[1]), row[2:]) for row in ordered)


def _merged(told: Sequence[TableSeries], metrics: Sequence[str]) -> list[Row]:
    steps: dict[tuple[str, int], dict[str, Any]] = {}
    for table in told:
        for where, at, *values in table.rows:
            steps.setdefault((where, at), {}).update(zip(table.metrics, values, strict=True))
    return [(*step, *map(values.get, metrics)) for step, values in steps.items()]
