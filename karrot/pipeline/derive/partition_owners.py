"""Who had which partition of a group, from when to when: what the records of a group's metadata say."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from karrot.pipeline.store.shared_columns import GROUP, PARTITION

_RECORD: Final = ("log_ts_ms", "log_offset")
FOREVER_MS: Final = 2**63 - 1
"""The end of what lasts."""


def owners(members: DataFrame) -> DataFrame:
    """``cluster``, ``consumer``, ``topic``, ``partition``, ``owner``, ``from_ms`` and ``until_ms`` of ``members``.

    An assignment holds until the group's next record. The owner is named as Burrow does, by its host; one that does not
    tell it by its client id.
    """
    records = members.select(*GROUP, *_RECORD).distinct()
    next_ms = F.lead("log_ts_ms").over(Window.partitionBy(*GROUP).orderBy(*_RECORD))
    lasting = records.withColumn("until_ms", F.coalesce(next_ms, F.lit(FOREVER_MS)))
    assigned = members.where(F.col("topic").isNotNull()).select(*PARTITION, *_RECORD, _named().alias("owner"))
    return (
        assigned.join(lasting, on=[*GROUP, *_RECORD])
        .groupBy(*PARTITION, F.col("log_ts_ms").alias("from_ms"), "until_ms")
        .agg(F.min("owner").alias("owner"))
    )


def _named() -> Column:
    told = (F.when(F.col(name) != "", F.col(name)) for name in ("client_host", "client_id", "member_id"))
    return F.coalesce(*told)
