"""Kills ``karrot pipeline offsets`` with both judges on a real broker, and looks for what was lost or doubled.

One group commits all the time, one has stopped, and with each kill another one stops, and goes on after its alerts.
Verdicts go to the tables and to a topic, and alerts to the log. A killed driver may send some again, with the same ids.
"""

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import count, product
from pathlib import Path
from typing import Any

import click
import duckdb
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Message, Producer, TopicPartition

from e2e.pipeline_stores import LocalDisk, spark_options
from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.kafka import Kafka
from e2e.stack.stack import NEWEST_KAFKA, Parts, running
from e2e.waiting import wait_for
from karrot.event_json_line import decode
from support.pipeline.duckdb_scan import scan

_NOW = "-"
_MOMENTS = [_NOW, *(f"checkpoint/{each}/*" for each in ("offsets", "commits", "burrow/state", "stale/state"))]
_MOMENTS += [f"tables/{each}/_delta_log/*.json" for each in ("commits", "ends", "events", "partitions")]
_END, _LONG_S = 20, 300.0


def kill_offsets(scratch: Path, chance: random.Random, kills: int) -> Counter[str]:
    """Kill the driver, and return the numbers of what was compared, and of faults, which begin with "differ"."""
    names, moves, cleared = [f"stops-{number}" for number in range(kills)], count(1), set[str]()
    parts, downloads = Parts(kafka_version=NEWEST_KAFKA), Downloads(default_cache())
    with running(parts, scratch / "stack", downloads) as stack:
        kafka, jars = stack.kafka, ",".join(map(str, downloads.spark_kafka()))
        words = f"""offsets --judge burrow,stale --stale-for 4s --every 2s --ends-every 1s --cluster kills --wait 3m
            --to tables,kafka=verdicts,stdout --rules intervals=5,min_distance=1s --bootstrap-servers {kafka.bootstrap}
            --tables {scratch}/tables --checkpoint {scratch}/checkpoint"""
        options = spark_options(LocalDisk(scratch, spark_conf={"spark.jars": jars}))
        command = [sys.executable, "-m", "karrot", "pipeline", *words.split(), *options]

        def wait(is_time: Callable[[], bool]) -> None:
            """Commit until it is time, also for the groups whose alerts have come."""

            def step() -> bool:
                assert driver.exit_code is None, driver.tail()
                _produce(kafka, "moves", 1)
                _commit(kafka, "moves", "moves", next(moves))
                told = Counter((group, state) for group, _, state, _ in {*_alerts(driver.log)})
                for group in names:
                    if told[group, "stale"] == 2 and group not in cleared:
                        _commit(kafka, group, "stops", _END)
                cleared.update(group for group in names if told[group, "cleared"] == 2)
                return is_time()

            wait_for(step, _LONG_S)

        for topic in ("moves", "stops", "verdicts"):
            kafka.create_topic(topic, 2)
        _produce(kafka, "stops", _END)
        _commit(kafka, "stuck", "stops", 5)
        for name in names:
            driver, where = stack.servers.start("offsets", command), chance.choice(_MOMENTS)
            files = 0 if where == _NOW else chance.randint(1, 3)
            _commit(kafka, name, "stops", 5)
            wait(_written(scratch, where, files))
            ends_s = time.monotonic() + chance.random() * (0.5 if files else 30)
            wait(lambda ends_s=ends_s: time.monotonic() >= ends_s)  # type: ignore[misc]
            driver.kill()
            click.echo(f"{name}: kill at {f'file {files} of {where}' if files else 'any time'}")
        driver = stack.servers.start("offsets", command)
        wait(lambda: len(cleared) == kills)
        driver.kill()
        driver = stack.servers.start("offsets", [*command, "--once"])
        assert driver.wait(_LONG_S) == 0, driver.tail()
        return _compared(scratch / "tables", kafka, _alerts(driver.log), names)


def _commit(kafka: Kafka, group: str, topic: str, offset: int) -> None:
    places = [TopicPartition(topic, partition, offset) for partition in (0, 1)]
    admin = kafka.admin()
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])[group].result(30)


