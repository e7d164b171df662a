"""Defines the options for the source of Spark jobs: Kafka, and for events also the archive."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from karrot.cli.errors import Refused, valid
from karrot.cli.options import asked_for, option_set
from karrot.cli.pipeline.spark_options import read_spark_place

if TYPE_CHECKING:
    from karrot.pipeline.ingest.event_sources import EventSource
    from karrot.pipeline.stream.kafka_connection import KafkaConnection, StartingOffsets
    from karrot.watch.kafka_admin import KafkaCluster


KAFKA = "kafka"
"""The value of ``--source`` for Kafka."""

kafka_options = option_set(
    click.option("--bootstrap-servers", metavar="HOST:PORT,...", help="With --source kafka: Kafka brokers."),
    click.option(
        "--command-config",
        type=click.Path(path_type=Path, dir_okay=False),
        help="A properties file for the Java client, as Kafka's own tools take it (TLS, SASL, MSK IAM).",
    ),
    click.option(
        "--starting",
        default="earliest",
        show_default=True,
        metavar="earliest|latest|TIME",
        help="Where the first run begins. TIME is ISO 8601, in UTC if it has no time zone.",
    ),
)
"""The options for Kafka. `kafka_of` reads them."""

_PARQUET = "parquet"

record_source_option = click.option(
    "--source",
    type=click.Choice([KAFKA, _PARQUET]),
    default=KAFKA,
    show_default=True,
    help="Where to read the records of __consumer_offsets.",
)
"""The option for the source of the records of ``__consumer_offsets``."""

record_file_options = option_set(
    click.option(
        "--input",
        "directory_in",
        callback=read_spark_place,
        metavar="DIR",
        help="With --source parquet: the files with the records.",
    ),
    click.option(
        "--ends-input",
        callback=read_spark_place,
        metavar="DIR",
        help="With --source parquet: files with log end offsets.",
    ),
)
"""The options for records in Parquet files."""

_ARCHIVE = "archive"

event_source_options = option_set(
    click.option(
        "--source",
        type=click.Choice([_ARCHIVE, KAFKA]),
        default=_ARCHIVE,
        show_default=True,
        help="Read events from the archive reporter's segments, or from the kafka reporter's topic.",
    ),
    click.option(
        "--archive",
        callback=read_spark_place,
        help="With --source archive: directory or URL (s3://…) of the archive.",
    ),
    click.option(
        "--topic", default="karrot.events", show_default=True, help="With --source kafka: topic of the kafka reporter."
    ),
    kafka_options,
)
"""The options for a source of events. `event_source_of` reads them."""


class Reached(NamedTuple):
    """How Spark and the driver's own client reach the Kafka cluster, and the offsets to start from."""

    brokers: "KafkaConnection"
    kafka: "KafkaCluster"
    start: "StartingOffsets"


def kafka_of(asked: Mapping[str, Any], client_id: str) -> Reached:
    """Read the options for Kafka, but do not connect. Raises Refused."""
    from karrot.pipeline.stream.kafka_connection import KafkaConnection, StartingOffsets
    from karrot.settings import types
    from karrot.watch.cluster_interface import connect

    if asked["bootstrap_servers"] is None:
        raise Refused("--source kafka needs --bootstrap-servers")
    addresses, properties = asked_for(types.brokers, "bootstrap_servers", asked), asked["command_config"]
    return Reached(
        valid(partial(KafkaConnection.of, addresses, properties)),
        valid(partial(connect, addresses, properties, client_id=client_id)),
        valid(partial(StartingOffsets, asked["starting"])),
    )


def event_source_of(asked: Mapping[str, Any]) -> "Callable[[], EventSource]":
    """Return a function that opens the source of events after Spark started. Raises Refused for wrong options."""
    from karrot.settings import types

    if asked["source"] == KAFKA:
        return partial(_from_topic, kafka_of(asked, "karrot-pipeline"), asked_for(types.topic, "topic", asked))
    if asked["archive"] is None:
        raise Refused("--source archive needs --archive")
    return partial(_from_archive, asked["archive"])


def _from_topic(reached: Reached, topic: str) -> "EventSource":
    from karrot.pipeline.ingest.event_sources import BATCH_EVENTS, EventsFromTopic
    from karrot.pipeline.stream.record_sources import RecordsFromKafka

    return EventsFromTopic(RecordsFromKafka(*reached, topic, BATCH_EVENTS))


def _from_archive(archive: str) -> "EventSource":
    from karrot.pipeline.ingest.event_sources import EventsFromArchive

    return EventsFromArchive(archive)
