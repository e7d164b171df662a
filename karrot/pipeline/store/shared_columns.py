"""Names the columns that identify events, groups and partitions, and has conversions that the transforms share."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from karrot.text import EPOCH

EVENT: Final = ("seq", "log_id")
"""The columns that identify an event. The number comes first: a sort then rarely compares ``log_id``, a text."""

GROUP: Final = ("cluster", "consumer")
"""The columns that identify a consumer group."""

PARTITION: Final = (*GROUP, "topic", "partition")
"""The columns that identify a partition of a group."""

LOG: Final = ("cluster", "topic", "partition")
"""The columns that identify a partition of a topic."""

_END_OF_TIME_MS: Final = (
    253_402_300_800_000  # the year 10000; Burrow misreads the times of some commits of Kafka 4.1 as about 8e18
)
_DAY: Final = timedelta(days=1)
_EXACT: Final = float(2**53)


def moment(epoch_ms: Column) -> Column:
    """The timestamp of epoch milliseconds; NULL for an impossible number (0, negative, or after the year 9999)."""
    return F.when((epoch_ms > 0) & (epoch_ms < _END_OF_TIME_MS), F.timestamp_millis(epoch_ms))


def is_possible(at: str) -> Column:
    """Whether a timestamp in a file is possible: from 1970 to a day after ``written_at``, and not NULL."""
    is_one = F.col(at).between(F.lit(EPOCH), F.col("written_at") + F.lit(_DAY))
    return F.coalesce(is_one, F.lit(False))


def whole(number: Column) -> Column:
    """Convert a count from a double; NULL from 2^53 on, where doubles are not exact and no real lag is so large."""
    return F.when(F.abs(number) < _EXACT, number.cast("bigint"))


def rounded(number: Column, digits: int) -> Column:
    """Round half up to some digits after the point. Spark's ``round`` is slow: it converts each number to text."""
    scale = 10**digits
    nearest: Column = F.floor(number * scale + 0.5) / scale
    return nearest


def base64(data: Column) -> Column:
    """Encode bytes in base64, without the line breaks that Spark adds and other programs refuse."""
    return F.translate(F.base64(data), "\r\n", "")


def rows(values: Sequence[Mapping[str, Any]], schema: StructType) -> Column:
    """Make a few rows in an expression, with dates as texts. ``createDataFrame`` would start Python workers."""
    return F.inline(F.from_json(F.lit(json.dumps(values)), ArrayType(schema)))
