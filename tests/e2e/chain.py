"""The chain of 2017 on a real broker, step by step: ``make chain`` runs it, and so does a test.

In 2017 an engineer built this chain: a Kafka Streams application read ``__consumer_offsets`` and wrote JSON to a
topic, Druid ingested the topic, and a query listed one group's offsets by minute, newest first. If the offsets did not
change for two minutes, that was an alert. Here each step of the chain is a command that you can type.
"""

import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from confluent_kafka import Consumer, TopicPartition

from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.kafka import Kafka, Position
from e2e.stack.processes import Server, Servers
from e2e.stack.stack import NEWEST_KAFKA, Parts, running
from e2e.traffic import Traffic
from e2e.waiting import wait_for

CLUSTER: Final = "chain"
TOPIC: Final = "super-topic"
GROUP: Final = "super-streamer"
_JSON_TOPIC: Final = "consumer_offsets_json"
_PATIENCE_S: Final = 240
SPARK: Final = (
    "--master=local[2]",
    "--conf=spark.driver.memory=1g",
    "--conf=spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
)

Json = dict[str, Any]


class Seen(NamedTuple):
    """The results of the steps: JSON objects, and the final output of Kafka's own command."""

    on_topic: Json
    fired: Json
    cleared: Json
    minutes: Json
    described: Json
    position: Position


