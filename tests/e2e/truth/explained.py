"""Faults whose cause `karrot explain` must name: eleven kinds, side by side with each other.

Each function plants one kind in ``each`` groups. What comes before its ``yield`` happens before Karrot starts.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
from confluent_kafka import Producer

from e2e.truth.members import Member
from e2e.truth.plan import CLUSTER
from e2e.truth.world import World
from karrot.clock import SystemClock
from karrot.diagnosis.known_facts import gather
from karrot.event import GroupKey
from support.eventlog.sqlite_log import open_sqlite
from support.service.karrot_service import Service

Plant = Callable[[World, int], Iterator[None]]
_SILENT = frozenset({"none", "not_known"})


@dataclass
class Asked:
    """A group whose cause is asked again and again, until the answer at ``after_s`` after the fault counts.

    ``also`` are causes that are true as well, before this time.
    """

    kind: str
    group: str
    cause: str
    after_s: float = 100
    also: frozenset[str] = frozenset()
    planted_at: float | None = None
    answers: list[tuple[float, str]] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)
    is_done: bool = False

    @property
    def is_right(self) -> bool:
        return self.is_done and self.last.get("cause") == self.cause

    @property
    def wrong(self) -> set[str]:
        """The wrong causes that were named at any time. The fault can be seen before its time is noted."""
        return {cause for _, cause in self.answers} - self.also - _SILENT - {self.cause}


def _groups(world: World, cause: str, each: int, *, after_s: float = 100, also: str = "", **feeds: Any) -> list[Asked]:
    """Make groups and their topics of the same name, with 2 or 3 partitions; records arrive on all."""
    found = []
    for number in range(each):
        partitions = feeds.get("partitions", 2 + number % 2)
        name = f"explain-{cause.replace('_', '-')}-{number}"
        world.topic(name, partitions)
        if per_second := feeds.get("per_second", 1):
            world.feed(name, partitions, partitions * per_second)
        asked = Asked(cause, name, cause, after_s, frozenset(also.split()))
        world.asked.append(asked)
        found.append(asked)
    return found


def _times(world: World, groups: list[Asked]) -> Iterator[tuple[int, Asked]]:
    """Wait for the time of each fault, and yield the group."""
    first, last = world.timetable.plants
    pace = (last - first) / max(1, len(groups))
    for number, asked in enumerate(groups):
        if world.until(first + pace * number):
            asked.planted_at = world.now()
            yield number, asked


def poison_record(world: World, each: int) -> Iterator[None]:
    """A consumer fails at one record for ever, and goes on with its other partitions."""
    groups = _groups(world, "poison_record", each)
    members = []
    for number, one in enumerate(groups):
        # Without a pause after each try, the client of this process falls behind on its other partitions too.
        told: dict[str, Any] = {"commit_every_s": 1 + number % 3, "recommits": number % 2 == 0, "backs_off": True}
        member = Member(world.client, one.group, [one.group], **told)
        members.append(member.start())
    yield
    for number, one in _times(world, groups):
        members[number].poison = (one.group, number % 2)


def dead_pod(world: World, each: int) -> Iterator[None]:
    """All consumers of a process die at once."""
    groups = _groups(world, "no_members", each)
    told = [{"client": world.client, "group": one.group, "topics": [one.group]} for one in groups]
    process = world.broker.servers.start("explained", [sys.executable, "-m", "e2e.truth.victims", json.dumps(told)])
    yield
    for number, _one in _times(world, groups):
        if number == 0:
            process.kill()
            for other in groups:
                other.planted_at = world.now()


def hung_thread(world: World, each: int) -> Iterator[None]:
    """A consumer's thread hangs, and its heartbeats go on."""
    groups, members = _groups(world, "hung_consumer", each), []
    for number, one in enumerate(groups):
        members.append(Member(world.client, one.group, [one.group], commit_every_s=1 + number % 3).start())
    yield
    for number, _one in _times(world, groups):
        members[number].hang.set()


