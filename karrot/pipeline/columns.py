"""Column -> Column: what the transforms share."""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

__all__ = ["moment", "whole"]

_END_OF_TIME_MS: Final = 253_402_300_800_000  # the year 10000; Burrow misreads some commits of Kafka 4.1 as near 8e18
_EXACT: Final = float(2**53)


def moment(epoch_ms: Column) -> Column:
    """The timestamp of epoch milliseconds; NULL for what is no moment (0, negative, beyond the year 9999)."""
    return F.when((epoch_ms > 0) & (epoch_ms < _END_OF_TIME_MS), F.timestamp_millis(epoch_ms))


def whole(number: Column) -> Column:
    """A count that was read as a double; NULL beyond 2^53, where no double is exact and no lag is real."""
    return F.when(F.abs(number) <= _EXACT, number.cast("bigint"))
