"""Publishes decoded commits as JSON to a Kafka topic, with the fields of the Kafka Streams application of 2017.

Consumers of the JSON topic commit offsets too, and these commits are records of ``__consumer_offsets``. If they were
published, each record would cause a commit, and each commit a record, without end. So commits on the JSON topic itself
are not published. If a group has read the JSON topic since the start, its other commits are not published either. A
group that copies the topic to another one would otherwise make the same loop in two steps. At most `MOST_READERS`
groups are remembered.
"""

from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from karrot.pipeline.stream.kafka_connection import KafkaConnection

MOST_READERS: Final = 1_000
"""The most groups that are remembered as readers of the topic."""

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
"""The fields of a record, with the columns that they come from."""


def as_json(commits: DataFrame) -> DataFrame:
    """Make the unchanged ``key`` and the JSON ``value`` from readable commits of `decode_offsets`.

    A tombstone has topic, partition and group; its other fields are null. Times are epoch milliseconds.
    """
    fields = F.struct(*(F.col(column).alias(name) for name, column in _FIELDS.items()))
    return commits.select("key", F.to_json(fields, {"ignoreNullFields": "false"}).alias("value"))


@dataclass(slots=True)
class JsonTopic:
    """The topic to which commits are published, at least once. ``readers`` are the groups that have read it."""

    brokers: KafkaConnection
    topic: str
    readers: frozenset[str] = field(default=frozenset())

    def publish(self, commits: DataFrame, *, is_read: bool) -> int:
        """Publish the commits of a batch and return how many. ``is_read``: some are commits on the JSON topic."""
        if is_read:
            on_topic = commits.where(F.col("topic") == self.topic).select("consumer").distinct().limit(MOST_READERS)
            readers = self.readers.union(row.consumer for row in on_topic.collect())
            self.readers = frozenset(sorted(readers)[:MOST_READERS])
        others = commits.where((F.col("topic") != self.topic) & ~F.col("consumer").isin(*self.readers))
        as_json(others).write.format("kafka").options(**self.brokers.options, topic=self.topic).save()
        return others.count()
