"""The ``kafka`` reporter: the log's events as records of a topic, for the pipeline and for whoever else reads Kafka."""
# ruff: noqa: PLC0415 (confluent-kafka is an extra: who does not write to Kafka does not need it)

from functools import partial

from karrot.reporters.base import Context
from karrot.reporters.kafka.options import Options
from karrot.reporters.kafka.reporter import KafkaReporter

__all__ = ["build"]


def build(context: Context) -> KafkaReporter:
    """The reporter. Its client, which has threads, is made with the first send, in the process that leads.

    Raises `ValueError` with a sentence for a setting that cannot be used, or where confluent-kafka is missing.
    """
    options = Options.read(context.settings)
    try:
        from karrot.reporters.kafka.producer import KafkaTopic
    except ImportError as error:
        raise ValueError("the kafka reporter needs confluent-kafka: pip install 'karrot-burrow[kafka]'") from error
    return KafkaReporter(options, partial(KafkaTopic, options), context)
