"""As-of joins: which look at a log a row is given, and how long ago the log ended where something was committed."""

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from karrot.pipeline.store.shared_columns import rounded

_LAST: Final = 2**63 - 1
_LOOK: Final = ("life", "at_ms", "end_offset", "next_ms", "next_offset")


class Lookup(NamedTuple):
    """Which look at a log a row is given, as ``name``: the last one ``looked`` at not beyond what is ``asked``."""

    name: str
    within: tuple[str, ...]
    looked: str
    asked: str


def with_look(rows: DataFrame, ends: DataFrame, by: Lookup) -> DataFrame:
    """Add to each row the last of the looks at its log whose place is not beyond the row's; of equal ones the latest.

    ``ends`` are the spans of `karrot.pipeline.derive.log_end_samples`. An as-of join: the union, and in it the last
    look that is not NULL.
    """
    look, row = F.struct(*_LOOK), F.struct(*rows.columns)
    told = ends.select(*by.within, F.col(by.looked).alias("place"), F.col("at_ms").alias("tie"), look.alias("look"))
    asking = rows.select(*by.within, F.col(by.asked).alias("place"), F.lit(_LAST).alias("tie"), row.alias("row"))
    order = Window.partitionBy(*by.within).orderBy("place", "tie").rowsBetween(Window.unboundedPreceding, 0)
    return (
        told.unionByName(asking, allowMissingColumns=True)
        .withColumn(by.name, F.last("look", ignorenulls=True).over(order))
        .where(F.col("row").isNotNull())
        .select("row.*", by.name)
    )


def seconds_behind() -> Column:
    """How long before ``at_ms`` the log ended at ``committed_offset``; NULL unless looks on both sides tell.

    Of rows with their ``lag`` and the look at which the log had ``crossed`` that offset.
    """
    crossed, committed = F.col("crossed"), F.col("committed_offset")
    since, grown = (F.try_subtract(each, crossed.end_offset) for each in (committed, crossed.next_offset))
    share = F.try_divide(since, grown)
    ended_ms = crossed.at_ms + share * (crossed.next_ms - crossed.at_ms)
    seconds = rounded((F.col("at_ms") - ended_ms) / 1000, 3)
    return F.when(F.col("lag") == 0, 0.0).when(seconds > 0, seconds).when(seconds <= 0, 0.0)
