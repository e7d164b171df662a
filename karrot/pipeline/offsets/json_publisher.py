"""Publishes decoded commits as JSON to a Kafka topic, with the fields of the Kafka Streams application of 2017.

A consumer of the topic commits offsets, and these are records of ``__consumer_offsets`` too. Each would become a record
of the topic, and be committed again, without end. So commits on the topic itself are left out. So are all commits of
the groups that were seen to read it since the start, up to `MOST_READERS`: a group that copies the topic elsewhere
would make the loop in two steps.
"""

from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from karrot.pipeline.stream.kafka_connection import KafkaConnection

MOST_READERS: Final = 1_000
"""How many groups that read the topic are remembered."""

_FIELDS: Final = {
    "topic": "topic",
    "partition": "partition",
    "group": "consumer",
    "version": "version",
    "offset": "offset",
    "metadata": "metadata",
    "commitTimestamp": "commit_ts_ms",
    "expireTimestamp": "expire_ts_ms",
}
"""The fields, and the columns that they are of."""


def as_json(commits: DataFrame) -> DataFrame:
    """``key`` as it came and the JSON ``value`` of readable commits that `decode_offsets` made.

    A tombstone has topic, partition and group, and null for all else. Times are epoch milliseconds.
    """
    told = F.struct(*(F.col(column).alias(name) for name, column in _FIELDS.items()))
    return commits.select("key", F.to_json(told, {"ignoreNullFields": "false"}).alias("value"))


@dataclass(slots=True)
class JsonTopic:
    """Where commits are published, at least once. ``readers`` are the groups that were seen to read it."""

    brokers: KafkaConnection
    topic: str
    readers: frozenset[str] = field(default=frozenset())

    def publish(self, commits: DataFrame, *, is_read: bool) -> int:
        """Send the commits of a batch and return how many; ``is_read``: some of them are on the topic itself."""
        if is_read:
            on_topic = commits.where(F.col("topic") == self.topic).select("consumer").distinct().limit(MOST_READERS)
            readers = self.readers.union(row.consumer for row in on_topic.collect())
            self.readers = frozenset(sorted(readers)[:MOST_READERS])
        others = commits.where((F.col("topic") != self.topic) & ~F.col("consumer").isin(*self.readers))
        as_json(others).write.format("kafka").options(**self.brokers.options, topic=self.topic).save()
        return others.count()
