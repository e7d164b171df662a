"""The producer and the slow consumer of examples/compose work with a real broker."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from e2e.stack.kafka import Kafka
from e2e.stack.stack import Stack
from e2e.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TRAFFIC = Path(__file__).resolve().parents[2] / "examples" / "compose" / "traffic.py"
TOPIC, GROUP = "orders-of-the-example", "billing-of-the-example"
PARTITIONS = [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]


def test_the_consumer_commits_and_falls_behind(one_broker: Stack) -> None:
    kafka = one_broker.kafka
    kafka.create_topic(TOPIC, len(PARTITIONS))
    environment = os.environ | {"BOOTSTRAP": kafka.bootstrap}
    with ExitStack() as stack:
        programs = [
            stack.enter_context(
                subprocess.Popen([sys.executable, TRAFFIC, *role, "--topic", TOPIC, "--group", GROUP], env=environment)
            )
            for role in (["produce", "--rate", "200"], ["consume", "--rate", "20"])
        ]
        try:
            wait_for(lambda: _committed(kafka) > 0 and _written(kafka) - _committed(kafka) > 500)
        finally:
            for program in programs:
                program.send_signal(signal.SIGTERM)
        assert [program.wait(60) for program in programs] == [0, 0]


def _committed(kafka: Kafka) -> int:
    with closing(Consumer(kafka.client | {"group.id": GROUP})) as looking:
        return sum(max(0, each.offset) for each in looking.committed(PARTITIONS, timeout=10))


def _written(kafka: Kafka) -> int:
    with closing(Consumer(kafka.client | {"group.id": GROUP})) as looking:
        return sum(looking.get_watermark_offsets(each, timeout=10)[1] for each in PARTITIONS)
