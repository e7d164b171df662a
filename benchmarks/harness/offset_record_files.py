"""Makes many records of ``__consumer_offsets`` quickly: all partitions of all groups commit in turns."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from support.kafka.offset_records import commit_key
from support.pipeline.kafka_source_rows import KAFKA_SOURCE_SCHEMA

PER_GROUP = 10
"""The number of partitions of a group. Each group reads a topic of its own."""

_VALUE = np.dtype([("version", ">i2"), ("offset", ">i8"), ("epoch", ">i4"), ("metadata", ">i2"), ("commit_ms", ">i8")])


def names_of(number: int) -> tuple[str, str]:
    """The group and the topic with this number."""
    return f"consumer-group-{number:06d}", f"topic-{number:06d}"


class CommitRecords:
    """The next records of a number of partitions. They commit in turns, and each commit is one message further."""

    def __init__(self, partitions: int) -> None:
        names = map(names_of, range(partitions // PER_GROUP))
        keys = [commit_key(group, topic, number) for group, topic in names for number in range(PER_GROUP)]
        self.keys = pa.array(keys, pa.binary())
        self.written = 0

    def take(self, count: int, began_ms: int, ended_ms: int) -> pa.Table:
        """The next ``count`` records, which were written evenly between two times."""
        number = np.arange(self.written, self.written + count)
        at_ms = began_ms + (ended_ms - began_ms) * np.arange(count) // count
        values = np.zeros(count, _VALUE)
        values["version"], values["offset"], values["commit_ms"] = 3, number // len(self.keys), at_ms
        value = pa.Array.from_buffers(pa.binary(_VALUE.itemsize), count, [None, pa.py_buffer(values.tobytes())])
        self.written += count
        columns = [
            self.keys.take(pa.array(number % len(self.keys))),
            value.cast(pa.binary()),
            pa.array(np.full(count, 0)).cast(pa.string()),
            pa.array((number % 50).astype(np.int32)),
            pa.array(number),
            pa.array(at_ms * 1000, pa.timestamp("us", "UTC")),
        ]
        return pa.table(dict(zip(KAFKA_SOURCE_SCHEMA.names, columns, strict=True)), KAFKA_SOURCE_SCHEMA)

    def ends(self, at_ms: int) -> pa.Table:
        """A log end of each partition: ten messages after the last commit."""
        number = np.arange(len(self.keys))
        topics = pa.array([names_of(each)[1] for each in range(len(self.keys) // PER_GROUP)])
        offset = (self.written + len(self.keys) - 1 - number) // len(self.keys) + 10
        return pa.table(
            {
                "topic": topics.take(pa.array(number // PER_GROUP)),
                "partition": pa.array((number % PER_GROUP).astype(np.int32)),
                "end_offset": pa.array(offset),
                "observed_at": pa.array(np.full(len(number), at_ms * 1000), pa.timestamp("us", "UTC")),
            }
        )


def write(table: pa.Table, folder: Path, at_ms: int) -> None:
    """Put the table into a folder as one file, which is visible at once when it is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y%m%dT%H%M%S%f}.parquet"
    pq.write_table(table, folder / f".{name}", compression="zstd")
    (folder / f".{name}").rename(folder / name)
