"""Makes a client of a Kafka cluster from addresses and properties; what is wrong with them becomes a sentence."""
# ruff: noqa: PLC0415 (confluent-kafka is an extra: who does not watch does not need it)

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from karrot.kafka.client_properties import PropertiesError, complete, read, without_values

if TYPE_CHECKING:
    from karrot.watch.admin import KafkaCluster


class NotConnected(ValueError):  # noqa: N818 (names what is so, not a failure of ours)
    """No client can be made of what was given; the message is a sentence without secrets."""


def connect(
    bootstrap: Sequence[str], properties: Path | None = None, *, client_id: str = "karrot-watch"
) -> "KafkaCluster":
    """A client of the cluster at these addresses. Nothing is sent yet. Raises `NotConnected`."""
    try:
        from confluent_kafka import KafkaException

        from karrot.watch.admin import KafkaCluster
    except ImportError as error:
        raise NotConnected("watching Kafka needs confluent-kafka: pip install 'karrot-burrow[kafka]'") from error
    try:
        given = {} if properties is None else read(properties)
        return KafkaCluster(complete({"client.id": client_id, **given}, bootstrap))
    except PropertiesError as error:
        raise NotConnected(str(error)) from error
    except KafkaException as error:
        said = without_values(error.args[0].str(), given)
        raise NotConnected(f"{properties}: {said}") from error  # only properties can be wrong: addresses are not tried
    except (ValueError, TypeError) as error:  # TypeError: a callback's name with a text for it
        raise NotConnected(without_values(str(error), given)) from error
