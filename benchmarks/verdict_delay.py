"""Measures the time from the last commit of consumers that stop to the changed status in Karrot's metrics.

PYTHONPATH=tests python benchmarks/verdict_delay.py [--groups 20] [--every 20s,60s]

A real broker has groups that commit every five seconds, as Kafka's clients do by default. `karrot watch`, one `karrot
pipeline offsets` for each ``--every``, and the real Burrow, if BURROW_BIN names one, judge the same groups and post to
the same Karrot. When all of them have said OK about each group, the groups stop one after the other, and the topic
grows on. All have their defaults, and Burrow has the notifier that `karrot burrow-config` prints.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from e2e.stack.burrow import burrow_binary
from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.kafka import Kafka
from e2e.stack.stack import Parts, Stack, running
from support.service.karrot_service import Service
from support.waiting import wait_for

_TOPIC: Final = "delayed"
_COMMIT_S: Final = 5.0
_TURNS: Final = 10
_LOOK_S: Final = 0.2
_OK: Final = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--every", default="20s,60s", help="of the pipeline, with commas")
    asked = parser.parse_args()
    downloads = Downloads(default_cache())
    with tempfile.TemporaryDirectory(prefix="karrot-bench-") as place, ExitStack() as ending:
        stack = ending.enter_context(running(Parts(), Path(place, "stack"), downloads))
        stack.kafka.create_topic(_TOPIC, 1)
        service = ending.enter_context(Service(Path(place, "data")))
        groups = ending.enter_context(committing(stack.kafka, asked.groups))
        jars = ",".join(map(str, downloads.spark_kafka()))
        judges = start_judges(stack, service, asked.every.split(","), jars, Path(place))
        for name, delays in measured(service, judges, groups).items():
            shown = f"{statistics.median(delays):.0f} s (median), {min(delays):.0f} to {max(delays):.0f} s"
            print(f"{name}: {shown}, {len(delays)} groups; load {os.getloadavg()[0]:.1f}", flush=True)


def start_judges(stack: Stack, service: Service, every: list[str], jars: str, place: Path) -> list[str]:
    """Start all that judge. Return the names under which they judge the cluster."""
    url = f"http://127.0.0.1:{service.port}"
    asked = ("--bootstrap-servers", stack.kafka.bootstrap, "--cluster")
    stack.servers.start("watch", [*_karrot("watch"), *asked, "watch", "--post", url, "--state", place / "state"])
    names = ["watch"]
    for each in every:
        name = f"pipeline-{each}"
        options = ("--tables", place / name, "--every", each, "--to", f"karrot={url}", "--conf", f"spark.jars={jars}")
        stack.servers.start(name, [*_karrot("pipeline", "offsets", "--judge", "burrow"), *asked, name, *options])
        names.append(name)
    if binary := burrow_binary():
        template, command = place / "karrot.tmpl", _karrot("burrow-config", "--karrot", url)
        template.write_bytes(subprocess.run([*command, "--template"], capture_output=True, check=True).stdout)
        section = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        section = section.replace("/etc/burrow/karrot.tmpl", str(template))
        stack.burrow(binary, cluster="burrow", notifiers=section, offset_refresh=10)
        names.append("burrow")
    return names


def _karrot(*command: str) -> list[str]:
    return [sys.executable, "-m", "karrot", *command]


@contextmanager
def committing(kafka: Kafka, count: int) -> Iterator[dict[str, float | None]]:
    """Let groups commit in a thread. Yields the time at which each stopped; while it is ``None``, the group commits."""
    groups: dict[str, float | None] = {f"delayed-{number:02}": None for number in range(count)}
    stop, producer, admin = Event(), Producer(kafka.client), kafka.admin()

    def go() -> None:
        written = 0
        while not stop.wait(_COMMIT_S / _TURNS):
            producer.produce(_TOPIC, b"message", partition=0)
            producer.flush(30)
            written += 1
            for number, (group, stopped) in enumerate(groups.items()):
                if stopped is None and number % _TURNS == written % _TURNS:
                    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(_TOPIC, 0, written)])
                    admin.alter_consumer_group_offsets([asked])[group].result(60)

    thread = Thread(target=go)
    thread.start()
    try:
        yield groups
    finally:
        stop.set()
        thread.join()


def measured(service: Service, judges: list[str], groups: dict[str, float | None]) -> dict[str, list[float]]:
    """Stop the groups one after the other. Return the seconds until each judge's status was not OK any more."""

    def statuses() -> dict[tuple[str, str], float]:
        families = text_string_to_metric_families(service.get("/metrics").body.decode())
        return {
            (sample.labels["cluster"], sample.labels["consumer"]): sample.value
            for family in families
            for sample in family.samples
            if sample.name == "karrot_consumer_status_code" and sample.labels["consumer"] in groups
        }

    wait_for(lambda: [*statuses().values()].count(_OK) == len(judges) * len(groups), 400, every_s=1)
    time.sleep(60)  # the windows fill
    found: dict[tuple[str, str], float] = {}
    names = iter(groups)
    due, began = time.time(), time.monotonic()
    while len(found) < len(judges) * len(groups) and time.monotonic() < began + 600:
        if time.time() >= due and (name := next(names, None)):
            groups[name] = time.time()
            due += 3
        time.sleep(_LOOK_S)
        now = time.time()
        for (judge, group), status in statuses().items():
            stopped = groups[group]
            if status != _OK and stopped is not None and (judge, group) not in found:
                found[judge, group] = now - stopped
    return {judge: [each for (of, _), each in found.items() if of == judge] for judge in judges}


if __name__ == "__main__":
    main()
