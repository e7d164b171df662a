"""A broker with consumer groups for `soak.py`, and the Kafka job of the pipeline that follows it."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import duckdb
from harness.offsets_kills import commits_on_the_topic

from e2e.pipeline_stores import LocalDisk, spark_options
from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.kafka import Kafka
from e2e.stack.processes import Server, Servers
from e2e.stack.stack import NEWEST_KAFKA, Parts, running
from e2e.traffic import Traffic
from support.pipeline.duckdb_scan import scan

CLUSTER: Final = "soak"
_LAST_BATCH_S: Final = 600.0


class Broker(NamedTuple):
    """A running broker with its traffic, and what starts other programs beside it."""

    kafka: Kafka
    servers: Servers
    scratch: Path
    jars: str
    traffic: Sequence[Traffic]

    @property
    def watch_settings(self) -> dict[str, str]:
        """The settings of a service that watches the broker."""
        return {"watch_bootstrap": self.kafka.bootstrap, "watch_cluster": CLUSTER}

    def start_job(self, *more: str) -> Server:
        """Start ``karrot pipeline offsets`` with both judges; its verdicts go to the tables and to a topic."""
        words = f"""offsets --judge burrow,stale --stale-for 5m --every 15s --cluster {CLUSTER}
            --to tables,kafka=verdicts --bootstrap-servers {self.kafka.bootstrap}
            --tables {self.scratch}/tables --checkpoint {self.scratch}/checkpoint"""
        options = spark_options(LocalDisk(self.scratch, spark_conf={"spark.jars": self.jars}))
        command = [sys.executable, "-m", "karrot", "pipeline", *words.split(), *options, *more]
        return self.servers.start("job", command)

    def commits_not_in_the_table(self, job: Server) -> int:
        """End the traffic and the job, read what is left, and count commits that the table lacks or has twice."""
        for each in self.traffic:
            each.end()
        job.stop(60)
        last = self.start_job("--once")
        if last.wait(_LAST_BATCH_S):
            raise RuntimeError(last.tail())
        read = duckdb.execute(f"SELECT log_partition, log_offset FROM {scan(self.scratch / 'tables', 'commits')}")
        kept, real = Counter(read.fetchall()), Counter(commits_on_the_topic(self.kafka))
        return ((kept - real) + (real - kept)).total()


@contextmanager
def broker(scratch: Path, groups: int = 10) -> Iterator[Broker]:
    """Run a broker: half of the groups keep up, others read too slowly, and the last one leaves."""
    downloads = Downloads(default_cache())
    parts = Parts(kafka_version=NEWEST_KAFKA)
    with ExitStack() as stack:
        servers = stack.enter_context(running(parts, scratch / "stack", downloads))
        servers.kafka.create_topic("verdicts", 1)
        traffic = list[Traffic]()
        for number in range(groups):
            servers.kafka.create_topic(f"topic-{number}", 2)
            reads = (5, 2)[number * 2 >= groups]
            each = Traffic(servers.kafka, f"topic-{number}", f"group-{number}", writes=2 + number % 2, reads=reads)
            traffic.append(stack.enter_context(each))
        traffic[-1].reads = None
        yield Broker(servers.kafka, servers.servers, scratch, ",".join(map(str, downloads.spark_kafka())), traffic)
