"""The archive's line, version 1, as ``karrot/event_line.py`` writes it."""

from typing import Final

from pyspark.sql.types import ArrayType

from karrot.pipeline.schemas.column_types import DOUBLE, INT, LONG, STRING, struct

PARTITION_LINE: Final = struct(
    topic=STRING,
    partition=INT,
    status=STRING,
    owner=STRING,
    client_id=STRING,
    start_offset=LONG,
    start_ts_ms=LONG,
    start_lag=DOUBLE,
    end_offset=LONG,
    end_ts_ms=LONG,
    end_lag=DOUBLE,
    current_lag=DOUBLE,
    complete=DOUBLE,
)
"""A partition in a line.

Burrow's lags are unsigned 64 bits wide, which no type of Spark holds but a slow decimal. A double is exact up to 2^53,
and beyond it a lag is a slip of arithmetic.
"""

LINE: Final = struct(
    v=LONG,
    event_id=STRING,
    log_id=STRING,
    seq=LONG,
    received_at_ms=LONG,
    observed_at_ms=LONG,
    source=STRING,
    cluster=STRING,
    consumer=STRING,
    status=STRING,
    kind=STRING,
    incident_id=STRING,
    incident_start_ms=LONG,
    total_lag=DOUBLE,
    max_lag=DOUBLE,
    scalable_lag=DOUBLE,
    lag_seconds=DOUBLE,
    produce_rate=DOUBLE,
    consume_rate=DOUBLE,
    catch_up_seconds=DOUBLE,
    complete=DOUBLE,
    partition_count=LONG,
    bad_partitions=INT,
    max_partition=PARTITION_LINE,
    partitions=ArrayType(PARTITION_LINE),
    body=STRING,
)

CORRUPT: Final = "_corrupt_record"
"""Where Spark's JSON parser leaves what it could not read."""