def _members(world: World, one: Asked, per_second: float, partitions: int) -> list[Member]:
    return [
        Member(world.client, one.group, [one.group], per_second=per_second, commit_every_s=1, client_id=f"pod-{pod}")
        for pod in range(partitions)
    ]


def _start(world: World, groups: list[Asked], per_second: float) -> list[list[Member]]:
    """Start a member for each partition."""
    found = []
    for number, one in enumerate(groups):
        found.append([member.start() for member in _members(world, one, per_second, 2 + number % 2)])
    return found


def hot_key(world: World, each: int) -> Iterator[None]:
    """One partition gets ten times what its member can read."""
    groups = _groups(world, "hot_key", each, per_second=0.5)
    _start(world, groups, 2)
    yield
    for number, one in _times(world, groups):
        world.feed(one.group, [number % 2], 20)


def slow_sink(world: World, each: int) -> Iterator[None]:
    """All members wait for the same slow system."""
    groups = _groups(world, "slow_consumer", each, per_second=4)
    members = _start(world, groups, 20)
    yield
    for number, _one in _times(world, groups):
        for member in members[number]:
            member.per_second = 1


def producer_burst(world: World, each: int) -> Iterator[None]:
    """Five times as many records arrive as before, more than the members can read."""
    groups = _groups(world, "producer_burst", each, per_second=2)
    _start(world, groups, 4)
    yield
    for number, one in _times(world, groups):
        world.feed(one.group, 2 + number % 2, (2 + number % 2) * 8)


def rebalance_storm(world: World, each: int) -> Iterator[None]:
    """One of two members restarts again and again."""
    groups = _groups(world, "rebalance_storm", each)
    members = [[Member(world.client, one.group, [one.group]).start() for _ in range(2)] for one in groups]
    yield

    def restart(one: Asked, member: Member) -> None:
        while world.until(world.now() + 4):
            member.close()
            member = Member(world.client, one.group, [one.group]).start()

    for number, one in _times(world, groups):
        world.go(f"restarts of {one.group}", partial(restart, one, members[number][1]))


def reset_offsets(world: World, each: int) -> Iterator[None]:
    """Somebody sets the offsets back while the group is stopped, and starts it again."""
    groups = _groups(world, "offsets_reset", each)
    members = []
    for number, one in enumerate(groups):
        for partition in range(2 + number % 2):
            world.send(one.group, 800, partition)
        members.append(Member(world.client, one.group, [one.group], commit_every_s=1).start())
    yield
    for number, one in _times(world, groups):
        members[number].close()
        world.commit(one.group, {(one.group, partition): 0 for partition in range(2 + number % 2)})
        Member(world.client, one.group, [one.group], commit_every_s=1, per_second=4).start()


