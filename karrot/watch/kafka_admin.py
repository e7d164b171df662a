"""Reads groups, offsets and log ends from a Kafka cluster, through confluent-kafka's Admin API."""

import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicCollection as Topics
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # the library's __init__ lacks __all__
    AdminClient,
    ConsumerGroupDescription,
    OffsetSpec,
)

from karrot.event import FirstUnread, TopicPartition
from karrot.eventlog.watch_data_of_groups import UNKNOWN_STATE
from karrot.kafka.client_properties import without_duration
from karrot.watch.cluster_interface import ClusterError, Description, Failure, GroupMember, Listing

_TIMEOUT_S = 10.0
_AT_ONCE = 32
"""The most concurrent requests about groups. librdkafka sends one request for each group. More requests would wait in a
busy broker until they time out, and timeouts can make librdkafka abort."""

_PATIENCE_S = 5.0
"""The additional seconds that a caller waits after the client's own timeout."""

_LIST_ALL_S = 60.0  # a list of groups of all kinds is slow: the client describes each group
_READ_S = 2.0  # for all partitions together
_READ: Mapping[str, Any] = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "max.partition.fetch.bytes": 16_384,  # Kafka sends a larger first batch completely
    "fetch.max.bytes": 1_048_576,
    "fetch.wait.max.ms": 10,
}
_NOT_READ = Failure("_timed_out", "Kafka did not send the first unread record in time")
_NO_PARTITION = Failure("unknown_topic_or_part", "there is no such partition")
_NO_LEADER = Failure("leader_not_available", "no broker leads the partition")
_LATE = Failure("_timed_out", "the group was not read, because the groups before it took too long")

_STATES = {
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.EMPTY: "Empty",
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.DEAD: "Dead",
}

V = TypeVar("V")