class Chain:
    """Runs the chain once; ``tell`` is called with a description and the result of each step."""

    def __init__(
        self,
        kafka: Kafka,
        directory: Path,
        connector: Sequence[Path],
        tell: Callable[[str], None],
        *,
        stale_for_s: int = 10,
    ) -> None:
        self._kafka = kafka
        self._directory = directory
        self._tables = f"--tables={directory / 'tables'}"
        self._jars = f"--conf=spark.jars={','.join(map(str, connector))}"
        self._tell = tell
        self._stale_for_s = stale_for_s

    def go(self) -> Seen:
        """Run all steps. This takes a minute and a half, and longer on a busy machine."""
        for topic in (TOPIC, _JSON_TOPIC):
            self._kafka.create_topic(topic, 1)
        self._tell(f"1. {GROUP} reads {TOPIC}, which is written to, and commits: records of __consumer_offsets.")
        with (
            Servers(self._directory / "logs") as servers,
            Traffic(self._kafka, TOPIC, GROUP, writes=5, reads=50) as traffic,
        ):
            began = time.time()
            offsets = self._land(servers)
            fired, cleared = self._stop_and_go_on(offsets, traffic)
            wait_for(lambda: time.time() // 60 > began // 60, 70)  # so that there are two minutes at the least
            traffic.end()
            on_topic, position = self._caught_up(offsets)
            for each in servers:
                each.stop(60)
                assert each.exit_code == 0, each.tail()
        return Seen(on_topic, fired, cleared, *self._history(), position)

    def _land(self, servers: Servers) -> Server:
        """Run ``karrot pipeline offsets``, which writes tables and a JSON topic."""
        self._tell("2. Spark takes them into tables, and onto a topic as JSON.")
        source = ("--source=kafka", f"--bootstrap-servers={self._kafka.bootstrap}", f"--cluster={CLUSTER}")
        judge = ("--judge=stale", f"--stale-for={self._stale_for_s}s")
        follow = (*judge, "--every=1s", "--ends-every=1s", f"--json-topic={_JSON_TOPIC}")
        offsets = self._start(servers, "offsets", *source, *follow, self._jars)
        wait_for(lambda: _goes_on(offsets) and self._newest() is not None, _PATIENCE_S)
        self._show(_lines(offsets, "records = ")[-1])
        self._tell(f"3. The newest record of {_JSON_TOPIC}:")
        self._show(json.dumps(self._newest()))
        return offsets

    def _stop_and_go_on(self, offsets: Server, traffic: Traffic) -> tuple[Json, Json]:
        """Return the alert that fires when the consumer stops, and that clears when it continues."""
        traffic.reads = None
        self._tell(f"4. {_now()}: the consumer stops, and the log goes on. The alert fires:")
        fired = self._alert(offsets, "stale")
        traffic.reads = 200
        self._tell(f"5. {_now()}: the consumer goes on. The alert clears:")
        return fired, self._alert(offsets, "cleared")

    def _caught_up(self, offsets: Server) -> tuple[Json, Position]:
        """Return whether the last commit is on the topic and the log ends were read after it."""
        [position] = self._kafka.positions(GROUP)
        wait_for(lambda: (self._newest() or {}).get("offset") == position.committed, _PATIENCE_S)
        looks = len(_lines(offsets, " log end"))
        wait_for(lambda: len(_lines(offsets, " log end")) > looks + 1, _PATIENCE_S)
        return self._newest() or {}, position

    def _history(self) -> tuple[Json, Json]:
        """Derive the tables and query the tables."""
        self._karrot("pipeline", "run", "--once", "--only=derive", self._tables, *SPARK)
        asked = (self._tables, f"--group={GROUP}")
        self._tell("6. Offsets by minute, newest first:")
        minutes = self._asked("history", "timeseries", *asked, "--metric=offset", "--order=desc")
        self._tell("7. Where the group stands, as kafka-consumer-groups --describe says it:")
        return minutes, self._asked("history", "describe", *asked)

    def _alert(self, offsets: Server, state: str) -> Json:
        def found() -> list[Json]:
            told = [json.loads(line) for line in _lines(offsets, f'"{GROUP}"') if line.startswith("{")]
            return [each for each in told if each["state"] == state]

        wait_for(lambda: bool(found()), _PATIENCE_S)
        self._show(f"{_now()}: {json.dumps(found()[-1])}")
        return found()[-1]

    def _newest(self) -> Json | None:
        """Return the newest record of the JSON topic about the group's partition."""
        consumer = Consumer(self._kafka.client | {"group.id": "chain-looks", "enable.auto.commit": False})
        _, end = consumer.get_watermark_offsets(TopicPartition(_JSON_TOPIC, 0), 10)
        consumer.assign([TopicPartition(_JSON_TOPIC, 0, max(0, end - 20))])
        values = [message.value() for message in consumer.consume(min(end, 20), 5) if message.error() is None]
        consumer.close()
        told: list[Json] = [json.loads(value) for value in values if value is not None]
        return next((each for each in reversed(told) if each["group"] == GROUP), None)

    def _start(self, servers: Servers, job: str, *arguments: str) -> Server:
        command = ["pipeline", job, self._tables, *arguments]
        self._show(f"$ karrot {shlex.join(each for each in command if each != self._jars)}")
        return servers.start(job, [sys.executable, "-m", "karrot", *command, *SPARK])

    def _asked(self, *arguments: str) -> Json:
        """Show the table; return the same data as JSON."""
        self._show(f"$ karrot {shlex.join(arguments)}", *self._karrot(*arguments).splitlines())
        found: Json = json.loads(self._karrot(*arguments, "--json"))
        return found

    @staticmethod
    def _karrot(*arguments: str) -> str:
        command = [sys.executable, "-m", "karrot", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _show(self, *lines: str) -> None:
        for line in lines:
            self._tell(f"   {line}")


def _goes_on(server: Server) -> bool:
    """Return whether the job has read the log ends; fail if the job has ended."""
    assert server.exit_code is None, server.tail()
    return bool(_lines(server, " log end")) and bool(_lines(server, "records = "))


def _lines(server: Server, having: str) -> list[str]:
    """Return the complete lines of its output."""
    lines = server.log.read_text(errors="replace").splitlines(keepends=True)
    return [line.rstrip() for line in lines if having in line and line.endswith("\n")]


def _now() -> str:
    return f"{datetime.now(UTC):%H:%M:%S}"


def main() -> None:
    """Start a broker of the newest Kafka, run the chain and print the results."""
    downloads = Downloads(default_cache())
    with (
        tempfile.TemporaryDirectory(prefix="karrot-chain-") as directory,
        running(Parts(kafka_version=NEWEST_KAFKA), Path(directory, "stack"), downloads) as stack,
    ):
        chain = Chain(stack.kafka, Path(directory), downloads.spark_kafka(), click.echo)
        click.echo(f"Kafka {stack.kafka.version} on {stack.kafka.bootstrap}; all that is written goes with the end.")
        position = chain.go().position
    click.echo(f"   Kafka's own: committed {position.committed}, log end {position.log_end}, lag {position.lag}")


if __name__ == "__main__":
    main()
