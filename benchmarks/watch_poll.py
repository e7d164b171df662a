"""Measures how many groups one core can watch, by the parts of a poll of a simulated or a real cluster.

``--bootstrap HOST:PORT`` also polls that cluster with all of its groups.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from karrot.burrow.payload import to_wire
from karrot.clock import SystemClock
from karrot.event import TopicPartition
from karrot.eventlog.sqlite import SqliteEventLog, data_directory
from karrot.intake import Intake
from karrot.watch.cluster_interface import Cluster, connect
from karrot.watch.poll_loop import IntakeSink, PollOutcome, Watcher
from karrot.watch.saved_state import dump, load, log_keeper
from support.kafka.in_memory_kafka import InMemoryKafka, make_member

POLLS = 15


class Held:
    """A sink that keeps the newest outcome."""

    outcome: PollOutcome

    def send(self, outcome: PollOutcome, age_ms: Callable[[], int]) -> None:
        age_ms()
        self.outcome = outcome

    def close(self) -> None: ...


def simulated(groups: int, partitions: int) -> InMemoryKafka:
    """Make groups with a topic, three members and a slowly growing lag; every offset moves with every poll."""
    kafka = InMemoryKafka()
    for number in range(groups):
        places = [TopicPartition(f"topic-{number}", each) for each in range(partitions)]
        kafka.ends |= dict.fromkeys(places, 1000)
        members = [make_member(*places[each::3], host=f"/10.0.0.{each}") for each in range(3)]
        kafka.put(f"group-{number}", dict.fromkeys(places, 990), *members)
    return kafka


def move(kafka: InMemoryKafka) -> None:
    for place in kafka.ends:
        kafka.ends[place] += 10
    for offsets in kafka.offsets.values():
        for place in offsets:
            offsets[place] += 9


def timed(what: str, work: Callable[[], object]) -> None:
    wall, processor = time.perf_counter(), time.process_time()
    work()
    print(f"{what:58} {time.perf_counter() - wall:7.3f} s  {time.process_time() - processor:7.3f} s of processor")


def pure(groups: int, partitions: int) -> None:
    print(f"{groups} groups of {partitions} partitions, simulated")
    kafka, held, clock = simulated(groups, partitions), Held(), SystemClock()
    watcher = Watcher("bench", kafka, clock, held.send, None)
    for _ in range(POLLS):
        move(kafka)
        watcher.step()
    move(kafka)
    timed("  a poll with full rings: sample, judge", watcher.step)
    assert len(held.outcome.events) == groups
    assert watcher._memory is not None  # noqa: SLF001 (measured part by part)
    memory = watcher._memory  # noqa: SLF001
    timed("  to bytes for the log", lambda: [to_wire(event) for event in held.outcome.events])
    timed("  what survives a restart: to bytes", lambda: dump(memory, "bench", clock.wall_ms()))
    kept = dump(memory, "bench", clock.wall_ms())
    timed("  and back", lambda: load(kept, "bench", clock.wall_ms()))
    size = sum(len(to_wire(event)) for event in held.outcome.events)
    print(f"  {size / groups:.0f} bytes an event, {len(kept)} bytes kept for a restart")
    into_log(held.outcome, kept)


def into_log(outcome: PollOutcome, kept: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory, clock = Path(name), SystemClock()
        lock = data_directory.hold(directory)
        data_directory.prepare(directory, clock, max_bytes=2**30)
        log = SqliteEventLog(directory, clock)
        sink = IntakeSink("bench", Intake(log, clock), log, good_for_ms=300_000)
        timed("  into the log on disk, durable", lambda: sink.send(outcome, lambda: 0))
        timed("  the state for a restart", lambda: log_keeper(log, "bench").remember(kept))
        sink.close()
        log.close()
        lock.close()


def real(cluster: Cluster) -> None:
    held = Held()
    watcher = Watcher("bench", cluster, SystemClock(), held.send, None)
    watcher.step()
    print(f"{len(held.outcome.groups)} groups of a real cluster")
    timed("  a poll, with what the client library needs", watcher.step)
    for _ in range(POLLS):
        watcher.step()
    timed("  a poll with full rings", watcher.step)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--bootstrap")
    arguments = parser.parse_args()
    pure(arguments.groups, arguments.partitions)
    if arguments.bootstrap:
        real(connect(arguments.bootstrap.split(",")))


if __name__ == "__main__":
    main()
