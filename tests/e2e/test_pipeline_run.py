"""``karrot pipeline run`` as a process of its own, with a real broker."""

import json
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import duckdb
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from e2e.chain import SPARK
from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.kafka import Kafka
from e2e.stack.processes import Server, Servers
from e2e.waiting import wait_for
from support.pipeline.archive_segments import segment_line, write_segment
from support.pipeline.duckdb_scan import scan

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

TOPIC, GROUP, CLUSTER = "orders.run", "orders-run", "run"
_PATIENCE_S = 400
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=128m"
"""Without the last option, the 48 MB of a JVM with only the first compiler are full after two turns."""


class Run:
    """The process, its tables and its metrics."""

    def __init__(self, servers: Servers, directory: Path, kafka: Kafka) -> None:
        self.servers, self.archive, self.tables = servers, directory / "archive", directory / "tables"
        jars = ",".join(map(str, Downloads(default_cache()).spark_kafka()))
        offsets = (f"--offsets={CLUSTER}", f"--bootstrap-servers={kafka.bootstrap}", "--ends-every=2s")
        places = (f"--archive={self.archive}", f"--tables={self.tables}")
        self.command = [sys.executable, "-m", "karrot", "pipeline", "run", *places, *offsets, *SPARK]
        self.command += [f"--conf=spark.jars={jars}", "--every=3s", f"--conf=spark.driver.extraJavaOptions={_JAVA}"]
        self.port = 0

    def start(self, name: str) -> Server:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        return self.servers.start(name, [*self.command, f"--metrics-port={self.port}"])

    def metric(self, name: str, **labels: str) -> float | None:
        """The value of a metric; ``None`` if it has no sample or the process does not answer."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
                text = answer.read().decode()
        except (URLError, OSError):
            return None
        samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
        return next((sample.value for sample in samples if (sample.name, sample.labels) == (name, labels)), None)

    def turns(self) -> float:
        return self.metric("karrot_pipeline_turns_total", outcome="done") or 0

    def wait_for_events(self, server: Server, count: int) -> None:
        """Wait until the process has written a number of events, and then until a turn has succeeded."""
        wait_for(
            lambda: server.exit_code is not None or self.metric("karrot_pipeline_rows_total", table="events") == count,
            _PATIENCE_S,
        )
        before = self.turns()
        wait_for(lambda: server.exit_code is not None or self.turns() > before, _PATIENCE_S)
        assert server.exit_code is None, server.tail()

    def rows(self, table: str, what: str = "count(*)") -> Any:
        [row] = duckdb.execute(f"SELECT {what} FROM {scan(self.tables, table)}").fetchall()
        return row[0]


def commit(kafka: Kafka, offset: int) -> None:
    consumer = Consumer({**kafka.client, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    consumer.close()


def test_one_process_keeps_the_tables_up_to_date_and_survives_kill_9(one_broker: Any, tmp_path: Path) -> None:
    kafka = one_broker.kafka
    kafka.create_topic(TOPIC, 1)
    producer = Producer(kafka.client)
    for _ in range(10):
        producer.produce(TOPIC, b"order")
    producer.flush(20)
    commit(kafka, 4)
    with Servers(tmp_path / "logs") as servers:
        run = Run(servers, tmp_path, kafka)
        write_segment(run.archive, 1, [segment_line(seq) for seq in (1, 2, 3)])
        first = run.start("first")
        run.wait_for_events(first, 3)
        assert run.rows("lag_minute", f"count(*) FILTER (cluster <> '{CLUSTER}')") == 1
        commit(kafka, 7)  # before the segment, so that the turn with the segment also finds the commit
        write_segment(run.archive, 4, [segment_line(seq) for seq in (4, 5)])
        run.wait_for_events(first, 5)
        assert run.rows("partition_lag_minute", f"max(offset_last) FILTER (consumer = '{GROUP}')") == 7
        assert run.rows("ends", f"max(end_offset) FILTER (topic = '{TOPIC}')") == 10
        write_segment(run.archive, 6, [segment_line(6)])
        time.sleep(random.uniform(0, 8))  # the process is killed at any moment of a turn
        first.kill()

        last = run.start("last")
        wait_for(lambda: last.exit_code is not None or run.turns() > 0, _PATIENCE_S)
        last.signal(signal.SIGTERM)
        assert last.wait(40) == 0, last.tail()
        told = [json.loads(line) for line in last.log.read_text().splitlines() if line.startswith("{")]
        assert [each for each in told if each["level"] != "info"] == []
    assert (run.rows("events"), run.rows("events", "count(DISTINCT seq)")) == (6, 6)
    assert run.rows("commits", f"count(*) FILTER (consumer = '{GROUP}')") == 2


def test_the_process_ends_soon_after_its_jvm_although_the_next_turn_is_far(tmp_path: Path) -> None:
    write_segment(tmp_path / "archive", 1, [segment_line(1)])
    places = (f"--archive={tmp_path / 'archive'}", f"--tables={tmp_path / 'tables'}")
    with Servers(tmp_path / "logs") as servers:
        process = servers.start(
            "run", [sys.executable, "-m", "karrot", "pipeline", "run", *places, *SPARK, "--every=1h"]
        )
        wait_for(lambda: process.exit_code is not None or (tmp_path / "tables" / "_last_success").exists(), _PATIENCE_S)
        [jvm] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(jvm), signal.SIGTERM)
        assert process.wait(40) == 1, process.tail()
        assert process.tail().rstrip().endswith("karrot: Spark has ended")
