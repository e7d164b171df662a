"""The metrics of a group's time series, and the query for the metrics of one table."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from karrot.event import Status
from karrot.history.time_ranges import IN_SPAN


class SeriesMetric(NamedTuple):
    """A metric: its table, and the SQL that makes one value from the rows of a step. Users cannot change the SQL.

    Rows of the table have ``cluster``, ``consumer`` and ``minute``. ``parts`` are the columns by which the metric can
    be limited to a part of the group. If these columns are ``topic`` and ``partition``, each row also has two flags:
    whether it is the ``oldest`` or the ``newest`` row of its partition in the step. Only rows that fulfil the condition
    ``only`` count.
    """

    name: str
    table: str
    value: str
    parts: tuple[str, ...] = ()
    only: str = "true"


def severity(column: str) -> str:
    """SQL for Burrow's number of the status in a column; NULL for any other string."""
    cases = " ".join(f"WHEN '{each.name}' THEN {each.value}" for each in Status)
    return f"CASE {column} {cases} END"


def _sum(column: str, rows: str) -> str:
    """SQL for a sum over some of the rows; NULL if the column is NULL in one of them."""
    return f"CASE WHEN bool_and({column} IS NOT NULL) FILTER ({rows}) THEN sum({column}) FILTER ({rows}) END"


_LAG, _RATES, _SKEW = "lag_minute", "rates_minute", "skew_minute"
_LAGS, _COMMITTED = "partition_lag_minute", "commits > 0"
_BY_TOPIC, _BY_PARTITION = ("topic",), ("topic", "partition")
_MINUTES: Final = "count(DISTINCT minute)"

METRICS: Final[Mapping[str, SeriesMetric]] = MappingProxyType(
    {
        metric.name: metric
        for metric in (
            SeriesMetric("lag", _LAG, "arg_max(lag_last, minute) FILTER (lag_last IS NOT NULL)"),
            SeriesMetric("lag_min", _LAG, "min(lag_min)"),
            SeriesMetric("lag_max", _LAG, "max(lag_max)"),
            SeriesMetric("lag_avg", _LAG, "avg(lag_avg)"),
            SeriesMetric("lag_seconds", _LAG, "max(lag_seconds_max)"),
            SeriesMetric("status", _LAG, f"max({severity('worst_status')})"),
            SeriesMetric("events", _LAG, "sum(count)"),
            SeriesMetric("not_ok", _LAG, "sum(not_ok)"),
            SeriesMetric("produced", _RATES, "sum(produced)", _BY_PARTITION),
            SeriesMetric("consumed", _RATES, "sum(consumed)", _BY_PARTITION),
            SeriesMetric("produce_rate", _RATES, f"sum(produce_rate) / {_MINUTES}", _BY_PARTITION),
            SeriesMetric("consume_rate", _RATES, f"sum(consume_rate) / {_MINUTES}", _BY_PARTITION),
            SeriesMetric("catch_up_seconds", _RATES, "max(catch_up_seconds)", _BY_PARTITION),
            SeriesMetric("max_share", _SKEW, "max(max_share)", _BY_TOPIC),
            SeriesMetric("gini", _SKEW, "max(gini)", _BY_TOPIC),
            SeriesMetric("offset", _LAGS, _sum("offset_sum", "true"), _BY_PARTITION, _COMMITTED),
            SeriesMetric("offset_first", _LAGS, _sum("offset_first", "oldest"), _BY_PARTITION, _COMMITTED),
            SeriesMetric("offset_last", _LAGS, _sum("offset_last", "newest"), _BY_PARTITION, _COMMITTED),
            SeriesMetric("commits", _LAGS, "sum(commits)", _BY_PARTITION, _COMMITTED),
            SeriesMetric("partition_lag", _LAGS, _sum("lag", "newest"), _BY_PARTITION),
            SeriesMetric("partition_lag_seconds", _LAGS, "max(lag_seconds)", _BY_PARTITION),
            SeriesMetric("end_offset", _LAGS, _sum("end_offset", "newest"), _BY_PARTITION),
        )
    }
)

_STEP = "epoch_ms(minute) // $step * $step"

_STEPS = f"""
SELECT cluster, began, {{values}}
FROM (SELECT *, {_STEP} AS began{{edges}} FROM {{table}} WHERE {IN_SPAN}{{named}} AND {{only}}) GROUP BY ALL
"""  # noqa: S608 (constants; every value is bound)

_EDGES = ", ".join(
    f"minute = {pick}(minute) OVER (PARTITION BY cluster, topic, partition, {_STEP}) AS {name}"
    for name, pick in (("oldest", "min"), ("newest", "max"))
)


def question(metrics: Sequence[SeriesMetric]) -> str:
    """The query for metrics of the same rows. Its rows have the cluster, the beginning of a step, and the values."""
    edges = f", {_EDGES}" if "partition" in metrics[0].parts else ""
    values = ", ".join(metric.value for metric in metrics)
    return _STEPS.replace("{values}", values).replace("{edges}", edges).replace("{only}", metrics[0].only)
