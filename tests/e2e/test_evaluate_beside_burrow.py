"""The real Burrow and ``karrot pipeline offsets`` judge the same groups at the same time. Skipped without Burrow."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Final, NamedTuple

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition

from e2e.chain import SPARK
from e2e.services import CLUSTER
from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.kafka import Kafka
from e2e.stack.stack import Stack
from e2e.waiting import wait_for
from karrot.burrow.client import Burrow as Client
from karrot.burrow.client import NotFound
from karrot.event_json_line import decode

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

BUSY, QUIET, VERDICTS = "beside-busy", "beside-quiet", "beside-verdicts"
_SECONDS: Final = 150
_EACH_SECOND: Final = 8
_NEAR_MS: Final = 4_000
"""Burrow and the command look at Kafka's log ends each second, and Burrow is asked each second, with a cache of one."""

Reader = Callable[[int, int, int], int | None]
"""Gives the offset that a group commits in a second, from the log end and its last offset. None if it commits none."""


def _while_wrong(wrong: Reader) -> Reader:
    """Return a reader that keeps up, except from second 30 to 90."""
    return lambda second, end, last: wrong(second, end, last) if 30 <= second < 90 else end


READERS: Mapping[str, Reader] = {
    "keeps-up": lambda _second, end, _last: end,
    "hangs": _while_wrong(lambda _second, _end, last: last),
    "stops": _while_wrong(lambda _second, _end, _last: None),
    "falls-behind": _while_wrong(lambda _second, _end, last: last + 2),
    "goes-back": _while_wrong(lambda _second, _end, last: max(0, last - 5)),
    "starts-late": lambda second, end, _last: end // 2 if second >= 60 else None,
    "commits-rarely": lambda second, end, _last: end if second % 5 == 0 else None,
}
"""What each group does. No group has a constant lag: then the moments of the polls decide between OK and WARN."""

EXPECTED: Mapping[str, set[str]] = {
    "keeps-up": {"OK"},
    "hangs": {"OK", "ERR"},
    "stops": {"OK", "ERR"},
    "falls-behind": {"OK", "WARN"},
    "commits-rarely": {"OK"},
}
GROUPS: Final = {f"{name}-{number}": reader for name, reader in READERS.items() for number in range(4)}


class Verdict(NamedTuple):
    """The status of a group and those of its partitions at a time."""

    at_ms: int
    status: str
    partitions: Mapping[tuple[str, int], str]


def _commit(kafka: Kafka, stop: Event) -> None:
    """Write to one topic each second, and commit for all groups."""
    producer, admin = Producer(kafka.client), kafka.admin()
    last: dict[tuple[str, str], int] = {}
    began = time.monotonic()
    for second in range(_SECONDS):
        if stop.wait(max(0, began + second - time.monotonic())):
            return
        for _ in range(_EACH_SECOND):
            for partition in range(2):
                producer.produce(BUSY, b"message", partition=partition)
        assert producer.flush(30) == 0
        end, pending = _EACH_SECOND * (second + 1), list[Future[ConsumerGroupTopicPartitions]]()
        for number, (group, reader) in enumerate(GROUPS.items()):
            shifted = second - 5 * (number % 4)
            offset = reader(shifted, end, last.get((group, BUSY), 0))
            if offset is None:
                continue
            last[group, BUSY] = offset
            places = [TopicPartition(BUSY, 0, offset), TopicPartition(BUSY, 1, end), TopicPartition(QUIET, 0, 1)]
            asked = [ConsumerGroupTopicPartitions(group, places)]
            pending += admin.alter_consumer_group_offsets(asked).values()
        wait(pending, 30)


