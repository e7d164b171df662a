"""Defines the options of Spark's Kafka source: how it reaches a cluster, and the offsets at which it starts.

This module does not import Spark. Client properties have the names of Kafka's Java client, as in a file for the
``--command-config`` of Kafka's own tools. The values of properties can be secrets, so no ``repr`` and no error message
contains them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from karrot.kafka.client_properties import PropertiesError, read, without_values

_OURS: Final = frozenset(
    {
        *("auto.offset.reset", "bootstrap.servers", "enable.auto.commit", "group.id", "interceptor.classes"),
        *("isolation.level", "key.deserializer", "key.serializer", "value.deserializer", "value.serializer"),
    }
)
"""Properties that the connector or this module sets. A user's file cannot change them."""

_LIBRDKAFKAS: Final[Mapping[str, str]] = {
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


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    addresses: tuple[str, ...]
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, addresses: Sequence[str], properties: Path | None = None) -> Self:
        """Describe a connection. Read the client properties from the file ``properties``. Raises `PropertiesError`."""
        return cls(tuple(addresses), {} if properties is None else read(properties, _javas))

    @property
    def options(self) -> dict[str, str]:
        given = {f"kafka.{name}": value for name, value in self.properties.items()}
        return {**given, "kafka.bootstrap.servers": ",".join(self.addresses)}

    def without_values(self, text: str) -> str:
        return without_values(text, self.properties)


class StartingOffsets:
    """The offsets at which a query without a checkpoint starts to read a topic."""

    def __init__(self, text: str) -> None:
        """Parse ``earliest``, ``latest`` or a time in ISO 8601 (UTC if it has no offset). Raises ValueError."""
        if text in {"earliest", "latest"}:
            self.options = {"startingOffsets": text}
            return
        try:
            start = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a start: write earliest, latest or e.g. 2026-11-21T12:00:00Z") from None
        start = start if start.tzinfo else start.replace(tzinfo=UTC)
        # If a partition has no records since the given time, the stream starts with the partition's next record.
        self.options = {
            "startingTimestamp": str(round(start.timestamp() * 1000)),
            "startingOffsetsByTimestampStrategy": "latest",
        }


def _javas(given: Mapping[str, str]) -> dict[str, str]:
    """Remove the properties in `_OURS`. Raises `PropertiesError` for a property name of librdkafka."""
    for name in given.keys() & _LIBRDKAFKAS.keys():
        raise PropertiesError(
            f"{name} is a property of librdkafka. Spark's connector needs the name of the Java client: "
            f"write {_LIBRDKAFKAS[name]} (karrot watch accepts this too)"
        )
    return {name: value for name, value in given.items() if name not in _OURS}
