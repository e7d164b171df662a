"""Names the columns that identify groups, partitions and logs, and converts columns that the transforms share."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

EVENT: Final = ("seq", "log_id")
"""What tells events apart. The number comes first: a sort by it hardly ever has to look at the text."""

GROUP: Final = ("cluster", "consumer")
"""A consumer group."""

PARTITION: Final = (*GROUP, "topic", "partition")
"""A partition as a group consumes it."""

LOG: Final = ("cluster", "topic", "partition")
"""A partition as it is written."""

_END_OF_TIME_MS: Final = 253_402_300_800_000  # the year 10000; Burrow misreads some commits of Kafka 4.1 as near 8e18
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = timedelta(days=1)
_EXACT: Final = float(2**53)


def moment(epoch_ms: Column) -> Column:
    """The timestamp of epoch milliseconds; NULL for what is no moment (0, negative, beyond the year 9999)."""
    return F.when((epoch_ms > 0) & (epoch_ms < _END_OF_TIME_MS), F.timestamp_millis(epoch_ms))


def is_possible(at: str) -> Column:
    """Whether a moment in a file is one that a clock told: from 1970 to a day after ``written_at``; NULL is none."""
    is_one = F.col(at).between(F.lit(_EPOCH), F.col("written_at") + F.lit(_DAY))
    return F.coalesce(is_one, F.lit(False))


def whole(number: Column) -> Column:
    """A count that was read as a double; NULL from 2^53 on, where no double is exact and no lag is real."""
    return F.when(F.abs(number) < _EXACT, number.cast("bigint"))


def rounded(number: Column, digits: int) -> Column:
    """A number with so many digits after the point, halves up; ``round`` writes each as a text and reads it again."""
    scale = 10**digits
    nearest: Column = F.floor(number * scale + 0.5) / scale
    return nearest


def rows(told: Sequence[Mapping[str, Any]], schema: StructType) -> Column:
    """A few rows, dates as texts, as an expression: ``createDataFrame`` would start Python workers for them."""
    return F.inline(F.from_json(F.lit(json.dumps(told)), ArrayType(schema)))
