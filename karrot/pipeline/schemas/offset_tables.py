"""What offsets writes: Kafka's own record of what was committed, and where its logs end."""

from typing import Final

from karrot.pipeline.schemas.column_types import BOOLEAN, INT, LONG, STRING, TIME, struct

COMMITS: Final = struct(
    cluster=STRING,
    consumer=STRING,
    topic=STRING,
    partition=INT,
    version=INT,
    offset=LONG,
    metadata=STRING,
    leader_epoch=INT,
    commit_ts=TIME,
    commit_ts_ms=LONG,
    expire_ts=TIME,
    expire_ts_ms=LONG,
    tombstone=BOOLEAN,
    log_partition=INT,
    log_offset=LONG,
    log_ts=TIME,
    log_ts_ms=LONG,
)
"""One row per record of ``__consumer_offsets`` that commits an offset, or, as a tombstone, takes it back.

``log_…`` is where and when the record lies in that topic; ``day`` is that of ``log_ts``, which the broker gives, while
``commit_ts`` may be any. ``version`` is the value's.
"""

MEMBERS: Final = struct(
    cluster=STRING,
    consumer=STRING,
    version=INT,
    protocol_type=STRING,
    generation=INT,
    protocol=STRING,
    leader=STRING,
    member_id=STRING,
    instance_id=STRING,
    client_id=STRING,
    client_host=STRING,
    topic=STRING,
    partition=INT,
    log_partition=INT,
    log_offset=LONG,
    log_ts=TIME,
    log_ts_ms=LONG,
)
"""One row per member and assigned partition in a record of a group's metadata.

A member without a partition has one row without one; a group without members, or gone (``version`` is NULL), has one
row without a member.
"""

ENDS: Final = struct(
    cluster=STRING,
    topic=STRING,
    partition=INT,
    start_offset=LONG,
    end_offset=LONG,
    observed_at=TIME,
    observed_at_ms=LONG,
)
"""One row per look at where a partition's log starts and ends."""
