"""What ingest writes: the events, the partitions they list, and (as offsets does) what nobody could read."""

from typing import Final

from karrot.pipeline.schemas.column_types import DOUBLE, INT, LONG, STRING, TIME, struct

EVENTS: Final = struct(
    event_id=STRING,
    log_id=STRING,
    seq=LONG,
    received_at=TIME,
    received_at_ms=LONG,
    observed_at=TIME,
    observed_at_ms=LONG,
    source=STRING,
    cluster=STRING,
    consumer=STRING,
    status=STRING,
    kind=STRING,
    incident_id=STRING,
    incident_start=TIME,
    incident_start_ms=LONG,
    total_lag=LONG,
    max_lag=LONG,
    max_lag_topic=STRING,
    max_lag_partition=INT,
    max_lag_owner=STRING,
    max_lag_committed=LONG,
    max_lag_first_end=LONG,
    scalable_lag=LONG,
    lag_seconds=DOUBLE,
    produce_rate=DOUBLE,
    consume_rate=DOUBLE,
    catch_up_seconds=DOUBLE,
    complete=DOUBLE,
    partition_count=LONG,
    bad_partitions=INT,
)
"""One row per event. The rates are those of the max-lag partition.

``max_lag_committed`` is its committed offset, ``max_lag_first_end`` the first log end that the verdict knows: below it
``lag_seconds`` is extrapolated.
"""

PARTITIONS: Final = struct(
    event_id=STRING,
    log_id=STRING,
    seq=LONG,
    received_at=TIME,
    observed_at=TIME,
    source=STRING,
    cluster=STRING,
    consumer=STRING,
    topic=STRING,
    partition=INT,
    status=STRING,
    owner=STRING,
    client_id=STRING,
    start_offset=LONG,
    start_ts=TIME,
    start_ts_ms=LONG,
    start_lag=LONG,
    end_offset=LONG,
    end_ts=TIME,
    end_ts_ms=LONG,
    end_lag=LONG,
    current_lag=LONG,
    complete=DOUBLE,
)
"""One row per partition that an event lists: a webhook lists the bad ones, ``rest`` and ``kafka`` list all."""

QUARANTINE: Final = struct(source=STRING, reason=STRING, raw=STRING, position=LONG, missing=LONG)
"""One row per line or record of ``__consumer_offsets`` that could not be read, and one per segment that came up short.

``source`` is the segment or the topic's partition, ``raw`` the line, or key and value, in base64, and ``position`` the
line's number in the segment, from 1, or the offset. ``missing`` counts the lines that a short segment's name promises
and its content lacks. ``day`` is the day on which segment or record was written, since the line's own is not known.
"""

RAW_BYTES: Final = 64 * 1024
"""What is kept in ``raw`` of a line, of a key or of a value: so many bytes of its beginning."""
