"""Renders the JSON Schema of the archive's line, and of the key and the value of a record on the Kafka topic.

The types come from the code that writes lines. This module adds a description of each key and the ranges of counts.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from karrot.burrow.wire import UINT64_MAX
from karrot.event import GroupKey
from karrot.event_json_line import VERSION, EventLine, PartitionLine

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_LINE = (
    "Times are epoch milliseconds, lags and offsets are messages, and rates are messages per second. A value that is "
    "not known is null. Later versions of Karrot may add keys at the end."
)

_KEYS: Mapping[str, str] = {
    "v": (
        "the version of the format. It changes when a key is removed or gets another meaning. It does not change when "
        "keys are added at the end"
    ),
    "event_id": "`log_id` and `seq`. Each event has its own `event_id`",
    "log_id": "the id of the log",
    "seq": "the event's number in the log, ascending",
    "received_at_ms": "the time at which Karrot received the event, by the clock of Karrot's machine",
    "observed_at_ms": (
        "the time of the verdict: the receipt of a webhook, the start of a REST request, or the poll of Kafka"
    ),
    "source": "`webhook`, `rest` or `kafka`",
    "cluster": "the name of the cluster, as in Burrow",
    "consumer": "the consumer group",
    "status": "the group's status, as Burrow wrote it: `OK`, `WARN`, `ERR`, or `NOTFOUND` for a deleted group",
    "kind": (
        "`observation` (OK), `incident` (WARN, ERR), `close` (OK with an incident's id), `deleted`, `unknown` "
        "(another status)"
    ),
    "incident_id": "Burrow's id of the incident",
    "incident_start_ms": "the start of the incident, according to Burrow",
    "total_lag": "the sum of the lags of all partitions. A lag can be as large as 2^64 - 1 if Burrow sends this value",
    "max_lag": "the lag of the partition with the largest lag",
    "scalable_lag": "the total lag minus the lag of STOP, STALL and REWIND partitions",
    "lag_seconds": "the lag in seconds: the age of the oldest unread message of all listed partitions",
    "produce_rate": "the produce rate of the max-lag partition",
    "consume_rate": "the consume rate of the max-lag partition",
    "catch_up_seconds": "the time until the lag is gone, if both rates stay the same",
    "complete": "the share (0 to 1) of partitions with a full window",
    "partition_count": "the number of partitions of the group",
    "bad_partitions": "the number of entries of `partitions` that are WARN, STOP, STALL or REWIND",
    "max_partition": "the partition with the largest lag. It is not always in `partitions`",
    "partitions": "from a webhook, only the partitions that are worse than OK. From REST and Kafka, all partitions",
    "body": "the received body, byte for byte. `null` with `KARROT_ARCHIVE_BODY=false`",
    "lag_seconds_kind": (
        "how exact `lag_seconds` is: `exact`, `extrapolated` or `at_least` (a lower bound). `null` in lines from "
        "before version 2.0.0"
    ),
    "lag_seconds_topic": "the topic of the partition to which `lag_seconds` belongs",
    "lag_seconds_partition": "the number of the partition to which `lag_seconds` belongs",
}
_KEYS_OF_A_PARTITION: Mapping[str, str] = {
    "topic": "the name of the topic",
    "partition": "the number of the partition",
    "status": "`OK`, `WARN`, `STOP`, `STALL`, `REWIND`; of Kafka `BEYOND_END`, `NEVER_COMMITTED`, `OPEN_TRANSACTION`, "
    "`LEFT`, `ABANDONED`",
    "owner": "the address of the member that reads the partition",
    "client_id": "the client id of that member",
    "start_offset": "the offset of the oldest commit that Burrow stores",
    "start_ts_ms": (
        "the time of the oldest commit. It can be any 64-bit number, because Burrow misreads some commits of Kafka 4.1"
    ),
    "start_lag": "the lag at the oldest commit",
    "end_offset": "the offset of the newest commit",
    "end_ts_ms": "the time of the newest commit",
    "end_lag": "the lag at the newest commit",
    "current_lag": "the lag at the time of the verdict",
    "complete": "the share (0 to 1) of the partition's window that is filled",
}
_COUNTS = frozenset({"seq", "partition_count", "bad_partitions"})


def archive_line() -> dict[str, Any]:
    """The schema of a line of the archive."""
    return _line_schema(f"Line of Karrot's archive, version {VERSION}")


def kafka_value() -> dict[str, Any]:
    """The schema of a record's value. The value is the line of the event, and always has the body."""
    schema = _line_schema(f"Value of a record on the topic of Karrot's kafka reporter, version {VERSION}")
    schema["properties"]["body"] = {"description": "the received body, byte for byte", "type": "string"}
    return schema


def kafka_key() -> dict[str, Any]:
    """The schema of a record's key."""
    array = msgspec.json.schema(GroupKey)["$defs"][GroupKey.__name__]
    description = "The cluster and the consumer group of the event. All events of a group have the same key."
    title = "Key of a record on the topic of Karrot's kafka reporter"
    return {"$schema": _DIALECT, **array, "title": title, "description": description}


def event_json_schema(of: str) -> str:
    """The schema with this name, as text: ``archive-line``, ``kafka-key`` or ``kafka-value``."""
    schemas = {"archive-line": archive_line, "kafka-key": kafka_key, "kafka-value": kafka_value}
    return json.dumps(schemas[of](), indent=2, ensure_ascii=False) + "\n"


def _line_schema(title: str) -> dict[str, Any]:
    schemas = msgspec.json.schema(EventLine)["$defs"]
    for each, descriptions in ((EventLine, _KEYS), (PartitionLine, _KEYS_OF_A_PARTITION)):
        schema = schemas[each.__name__]
        # A default of EventLine makes a key optional for the reader of older lines. Karrot always writes the version.
        schema["required"] = [name for name in schema["properties"] if name == "v" or name in schema["required"]]
        schema["properties"] = {
            name: {"description": descriptions[name], **_with_range(name, one)}
            for name, one in schema["properties"].items()
        }
    schemas[PartitionLine.__name__]["description"] = "One partition of the group."
    line = schemas.pop(EventLine.__name__)
    return {"$schema": _DIALECT, **line, "title": title, "description": _LINE, "$defs": schemas}


def _with_range(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of one key. A count or a lag has a range, from which code generators choose a type."""
    schema.pop("default", None)
    is_lag = name.endswith("lag")
    if is_lag or name in _COUNTS:
        [number] = [each for each in schema.get("anyOf", [schema]) if each["type"] == "integer"]
        number |= {"minimum": 0, "maximum": UINT64_MAX} if is_lag else {"minimum": 0}
    return schema
