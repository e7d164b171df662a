from typing import Any

from pyspark.sql import SparkSession
from pyspark.testing import assertSchemaEqual

from karrot.pipeline.offsets.commits import bad_records, decode_offsets
from karrot.pipeline.offsets.members import members, members_of
from karrot.pipeline.schemas_and_conversions import MEMBERS, columns_of, with_day
from support.kafka.offset_records import Member, assignment, commit_key, commit_value, group_key, group_value, other_key
from support.pipeline.kafka_source_rows import LOG_TS_MS, Record, records_frame

_GROUP = {"cluster": "prod", "consumer": "orders-svc", "log_partition": 3, "log_ts_ms": LOG_TS_MS}
_CONSUMERS = {"protocol_type": "consumer", "generation": 9, "protocol": "range", "leader": "m-1"}
_FIRST = {"member_id": "m-1", "instance_id": "static-1", "client_id": "c-1", "client_host": "/10.0.0.1"}


def test_each_member_and_partition_has_a_row_and_unreadable_records_are_quarantined(spark: SparkSession) -> None:
    key = group_key("orders-svc")
    busy = Member("m-1", "c-1", "/10.0.0.1", "static-1", assignment({"orders": [0, 2], "payments": [1]}))
    idle = Member("m-2", "c-2", "/10.0.0.2", None, b"")
    told: list[Record] = [
        (key, group_value(3, [busy, idle], generation=9)),
        (key, group_value(0, protocol=None, leader=None)),  # no member is left
        (key, None),  # deleted, or expired
        (group_key("connect"), group_value(4, [busy], protocol_type="connect")),
        (key, group_value(3, [busy])[:-1]),
        (group_key(None), None),
        (commit_key("orders-svc", "orders", 0), commit_value(3, 5)),
        (other_key(3, "orders-svc"), b"any"),
        (None, None),
    ]
    decoded = members_of(decode_offsets(records_frame(spark, told), "prod"), "prod").cache()
    table, bad = members(decoded), bad_records(decoded)
    assertSchemaEqual(table.schema, with_day(MEMBERS), ignoreNullable=True)

    first = {**_GROUP, **_CONSUMERS, **_FIRST, "version": 3, "log_offset": 0}
    second = {"member_id": "m-2", "client_id": "c-2", "client_host": "/10.0.0.2"}
    alone = {"version": 4, "protocol_type": "connect", "generation": 1, "protocol": "range", "leader": "m-1"}
    expected: list[dict[str, Any]] = [
        {**first, "topic": "orders", "partition": 0},
        {**first, "topic": "orders", "partition": 2},
        {**first, "topic": "payments", "partition": 1},
        {**_GROUP, **_CONSUMERS, **second, "version": 3, "log_offset": 0},
        {**_GROUP, "version": 0, "protocol_type": "consumer", "generation": 1, "log_offset": 1},
        {**_GROUP, "log_offset": 2},
        {**_GROUP, **alone, **_FIRST, "consumer": "connect", "log_offset": 3},
    ]
    rows = table.drop("log_ts", "day").collect()
    read = [{name: said for name, said in row.asDict().items() if said is not None} for row in rows]
    assert read == expected
    assert [(row.reason, row.position) for row in bad.collect()] == [("truncated_assignment", 4), ("null_group", 5)]
    assert decoded.columns == [*columns_of(MEMBERS), "readable", "reason", "key", "value"]