@contextmanager
def _burrows_verdicts(url: str) -> Iterator[dict[str, list[Verdict]]]:
    """Ask Burrow for all groups each second until the block ends."""
    found: dict[str, list[Verdict]] = {group: [] for group in GROUPS}
    stop = Event()

    def ask() -> None:
        with Client(url) as client:
            while not stop.wait(1):
                for group, verdicts in found.items():
                    try:
                        event = client.lag(CLUSTER, group)
                    except NotFound:
                        continue
                    partitions = {(each.topic, each.partition): each.status_text for each in event.partitions}
                    verdicts.append(Verdict(event.observed_at_ms, event.status_text, partitions))

    thread = Thread(target=ask)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


def _verdicts_on(kafka: Kafka) -> dict[str, list[Verdict]]:
    """The verdicts that the command wrote to its topic."""
    consumer = Consumer(kafka.client | {"group.id": "reads-beside", "enable.auto.commit": False})
    place = TopicPartition(VERDICTS, 0, 0)
    found: dict[str, list[Verdict]] = {group: [] for group in GROUPS}
    with closing(consumer):
        consumer.assign([place])
        _, end = consumer.get_watermark_offsets(place, timeout=10)
        while consumer.position([place])[0].offset < end:
            for message in consumer.consume(500, timeout=10):
                line = decode(message.value() or b"")
                partitions = {(each.topic, each.partition): each.status for each in line.partitions}
                found[line.consumer].append(Verdict(line.observed_at_ms, line.status, partitions))
    return found


def _differences(ours: Mapping[str, list[Verdict]], theirs: Mapping[str, list[Verdict]]) -> tuple[int, list[str]]:
    """Compare the verdicts of the time for which both have some. Return how many they are, and those that differ."""
    compared, differ = 0, list[str]()
    for group, verdicts in ours.items():
        first, last = theirs[group][0].at_ms, theirs[group][-1].at_ms
        for each in (each for each in verdicts if first <= each.at_ms <= last):
            compared += 1
            near = [other[1:] for other in theirs[group] if abs(other.at_ms - each.at_ms) <= _NEAR_MS]
            if each[1:] not in near:
                differ.append(f"{group} at {each.at_ms}: {each[1:]} and not one of {near}")
    return compared, differ


def test_both_give_the_same_status_to_99_of_100_verdicts(burrow_bin: str, one_broker: Stack, tmp_path: Path) -> None:
    kafka = one_broker.kafka
    for topic, partitions in ((BUSY, 2), (QUIET, 1), (VERDICTS, 1)):
        kafka.create_topic(topic, partitions)
    producer = Producer(kafka.client)
    producer.produce(QUIET, b"message", partition=0)
    assert producer.flush(30) == 0
    jars = ",".join(map(str, Downloads(default_cache()).spark_kafka()))
    command = [
        "offsets",
        "--judge=burrow",
        f"--tables={tmp_path / 'tables'}",
        f"--cluster={CLUSTER}",
        f"--conf=spark.jars={jars}",
    ]
    command += [f"--bootstrap-servers={kafka.bootstrap}", f"--to=kafka={VERDICTS}", "--every=2s", "--ends-every=1s"]
    command += ["--rules=min_distance=1s", f"--group-allowlist=^({'|'.join(GROUPS)})$", *SPARK]
    burrow = one_broker.burrow(burrow_bin, name="beside", cluster=CLUSTER)
    job = one_broker.servers.start("offsets", [sys.executable, "-m", "karrot", "pipeline", *command])
    stop = Event()
    writer = Thread(target=_commit, args=(kafka, stop))
    try:
        with _burrows_verdicts(burrow.url) as theirs:
            writer.start()
            wait_for(lambda: not writer.is_alive(), _SECONDS + 60)
        job.stop(60)
    finally:
        stop.set()
        burrow.server.stop()
    ours = _verdicts_on(kafka)
    compared, differ = _differences(ours, theirs)
    assert compared > 10 * len(GROUPS)
    assert len(differ) <= compared / 100, "\n".join(differ)
    for name, statuses in EXPECTED.items():
        told = {each.status for group, verdicts in ours.items() if group.startswith(name) for each in verdicts}
        assert told == statuses, name