def _produce(kafka: Kafka, topic: str, messages: int) -> None:
    producer = Producer(kafka.client)
    for number in range(2 * messages):
        producer.produce(topic, b"a message", partition=number % 2)
    assert producer.flush(30) == 0


def _messages(kafka: Kafka, topic: str, partitions: int) -> Iterator[Message]:
    with closing(Consumer(kafka.client | {"group.id": "looks", "enable.auto.commit": False})) as consumer:
        for place in (TopicPartition(topic, partition, 0) for partition in range(partitions)):
            consumer.assign([place])
            _, end = consumer.get_watermark_offsets(place, timeout=30)
            while end and consumer.position([place])[0].offset < end:
                yield from consumer.consume(500, timeout=1)


def commits_on_the_topic(kafka: Kafka) -> list[tuple[int, int]]:
    """The partition and offset of each commit in ``__consumer_offsets``."""
    found = _messages(kafka, "__consumer_offsets", 4)
    commits = [each for each in found if (each.key() or b"")[:2] < b"\0\2" and each.value() is not None]
    return [(each.partition() or 0, each.offset() or 0) for each in commits]


def _alerts(log: Path) -> list[tuple[str, int, str, str]]:
    lines = (json.loads(line) for line in log.read_text().splitlines() if line.startswith('{"state"'))
    return [(each["group"], each["partition"], each["state"], each["id"]) for each in lines]


def _written(scratch: Path, where: str, files: int) -> Callable[[], bool]:
    """Whether there are this many new files. Old files can be deleted meanwhile."""
    seen = set(scratch.glob(where))
    most = len(seen) + files
    return lambda: seen.update(scratch.glob(where)) is None and len(seen) >= most  # type: ignore[func-returns-value]


def _compared(tables: Path, kafka: Kafka, alerts: list[tuple[str, int, str, str]], names: list[str]) -> Counter[str]:
    found = Counter[str]()

    def compare(what: str, seen: Iterable[object], real: Iterable[object]) -> None:
        here, there = Counter(seen), Counter(real)
        found[what] += there.total()
        for fault, places in {"lost": there - here, "doubled": here - there}.items():
            if places:
                click.echo(f"{what} {fault}: {[*places][:10]}")
                found[f"differ: {what} {fault}"] += places.total()

    def rows(table: str, columns: str) -> list[tuple[Any, ...]]:
        return duckdb.execute(f"SELECT {columns} FROM {scan(tables, table)} ORDER BY ALL").fetchall()

    compare("commits", rows("commits", "log_partition, log_offset"), commits_on_the_topic(kafka))

    events = rows("events", "seq, event_id, observed_at_ms, consumer, kind, incident_id")
    numbers = [each[0] for each in events]
    compare("verdicts", numbers, range(1, 1 + max(numbers)))
    times = [(at_ms, consumer) for _, _, at_ms, consumer, _, _ in events]
    compare("verdicts of a group and time", times, set(times))
    sent = [decode(each.value() or b"").event_id for each in _messages(kafka, "verdicts", 2)]
    compare("verdicts on the topic", set(sent), [each[1] for each in events])
    last = {consumer: (consumer, incident) for *_, consumer, kind, incident in events}
    opened = {(consumer, incident) for *_, consumer, _, incident in events if incident}
    closed = [(consumer, incident) for *_, consumer, kind, incident in events if kind == "close"]
    compare("closed incidents", closed, opened - set(last.values()) | set(closed))
    compare("incidents that go on", [each for each in opened if each[0] == "stuck"], [last["stuck"]])

    stops = [*product(names, (0, 1), ("stale", "cleared")), ("stuck", 0, "stale"), ("stuck", 1, "stale")]
    compare("alerts", [each[:3] for each in set(alerts)], stops)
    ids = [(group, partition) for group, partition, _ in {(*each[:2], each[3]) for each in alerts}]
    compare("ids of alerts", ids, set(ids))
    found["verdicts sent again"] = len(sent) - len(set(sent))
    found["alerts sent again"] = len(alerts) - len(set(alerts))
    return found
