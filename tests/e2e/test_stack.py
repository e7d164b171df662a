"""The servers that the other tests of this directory rely on."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.kafka import Kafka, Position
from e2e.stack.processes import NotStarted
from e2e.stack.stack import NEWEST_KAFKA, Parts, Stack, running
from e2e.stack.zookeeper import ZooKeeper
from e2e.waiting import wait_for
from support.burrow.recorded_bodies import recorded_body
from support.service.free_ports import free_port
from support.service.karrot_service import Service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

WHICH = {"one_broker": (1, "4.1.2"), "stack": (3, "4.1.2"), "newest_kafka": (1, NEWEST_KAFKA)}


@pytest.fixture(params=WHICH)
def any_stack(request: pytest.FixtureRequest) -> Stack:
    found: Stack = request.getfixturevalue(request.param)
    assert (len(found.kafka.brokers), found.kafka.version) == WHICH[request.param]
    return found


@pytest.fixture
def downloads() -> Downloads:
    return Downloads(default_cache())


def produce(kafka: Kafka, topic: str, counts: list[int]) -> None:
    """Write this number of messages into each partition."""
    producer = Producer(kafka.client)
    for partition, count in enumerate(counts):
        for number in range(count):
            producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(30) == 0


def read_and_commit(kafka: Kafka, group: str, topic: str, counts: list[int]) -> None:
    """Read and commit this number of messages of each partition, from the first on."""
    told = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(kafka.client | told)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(len(counts))])
    read = [0] * len(counts)
    while any(have < want for have, want in zip(read, counts, strict=True)):
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        partition = message.partition()
        assert partition is not None
        assert message.value() == str(read[partition]).encode()
        read[partition] += 1
    consumer.commit(
        offsets=[TopicPartition(topic, number, count) for number, count in enumerate(counts)], asynchronous=False
    )
    consumer.close()


def processes_below(directory: Path) -> list[str]:
    """Return the command lines that name a path below the directory."""
    found = [path.read_bytes().replace(b"\0", b" ").decode() for path in Path("/proc").glob("[0-9]*/cmdline")]
    return [each for each in found if str(directory) in each]


def test_kafkas_own_command_shows_the_produced_and_committed_offsets(any_stack: Stack) -> None:
    kafka = any_stack.kafka
    kafka.create_topic("orders", 3)
    produce(kafka, "orders", [50, 25, 5])
    read_and_commit(kafka, "orders-svc", "orders", [10, 25, 0])
    consumer = Consumer(kafka.client | {"group.id": "orders-svc"})
    partitions = [TopicPartition("orders", number) for number in range(3)]
    assert [each.offset for each in consumer.committed(partitions, timeout=10)] == [10, 25, 0]
    assert [consumer.get_watermark_offsets(each, timeout=10) for each in partitions] == [(0, 50), (0, 25), (0, 5)]
    consumer.close()
    assert kafka.positions("orders-svc") == [
        Position("orders", 0, 10, 50, 40),
        Position("orders", 1, 25, 25, 0),
        Position("orders", 2, 0, 5, 5),
    ]


def test_a_killed_broker_comes_back_with_its_data(stack: Stack) -> None:
    kafka = stack.kafka
    kafka.create_topic("kept", 3)
    produce(kafka, "kept", [7, 7, 7])
    kafka.broker(2).kill()
    kafka.start_broker(2)
    kafka.wait()
    read_and_commit(kafka, "kept-svc", "kept", [7, 7, 7])


def test_prometheus_scrapes_a_running_karrot(one_broker: Stack, tmp_path: Path) -> None:
    prometheus = one_broker.prometheus
    with Service(tmp_path / "data") as service:
        assert service.post(recorded_body("karrot_v1.9.5_warn.json")).status == 202
        with prometheus.scraping("karrot", service.port):
            [found] = prometheus.query("karrot_consumer_lag")
    assert (found["metric"]["job"], found["metric"]["consumer"], found["value"][1]) == ("karrot", "orders-svc", "11020")


def test_zookeeper_answers(one_broker: Stack) -> None:
    assert "Mode: standalone" in one_broker.zookeeper.ask("srvr")
    assert ZooKeeper(one_broker.servers, Path(), free_port()).ask("ruok") == ""


def test_the_real_burrow_sees_a_group_and_its_lag(stack: Stack, burrow_bin: str) -> None:
    kafka = stack.kafka
    kafka.create_topic("seen", 2)
    produce(kafka, "seen", [30, 10])
    burrow = stack.burrow(burrow_bin)

    def lag_after_a_commit() -> int:
        """Commit again and return the lag. Burrow drops commits of a topic whose log ends it has not read yet."""
        read_and_commit(kafka, "seen-svc", "seen", [10, 10])
        return int(answered(f"{burrow.url}/v3/kafka/e2e/consumer/seen-svc/lag")["status"]["totallag"])

    wait_for(lambda: lag_after_a_commit() == 20)
    burrow.server.stop()


def test_a_start_that_fails_shows_the_logs_and_leaves_no_process(cache: Path, downloads: Downloads) -> None:
    kafka, _ = downloads.jars("4.1.2")
    (cache / kafka.name).unlink()
    (cache / kafka.name).mkdir()  # no jar in it
    with pytest.raises(NotStarted, match="formatting ended with 1") as failure:
        running(Parts(), cache / "run", Downloads(cache)).__enter__()
    [tails] = failure.value.__notes__
    assert "--- zookeeper (still runs), the end of" in tails
    assert "--- kafka-format (ended with 1), the end of" in tails
    assert "Could not find or load main class kafka.tools.StorageTool" in tails
    assert processes_below(cache) == []


def test_a_stack_stays_up_between_two_commands(commands: Callable[..., str], cache: Path) -> None:
    said = commands("up", "--brokers", "1")
    addresses = dict(line.split("=") for line in said.splitlines() if not line.startswith("#"))
    with urlopen(f"{addresses['PROMETHEUS_URL']}/-/ready", timeout=10) as answer:
        assert answer.status == 200
    consumer = Consumer({"bootstrap.servers": addresses["KAFKA_BOOTSTRAP"], "group.id": "nobody"})
    assert "__consumer_offsets" in consumer.list_topics(timeout=10).topics
    consumer.close()
    assert "a stack is up" in commands("up", "--brokers", "1", fails=True)
    assert commands("down") == "the stack is down\n"
    assert commands("down") == "no stack was up\n"
    assert processes_below(cache) == []
    assert (cache / "kept" / "kafka-1.log").exists()


def test_nothing_outlives_a_killed_keeper(commands: Callable[..., str], cache: Path) -> None:
    commands("up", "--brokers", "1")
    os.kill(int((cache / "kept" / "pid").read_text()), signal.SIGKILL)
    wait_for(lambda: processes_below(cache) == [])
    assert commands("down") == "no stack was up\n"


@pytest.fixture
def cache(tmp_path: Path, downloads: Downloads) -> Path:
    """Return a new cache for a kept stack, with the jars of the usual cache."""
    for place in downloads.jars("4.1.2"):
        (tmp_path / place.name).symlink_to(place)
    return tmp_path


@pytest.fixture
def commands(cache: Path, downloads: Downloads) -> Iterator[Callable[..., str]]:
    """Yield a function that runs ``python -m e2e.stack`` on that cache; end a stack that a failed test left up."""
    told = {"KARROT_E2E_CACHE": str(cache), "PROMETHEUS_BIN": str(downloads.prometheus()), "PYTHONPATH": "tests"}

    def run(*arguments: str, fails: bool = False) -> str:
        command = [sys.executable, "-m", "e2e.stack", *arguments]
        root = Path(__file__).resolve().parents[2]
        done = subprocess.run(command, cwd=root, env=os.environ | told, capture_output=True, text=True, check=False)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout

    yield run
    run("down")


def answered(url: str) -> Any:
    """Return Burrow's JSON answer, also of a 404."""
    try:
        with urlopen(url, timeout=5) as answer:
            return json.load(answer)
    except HTTPError as error:
        with error:
            return json.load(error)
