"""The scripts of Kafka's ``bin`` directory. The stack has only Kafka's jars."""

import stat
from pathlib import Path

from e2e.stack.java import java
from e2e.stack.kafka import Kafka

CLASSES = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}
"""The class that each script runs. Some distributions of Kafka leave out ``.sh``, so each script has both names."""


def write_kafka_scripts(kafka: Kafka, directory: Path) -> Path:
    """Write the scripts into a new directory, and return it."""
    directory.mkdir()
    for name, main in CLASSES.items():
        command = java(kafka.jars, 128, main, log_level="error")
        for file in (directory / name, directory / f"{name}.sh"):
            file.write_text(f'#!/bin/sh\nexec {" ".join(f"{str(word)!r}" for word in command)} "$@"\n')
            file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return directory