class KafkaCluster:
    """The `Cluster` that sends requests to Kafka. Raises ``KafkaException`` if librdkafka refuses ``properties``."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        timeout_s: float = _TIMEOUT_S,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeout_s = timeout_s
        self._seconds = seconds
        self._others: frozenset[str] = frozenset()
        self._list_all_at = -_LIST_ALL_S
        self._last_error = ""
        self._tokens = properties.get("oauth_cb")
        # librdkafka would log every attempt to connect. Karrot adds only the last error to its own error message.
        self._client: dict[str, Any] = {"log_level": 0, **properties, "error_cb": self._keep_error}
        self._admin = AdminClient(self._client)

    def groups(self) -> Listing:
        listed = self._result(self._ask(self._admin.list_consumer_groups))
        if not isinstance(listed, Failure) and listed.errors and not listed.valid:
            listed = _failure(listed.errors[0])  # no broker answered; a cluster without groups has no errors
        self._admin.poll(0)  # lets the client call `_keep_error` with its errors
        if isinstance(listed, Failure):
            raise self._error(listed)
        self._last_error = ""
        groups = {each.group_id: _state(getattr(each, "state", None)) for each in listed.valid or ()}
        if not listed.errors and self._seconds() >= self._list_all_at:
            self._list_all_at = self._seconds() + _LIST_ALL_S
            with suppress(KafkaException):
                everything = self._admin.list_groups(timeout=self._timeout_s)  # deprecated, but also lists share groups
                self._others = frozenset(str(each.id) for each in everything) - groups.keys()
        return Listing(groups, is_complete=not listed.errors, others=self._others - groups.keys())

    def describe(self, groups: Collection[str]) -> Mapping[str, Description | Failure]:
        ordered = sorted(groups)
        answers: dict[str, Description | Failure] = {}
        too_late = self._too_late()
        for start in range(0, len(ordered), _AT_ONCE):
            few = ordered[start : start + _AT_ONCE]
            futures = self._ask(self._admin.describe_consumer_groups, few) if self._seconds() < too_late else _LATE
            for group in few:
                found = self._result(futures if isinstance(futures, Failure) else futures[group])
                answers[group] = found if isinstance(found, Failure) else _description(found)
        return answers

    def committed(self, groups: Collection[str]) -> Mapping[str, Mapping[TopicPartition, int] | Failure]:
        return dict(self._committed(sorted(groups)))

    def log_ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        """Return the log end offsets. As in Burrow, they include messages of open transactions."""
        return self._offsets(places, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def log_starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        return self._offsets(places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def first_unread(self, places: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, FirstUnread | Failure]:
        """Read the first records from these offsets on. The consumer joins no group, so Kafka creates no group."""
        answers: dict[TopicPartition, FirstUnread | Failure] = {}
        too_late = self._seconds() + _READ_S
        try:
            consumer: Any = Consumer({**self._client, **_READ, "group.id": f"karrot-{uuid.uuid4()}"})
            consumer.assign([ClientTopicPartition(*place, offset) for place, offset in places.items()])
            while len(answers) < len(places) and (left := too_late - self._seconds()) > 0:
                message = consumer.poll(left)
                place = message and TopicPartition(message.topic(), message.partition())
                if place in places and place not in answers:
                    is_end = (error := message.error()) and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001 (the name of this error)
                    first = FirstUnread(message.offset(), None if is_end else max(0, message.timestamp()[1]))
                    answers[place] = _failure(error) if error and not is_end else first
                    consumer.pause([ClientTopicPartition(*place)])
            consumer.close()
        except (KafkaException, ValueError, TypeError) as error:
            raise self._error(_failure_of(error)) from error
        return {place: answers.get(place, _NOT_READ) for place in places}

    def partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        found = self._topics()
        return {topic: len(found[topic].partitions) for topic in topics if topic in found}

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        futures = self._ask(self._admin.describe_topics, Topics(list(topics))) if topics else {}
        known = {} if isinstance(futures, Failure) else {topic: self._result(futures[topic]) for topic in futures}
        ids = {topic: str(each.topic_id) for topic, each in known.items() if not isinstance(each, Failure)}
        return {topic: each for topic, each in ids.items() if each != "A" * 22}  # Kafka before 2.8

    def close(self) -> None:
        """Do nothing, because Python closes the client with its last reference."""

    def _committed(self, groups: Iterable[str]) -> Iterator[tuple[str, Mapping[TopicPartition, int] | Failure]]:
        waiting: deque[tuple[str, Any]] = deque()
        too_late = self._too_late()
        for group in groups:
            if len(waiting) >= _AT_ONCE:
                yield self._committed_of(*waiting.popleft())
            future: Any = _LATE
            if self._seconds() < too_late:
                requests = [ConsumerGroupTopicPartitions(group)]
                futures = self._ask(self._admin.list_consumer_group_offsets, requests)
                future = futures if isinstance(futures, Failure) else futures[group]
            waiting.append((group, future))
        while waiting:
            yield self._committed_of(*waiting.popleft())

    def _too_late(self) -> float:
        """The time to stop requests about groups, because hundreds can time out if a coordinator is down."""
        return self._seconds() + 2 * self._timeout_s

    def _committed_of(self, group: str, future: Any) -> tuple[str, Mapping[TopicPartition, int] | Failure]:
        found = self._result(future)
        if isinstance(found, Failure):
            return group, found
        offsets: dict[TopicPartition, int] = {}
        for each in found.topic_partitions or ():
            if each.error is not None:
                return group, _failure(each.error)
            if each.offset >= 0:
                offsets[TopicPartition(each.topic, each.partition)] = each.offset
        return group, offsets

    def _offsets(self, places: Collection[TopicPartition], spec: OffsetSpec) -> Mapping[TopicPartition, int | Failure]:
        """Read the offsets of partitions. A partition without a leader gets no request, which would time out."""
        if not places:
            return {}
        answers = dict(self._unled(places))
        requests = {ClientTopicPartition(*place): spec for place in places if place not in answers}
        futures = self._ask(self._admin.list_offsets, requests) if requests else {}
        if isinstance(futures, Failure):
            raise ClusterError(*futures)
        for partition, future in futures.items():
            found = self._result(future)
            place = TopicPartition(partition.topic, partition.partition)
            if isinstance(found, Failure):
                answers[place] = found
            else:  # a partition that has just lost its leader has a negative offset
                answers[place] = found.offset if found.offset >= 0 else _NO_LEADER
        return answers

    def _unled(self, places: Collection[TopicPartition]) -> Iterator[tuple[TopicPartition, int | Failure]]:
        """Yield the partitions that do not exist or have no leader, each with the failure."""
        topics = self._topics()
        for place in places:
            topic = topics.get(place.topic)
            partition = None if topic is None else topic.partitions.get(place.partition)
            if partition is None:
                yield place, _NO_PARTITION
            elif partition.leader < 0:
                yield place, _NO_LEADER

    def _topics(self) -> dict[str, Any]:
        try:
            topics: dict[str, Any] = self._admin.list_topics(timeout=self._timeout_s).topics
        except KafkaException as error:
            raise self._error(_failure_of(error)) from error
        return topics

    def _ask(self, question: Callable[..., V], *about: object) -> V | Failure:
        """Return the client's futures for a request, or a failure if the client refused the request."""
        try:
            return question(*about, request_timeout=self._timeout_s)
        except (KafkaException, ValueError, TypeError) as error:
            return _failure_of(error)

    def _result(self, future: Any) -> Any:
        if isinstance(future, Failure):
            return future
        try:
            return future.result(self._timeout_s + _PATIENCE_S)
        except TimeoutError:
            return Failure("_timed_out", "the Kafka client gave no result in time")
        except (KafkaException, ValueError) as error:
            return _failure_of(error)

    def _error(self, failure: Failure) -> ClusterError:
        """Make the error for a request that the whole poll needs, with the client's last broker error."""
        reason = getattr(self._tokens, "failure", "") or self._last_error
        return ClusterError(failure.reason, f"{failure.text} {reason}".strip())

    def _keep_error(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 (the library's name for this error)
            text = without_duration(error.str())
            self._last_error = f"(the last trouble with a broker: {text})"


def _description(found: ConsumerGroupDescription) -> Description:
    members = tuple(
        GroupMember(
            each.member_id,
            each.client_id,
            each.host,
            tuple(TopicPartition(at.topic, at.partition) for at in each.assignment.topic_partitions),
            each.group_instance_id,
        )
        for each in found.members
    )
    return Description(_state(found.state), members, found.coordinator.id if found.coordinator else None)


def _state(state: object) -> str:
    return _STATES.get(state, UNKNOWN_STATE) if isinstance(state, ConsumerGroupState) else UNKNOWN_STATE


def _failure_of(error: BaseException) -> Failure:
    cause = error.args[0] if error.args else None
    return _failure(cause) if isinstance(cause, KafkaError) else Failure("client", f"{type(error).__name__}: {error}")


def _failure(error: KafkaError) -> Failure:
    return Failure(error.name().lower(), error.str())
