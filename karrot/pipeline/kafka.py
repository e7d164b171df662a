"""Kafka through Spark's own connector: how a topic is read and written, and what is wrong in one sentence.

Client properties are Java's, as in a file for ``--command-config`` of Kafka's own tools. Their values, secrets among
them, are in no repr and in no error's text.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from karrot.watch.properties import PropertiesError, parse, without_values

__all__ = ["Brokers", "ConnectorMissing", "PropertiesError", "Start", "new_records", "require_connector", "send"]

_FORMAT: Final = "kafka"
_PROVIDER: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_OLD_READER: Final = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"

_OURS: Final = frozenset(
    {
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "group.id",
        "interceptor.classes",
        "isolation.level",
        "key.deserializer",
        "key.serializer",
        "value.deserializer",
        "value.serializer",
    }
)
"""What the connector or this module decides, whatever a file says."""

_LIBRDKAFKAS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sasl.mechanisms": "sasl.mechanism",
        "sasl.username": "sasl.jaas.config",
        "sasl.password": "sasl.jaas.config",
        "ssl.ca.location": "ssl.truststore.location and ssl.truststore.type=PEM",
        "ssl.ca.pem": "ssl.truststore.certificates and ssl.truststore.type=PEM",
        "ssl.certificate.location": "ssl.keystore.location and ssl.keystore.type=PEM",
        "ssl.key.location": "ssl.keystore.location and ssl.keystore.type=PEM",
        "ssl.certificate.pem": "ssl.keystore.certificate.chain and ssl.keystore.type=PEM",
        "ssl.key.pem": "ssl.keystore.key and ssl.keystore.type=PEM",
    }
)


class ConnectorMissing(RuntimeError):  # noqa: N818 (names the state of the machine)
    """Spark has no Kafka connector here; the text is a sentence with the option that brings it."""

    def __init__(self) -> None:
        package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
        super().__init__(
            f"Spark's Kafka connector is not among its jars: add --conf spark.jars.packages={package}, or its jars "
            "with --conf spark.jars=…"
        )


@dataclass(frozen=True, slots=True)
class Brokers:
    """A cluster's addresses, and the properties of Java's client by which it is reached."""

    addresses: tuple[str, ...]
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, addresses: Sequence[str], properties: Path | None = None) -> Self:
        """With the properties of a file, if there is one. Raises `PropertiesError`."""
        return cls(tuple(addresses), {} if properties is None else _read(properties))

    @property
    def options(self) -> dict[str, str]:
        """The connector's options, for reading and for writing."""
        given = {f"kafka.{name}": value for name, value in self.properties.items()}
        return {**given, "kafka.bootstrap.servers": ",".join(self.addresses)}

    def without_values(self, text: str) -> str:
        """A text of Spark's or Kafka's without the values of the properties."""
        return without_values(text, self.properties)


class Start:
    """Where a topic is begun when there is no checkpoint yet."""

    def __init__(self, text: str) -> None:
        """``earliest``, ``latest`` or a moment in ISO 8601, UTC unless it says otherwise. Raises ValueError."""
        if text in {"earliest", "latest"}:
            self.options = {"startingOffsets": text}
            return
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{text!r} is neither earliest, latest nor a moment like 2026-11-21T12:00:00Z") from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        # A partition without a record since then begins with what comes.
        self.options = {
            "startingTimestamp": str(round(moment.timestamp() * 1000)),
            "startingOffsetsByTimestampStrategy": "latest",
        }


def require_connector(spark: SparkSession) -> None:
    """Raises `ConnectorMissing` where Spark cannot read or write Kafka."""
    java: Any = spark.sparkContext._jvm.java.lang  # type: ignore[union-attr] # noqa: SLF001 (no other way to ask)
    try:
        java.Class.forName(_PROVIDER, True, java.Thread.currentThread().getContextClassLoader())
    except Py4JJavaError as error:
        raise ConnectorMissing from error


def new_records(
    spark: SparkSession,
    brokers: Brokers,
    topic: str,
    partitions: Collection[int],
    *,
    start: Start,
    most: int | None = None,
) -> DataFrame:
    """The records of a topic as a stream: ``key``, ``value``, ``topic``, ``partition``, ``offset``, ``timestamp``.

    What belongs to aborted transactions is left out, and what the broker no longer has is passed over. ``most`` bounds
    the records of a batch. No consumer group is joined: to join one writes into ``__consumer_offsets``, which may be
    the very topic that is read. Raises `ConnectorMissing`.
    """
    require_connector(spark)
    # Spark's newer way to find offsets passes over internal topics: no rows at all, and no error.
    spark.conf.set(_OLD_READER, "true")
    options = {
        **brokers.options,
        **start.options,
        "assign": json.dumps({topic: sorted(partitions)}),
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": "false",
        **({} if most is None else {"maxOffsetsPerTrigger": str(most)}),
    }
    return _loaded(brokers, spark.readStream.format(_FORMAT).options(**options)).select(
        "key", "value", "topic", "partition", "offset", "timestamp"
    )


def send(df: DataFrame, brokers: Brokers, topic: str) -> None:
    """Write ``key`` and ``value`` to a topic, at least once. Raises what Spark raises."""
    df.select("key", "value").write.format(_FORMAT).options(**brokers.options, topic=topic).save()


def _loaded(brokers: Brokers, reader: Any) -> DataFrame:
    try:
        loaded: DataFrame = reader.load()
    except AnalysisException as error:
        raise PropertiesError(brokers.without_values(str(error))) from None
    return loaded


def _read(path: Path) -> dict[str, str]:
    try:
        given = parse(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PropertiesError(f"{path} cannot be read: {reason}") from error
    except PropertiesError as error:
        raise PropertiesError(f"{path}: {error}") from error
    for name in given.keys() & _LIBRDKAFKAS.keys():
        raise PropertiesError(
            f"{path}: {name} is librdkafka's name, and Spark's connector takes Java's: {_LIBRDKAFKAS[name]} "
            "(which karrot watch takes as well)"
        )
    return {name: value for name, value in given.items() if name not in _OURS}
