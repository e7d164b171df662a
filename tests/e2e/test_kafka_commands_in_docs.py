"""Each command of Kafka in the documentation runs on a real broker as a reader pastes it."""

import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition

from e2e.kafka_scripts import write_kafka_scripts
from e2e.stack.kafka import Kafka
from support.kafka.commands_in_docs import KafkaCommand, commands_in

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

DOCS = Path(__file__).resolve().parents[2] / "docs"
GROUP, TOPIC, PARTITION, COMMITTED, TRANSACTION = "orders", "orders.v1", 3, 4711, 4700
"""The names and offsets that the pages use as examples."""

ANSWERS = {"kafka-acls": "No Authorizer is configured"}
"""Answers of this broker that show that a command was complete, although it failed."""

SHOWS = {
    "kafka-console-consumer": "the record that waits",
    "describe-producers": str(TRANSACTION),
    "--list": f"{GROUP}-of-",
}
"""What the output of a command has, by its name or by a word of it."""


def commands() -> list[KafkaCommand]:
    """Return every complete command of the pages once. `test_tutorial` runs those of the tutorial."""
    pages = sorted(page for page in DOCS.rglob("*.md") if page.name != "tutorial.md")
    found = [each for page in pages for each in commands_in(page) if "--bootstrap-server" in each.line]
    return list({each.line: each for each in found}.values())


class Place(NamedTuple):
    """A real broker with the topics that the commands name. ``blocked`` is the topic with an open transaction."""

    kafka: Kafka
    scripts: Path
    topic: str
    blocked: str


@pytest.fixture(scope="module")
def place(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Write the records that the pages use as examples, and leave a transaction open."""
    scripts = write_kafka_scripts(kafka, tmp_path_factory.mktemp("kafka") / "bin")
    place = Place(kafka, scripts, "commands-in-docs", "commands-in-docs-blocked")
    producer = Producer(kafka.client)
    for topic, records in ((place.topic, COMMITTED), (place.blocked, TRANSACTION)):
        kafka.create_topic(topic, PARTITION + 1)
        for _ in range(records):
            producer.produce(topic, b"x", partition=PARTITION)
    producer.produce(place.topic, SHOWS["kafka-console-consumer"].encode(), partition=PARTITION)
    producer.flush(30)
    blocking = Producer(kafka.client | {"transactional.id": "commands-in-docs", "transaction.timeout.ms": 600_000})
    blocking.init_transactions(30)
    blocking.begin_transaction()
    blocking.produce(place.blocked, b"x", partition=PARTITION)
    blocking.flush(30)
    return place


@pytest.fixture
def group(place: Place, own_name: str) -> str:
    """Make a group that has no members, and a committed offset."""
    name = f"{GROUP}-of-{own_name}"
    offsets = ConsumerGroupTopicPartitions(name, [TopicPartition(place.topic, PARTITION, COMMITTED)])
    admin = place.kafka.admin()
    admin.alter_consumer_group_offsets([offsets])[name].result(30)
    return name


@pytest.mark.parametrize("command", commands(), ids=lambda each: f"{each.page.stem}-{each.name}")
def test_a_command_of_a_page_runs_as_pasted(command: KafkaCommand, place: Place, group: str) -> None:
    topic = place.blocked if command.name == "kafka-transactions" else place.topic
    line = re.sub(r"\b(kafka-1|kafka|localhost):9092\b", place.kafka.bootstrap, command.line)
    line = line.replace(TOPIC, topic).replace("karrot.events", "commands-in-docs-events")
    line = re.sub(rf"\b{GROUP}\b|\bNAME\b", group, line)
    line = line.replace("--replication-factor 3", "--replication-factor 1")  # there is one broker
    assert place.kafka.bootstrap in line
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        env=os.environ | {"PATH": f"{place.scripts}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = f"{line}\n{done.stdout}{done.stderr}"
    failed = done.returncode != 0 or re.search("^Error", done.stdout + done.stderr, re.MULTILINE)
    assert not failed or ANSWERS.get(command.name, "?") in said, said
    for word, shown in SHOWS.items():
        assert shown in done.stdout or "|" in line or word not in [*line.split(), command.name], said
