"""The ``kafka`` reporter: writes the log's events to a Kafka topic, for the pipeline and other consumers."""
# ruff: noqa: PLC0415 (confluent-kafka is an extra: only sites that write to Kafka need it)

from functools import partial

from karrot.kafka import client_properties
from karrot.reporters.base import Context
from karrot.reporters.kafka.reporter import KafkaReporter

__all__ = ["build"]


def build(context: Context) -> KafkaReporter:
    """Build the reporter. The first send opens the client. Raises `ValueError` for wrong properties."""
    options = context.options
    client_properties.read(options.properties)
    try:
        from karrot.reporters.kafka.producer import KafkaTopic
    except ImportError as error:
        raise ValueError("the kafka reporter needs confluent-kafka: pip install 'karrot-burrow[kafka]'") from error
    return KafkaReporter(options, partial(KafkaTopic, options), context)
