"""Writes messages to a topic with librdkafka's idempotent producer."""

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Delivered

from karrot.kafka.client_properties import NoToken, PropertiesError, complete, read, without_duration, without_values
from karrot.reporters.kafka.reporter import Failed, Message, NoTopic, Outcome, Written
from karrot.settings.options import Kafka

_TIMEOUT_S: Final = 4.0
"""The most seconds for sending a message. The limit is short, because the service must stop quickly."""

_PATIENCE_S: Final = 2.0
"""The additional seconds that a caller waits after the client's own timeout."""

_DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "client.id": "karrot",
        "compression.type": "lz4",
        "linger.ms": 5,
        # With the default of Java producers, a key goes to the same partition as from a Java producer.
        "partitioner": "murmur2_random",
    }
)
_OURS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "acks": "all",
        "enable.idempotence": True,
        "log_level": 0,  # librdkafka's own log repeats every attempt to connect
        # Let the brokers decide which message is too large, because the client's limit applies before compression.
        "message.max.bytes": 64 * 2**20,
        # If a topic does not exist, report that error instead of a timeout.
        "topic.metadata.propagation.max.ms": 2000,
    }
)
_OTHER_NAMES: Final = frozenset({"delivery.timeout.ms", "request.required.acks"})
_TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_TIMED_OUT: Final = KafkaError._MSG_TIMED_OUT  # noqa: SLF001 (the library's name for this error)
_ALL_DOWN: Final = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 (the same)
_LATE: Final = Failed("_timed_out", "the Kafka client gave no result in time")


class KafkaTopic:
    """Writes to Kafka. Create this object after a fork, because the client has threads. Raises `NoTopic`."""

    def __init__(self, options: Kafka, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._topic = options.topic
        self._timeout_s = timeout_s
        self._given: Mapping[str, str] = {}
        self._last_error: KafkaError | None = None
        try:
            self._given = read(options.properties)
            given = {name: value for name, value in self._given.items() if name not in _OTHER_NAMES}
            properties = {**_DEFAULTS, **complete(given, options.bootstrap), **_OURS}
            self._tokens = properties.get("oauth_cb")
            own = {"message.timeout.ms": round(self._timeout_s * 1000), "error_cb": self._keep_error}
            self._producer = Producer(properties | own)
        except NoToken as error:
            raise NoTopic(error.reason, str(error)) from None
        except (PropertiesError, KafkaException, ValueError, TypeError) as error:
            text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
            raise NoTopic("properties", without_values(text, self._given)) from None

    def send(self, messages: Sequence[Message]) -> list[Outcome]:
        """Write the messages. Retry each message that Kafka refuses as too large alone, without the batch."""
        outcomes = self._send(messages)
        if len(messages) > 1:
            for number, outcome in enumerate(outcomes):
                if isinstance(outcome, Failed) and outcome.is_final:
                    outcomes[number : number + 1] = self._send([messages[number]])
        return outcomes

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(_PATIENCE_S)

    def _send(self, messages: Sequence[Message]) -> list[Outcome]:
        outcomes: list[Outcome] = [_LATE] * len(messages)
        for number, message in enumerate(messages):
            on_delivery = partial(self._note, outcomes, number)
            try:
                self._producer.produce(self._topic, message.value, message.key, on_delivery=on_delivery)
            except KafkaException as error:
                outcomes[number] = self._failure(error.args[0])
            except BufferError:  # the client's queue is full, so the next send has the remaining messages
                break
        self._producer.flush(self._timeout_s + _PATIENCE_S)
        return outcomes

    def _note(self, outcomes: list[Outcome], number: int, error: KafkaError | None, delivered: Delivered) -> None:
        if error is not None:
            outcomes[number] = self._failure(error)
            return
        self._last_error = None
        outcomes[number] = Written(delivered.partition() or 0, delivered.offset() or 0)

    def _failure(self, error: KafkaError) -> Failed:
        """Convert an error to a failure. A timeout without a cause is replaced by the client's last broker error."""
        failure = self._last_error if error.code() == _TIMED_OUT and self._last_error else error
        no_token = getattr(self._tokens, "failure", "")
        text = no_token or without_values(without_duration(failure.str()), self._given)
        return Failed(failure.name().lower(), text, is_final=error.code() in _TOO_LARGE)

    def _keep_error(self, error: KafkaError) -> None:
        if error.code() != _ALL_DOWN:
            self._last_error = error