def recreated_topic(world: World, each: int) -> Iterator[None]:
    """Somebody deletes a topic and makes it again, with more records than before."""
    groups, members = _groups(world, "topic_recreated", each, per_second=0), []
    for number, one in enumerate(groups):
        for partition in range(2 + number % 2):
            world.send(one.group, 300, partition)
        members.append(Member(world.client, one.group, [one.group], commit_every_s=1).start())
    yield
    for number, one in _times(world, groups):
        members[number].close()
        world.delete_topic(one.group)
        world.topic(one.group, 2 + number % 2)
        producer = Producer(world.client)  # the old one still knows that the topic is gone
        for record in range(800 * (2 + number % 2)):
            producer.produce(one.group, b"x" * 20, partition=record // 800)
        assert producer.flush(60) == 0
        Member(world.client, one.group, [one.group], commit_every_s=1, per_second=2).start()


def left_topic(world: World, each: int) -> Iterator[None]:
    """A new version of a consumer reads one topic less."""
    groups = _groups(world, "left_topic", each)
    members = []
    for one in groups:
        world.topic(f"{one.group}-gone", 2)
        world.feed(f"{one.group}-gone", 2, 1)
        members.append(Member(world.client, one.group, [one.group, f"{one.group}-gone"]).start())
    yield
    for number, one in _times(world, groups):
        members[number].close()
        Member(world.client, one.group, [one.group]).start()


def retention_near(world: World, each: int) -> Iterator[None]:
    """Retention follows a group at the pace of the producers, and the group becomes slow."""
    groups = _groups(world, "retention_near", each, after_s=120, also="slow_consumer", per_second=5, partitions=1)
    members = []
    for one in groups:
        world.send(one.group, 500)
        members.append(Member(world.client, one.group, [one.group], commit_every_s=1).start())
    yield
    world.go("retention", partial(_purge, world, groups))
    for number, _one in _times(world, groups):
        members[number].per_second = 1


def _purge(world: World, groups: list[Asked]) -> None:
    """Delete what is older than the newest 500 records of a topic, but no record that the group has not read."""
    for _ in world.every(5, world.now(), world.timetable.end):
        for one in groups:
            read = world.committed(one.group).get((one.group, 0), 0)
            before = min(world.end(one.group) - 400, read - 40)
            if before > 0:
                world.purge(one.group, before)


PLANTS: tuple[Plant, ...] = (
    poison_record,
    dead_pod,
    hung_thread,
    hot_key,
    slow_sink,
    rebalance_storm,
    reset_offsets,
    recreated_topic,
    left_topic,
    retention_near,
    producer_burst,
)


class Asker:
    """Asks for the cause of each group with a fault every few seconds. Keeps the inputs of the answer that counts."""

    def __init__(self, world: World, service: Service, out: Path) -> None:
        self._world, self._service, self._out = world, service, out

    def run(self) -> None:
        self._out.mkdir(parents=True, exist_ok=True)
        for _ in self._world.every(8, 60, self._world.timetable.end, always=True):
            for one in self._world.asked:
                if not one.is_done and one.planted_at is not None:
                    with suppress(OSError, HTTPException, ValueError, KeyError):
                        self._ask(one)

    def _ask(self, one: Asked) -> None:
        query = urlencode({"cluster": CLUSTER, "consumer": one.group})
        took_s = self._world.now() - (one.planted_at or 0)
        one.last = self._service.get(f"/api/v1/explain?{query}").json
        one.answers.append((round(took_s, 1), one.last["cause"]))
        if took_s >= one.after_s:
            one.is_done = True
            log = open_sqlite(self._service.directory, SystemClock(), prepare=False)
            try:
                state = log.group(GroupKey(CLUSTER, one.group))
                if state is not None:
                    known = {"cause": one.cause, "known": gather(log, state)}
                    (self._out / f"{one.group}.json").write_bytes(msgspec.json.format(msgspec.json.encode(known)))
            finally:
                log.close()
            sys.stdout.write(f"{self._world.now():.0f} s: {one.group}: {one.last['cause']}: {one.last['sentence']}\n")
            sys.stdout.flush()


def report(asked: list[Asked]) -> str:
    """Return a table of the kinds, a line for each group without the right cause, and the last line."""
    kinds: dict[str, list[Asked]] = defaultdict(list)
    for one in asked:
        kinds[one.kind].append(one)
    lines = [
        "| explained | groups | right cause | not known | a wrong cause at any time |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for kind, rows in kinds.items():
        silent = sum(one.last.get("cause") in _SILENT for one in rows)
        counts = len(rows), sum(one.is_right for one in rows), silent, sum(bool(one.wrong) for one in rows)
        lines.append(f"| {kind} | {' | '.join(map(str, counts))} |")
    lines += [
        f"- {one.group}: {one.answers}: {one.last.get('sentence')} {one.last.get('evidence')}"
        for one in asked
        if not one.is_right or one.wrong
    ]
    return "\n".join([*lines, "", last_line(asked), ""])


def last_line(asked: list[Asked]) -> str:
    right, wrong = sum(one.is_right for one in asked), sum(bool(one.wrong) for one in asked)
    return f"explain: right {right} of {len(asked)}, wrong {wrong}"


def is_enough(asked: list[Asked]) -> bool:
    """Return whether the right cause came first in 96 % of the groups, and a wrong one in none."""
    return sum(one.is_right for one in asked) >= 0.96 * len(asked) and not any(one.wrong for one in asked)
