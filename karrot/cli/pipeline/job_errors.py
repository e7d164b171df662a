"""Turns the errors of a Spark job into a message of one line."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from karrot.cli.errors import NotDone, Refused
from karrot.cli.pipeline.source_options import KAFKA

_NAMED: Final = re.compile(r"^(?:: |Caused by: )?([A-Za-z_][\w.$]*(?:Error|Exception)): (.*\S)", re.MULTILINE)
_CARRIERS: Final = frozenset({"Py4JJavaError", "Py4JException", "ForeachBatchUserFuncException"})
"""Errors that only wrap another error, and do not give the reason."""

_SAYS_WHERE: Final = re.compile(r"\[[A-Z_.]+\] ")
_BEYOND: Final = re.compile(r"\s*(?:JVM stacktrace|=== Streaming Query ===)")


@contextmanager
def errors_as_sentences(asked: Mapping[str, Any]) -> Iterator[None]:
    """End the command with a message if a job cannot read its input or fails."""
    from pyspark.errors import StreamingQueryException

    from karrot.kafka.client_properties import PropertiesError, without_values
    from karrot.pipeline.stream.kafka_connection import KafkaConnection
    from karrot.pipeline.stream.record_sources import ConnectorMissing, NoRecords
    from karrot.watch.cluster_interface import ClusterError

    try:
        yield
    except (FileNotFoundError, ConnectorMissing, NoRecords, PropertiesError) as error:
        raise Refused(str(error)) from error
    except ClusterError as error:
        raise NotDone(f"Kafka: {error}") from error
    except StreamingQueryException as error:
        properties = KafkaConnection.of((), asked["command_config"]).properties if asked["source"] == KAFKA else {}
        raise NotDone(without_values(why_it_failed(str(error)), properties)) from error


def why_it_failed(said: str) -> str:
    """Find the last error in a text. If Spark's own error has one of Spark's codes, put Spark's error first.

    Spark's error names the file or the table, and the last error gives the reason. Users need both.
    """
    own = _BEYOND.split(said, maxsplit=1)[0].strip()
    errors = _errors(own) or _errors(said)
    if not errors:
        return " ".join(own.split("\n", 1)[0].split()) or "the batch failed"
    last = errors[-1]
    coded = [each for each in errors[:-1] if _SAYS_WHERE.search(each)]
    return f"{coded[0].rstrip('.')} ({last})" if coded else last


def _errors(said: str) -> list[str]:
    """The errors in a text with the names of their classes, in the order of the text. The cause comes last."""
    named = ((name.rpartition(".")[2], message) for name, message in _NAMED.findall(said))
    return [f"{name}: {message}" for name, message in named if name not in _CARRIERS]
