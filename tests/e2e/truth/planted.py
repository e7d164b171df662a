"""Faults that Karrot must find. Each function plants one kind, in ``each`` groups that vary a little.

What comes before the ``yield`` happens before Karrot starts.
"""

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from e2e.truth.members import Member
from e2e.truth.plan import Case, Place, Proof
from e2e.truth.servers import TENANT
from e2e.truth.world import World

Plant = Callable[[World, int], Iterator[None]]
_STANDS_STILL = frozenset({"STOP", "STALL"})
_ERROR = "KarrotConsumerError"
_COMMIT_GAPS_S = (1, 2, 2, 5, 15)


class Group(NamedTuple):
    """A group and its topic of the same name; records arrive on every partition."""

    name: str
    partitions: int
    commit_gap_s: float
    at: float

    def proof(self, statuses: frozenset[str], *words: str, has_owner: bool = False) -> Proof:
        """Return the proof of a fault on every partition."""
        return Proof({(self.name, partition): statuses for partition in range(self.partitions)}, words, has_owner)


def _groups(world: World, kind: str, each: int, *, feeds: bool = True) -> list[Group]:
    """Make groups of one kind, in the order in which their faults are planted."""
    first, last = world.timetable.plants
    times = sorted(world.random.uniform(first, last) for _ in range(each))
    groups = []
    for number, at in enumerate(times):
        partitions = world.random.randint(1, 3)
        group = Group(f"{kind}-{number}", partitions, world.random.choice(_COMMIT_GAPS_S), at)
        world.topic(group.name, partitions)
        if feeds:
            world.feed(group.name, partitions, partitions * world.random.choice((0.5, 1, 1)))
        groups.append(group)
    return groups


def killed(world: World, each: int) -> Iterator[None]:
    """All consumers of a process die at once; records still arrive."""
    groups = _groups(world, "killed", each)
    told = [
        {"client": world.client, "group": group.name, "topics": [group.name], "commit_every_s": group.commit_gap_s}
        for group in groups
    ]
    process = world.broker.servers.start("victims", [sys.executable, "-m", "e2e.truth.victims", json.dumps(told)])
    cases = [
        world.faulty(
            "kill -9 of a consumer",
            group.name,
            group.proof(_STANDS_STILL),
            _ERROR,
            commit_gap_s=group.commit_gap_s,
            note=f"{group.partitions} partitions",
        )
        for group in groups
    ]
    yield
    if groups and world.until(groups[0].at):
        process.kill()
        for case in cases:
            case.planted_at = world.now()


def poisoned(world: World, each: int) -> Iterator[None]:
    """A consumer fails at one record for ever, and goes on with the other partitions."""
    groups = _groups(world, "poisoned", each)
    members, cases, places = [], [], []
    for number, group in enumerate(groups):
        recommits = number % 2 == 0
        gap_s = min(group.commit_gap_s, 5)
        member = Member(world.client, group.name, [group.name], commit_every_s=gap_s, recommits=recommits)
        members.append(member.start())
        place = (group.name, world.random.randrange(group.partitions))
        places.append(place)
        proof = Proof({place: _STANDS_STILL}, has_owner=True)
        note = f"commits the offset {'again and again' if recommits else 'no more'}"
        cases.append(world.faulty("poison record", group.name, proof, _ERROR, commit_gap_s=gap_s, note=note))
    yield
    for group, member, place, case in zip(groups, members, places, cases, strict=True):
        if world.until(group.at):
            member.poison = place
            while member.poisoned_at is None:
                assert not world.stopping.wait(0.2)
            case.planted_at = world.now()


def hung(world: World, each: int) -> Iterator[None]:
    """A consumer's thread hangs; its client's own thread goes on with the heartbeats."""
    groups = _groups(world, "hung", each)
    members = [
        Member(world.client, each.name, [each.name], commit_every_s=each.commit_gap_s).start() for each in groups
    ]
    cases = [
        world.faulty(
            "hung thread",
            group.name,
            group.proof(_STANDS_STILL, has_owner=True),
            _ERROR,
            commit_gap_s=group.commit_gap_s,
            note=f"{group.partitions} partitions, a commit every {group.commit_gap_s:g} s",
        )
        for group in groups
    ]
    yield
    for group, member, case in zip(groups, members, cases, strict=True):
        if world.until(group.at):
            member.hang.set()
            case.planted_at = world.now()


def hot_key(world: World, each: int) -> Iterator[None]:
    """One of two partitions gets ten times what its member can read."""
    groups = _groups(world, "hot", each, feeds=False)
    cases, hot_places = [], []
    for number, group in enumerate(groups):
        if group.partitions < 2:
            world.add_partitions(group.name, 2)
        partitions = max(2, group.partitions)
        world.feed(group.name, partitions, partitions * 0.5)
        for _ in range(partitions):
            Member(world.client, group.name, [group.name], per_second=2, commit_every_s=1).start()
        hot = (group.name, number % partitions)
        hot_places.append(hot)
        proof = Proof({hot: frozenset({"WARN"})}, has_owner=True)
        cases.append(
            world.faulty(
                "hot key", group.name, proof, "KarrotConsumerLagGrowing", commit_gap_s=1, note=f"partition {hot[1]}"
            )
        )
    yield
    for group, (topic, partition), case in zip(groups, hot_places, cases, strict=True):
        if world.until(group.at):
            world.feed(topic, [partition], 20)
            case.planted_at = world.now()


def beyond_end(world: World, each: int) -> Iterator[None]:
    """An offset far past the log end is set, as a restored cluster has it; half of the consumers start again."""
    groups = _groups(world, "beyond", each)
    members = [
        Member(world.client, each.name, [each.name], commit_every_s=each.commit_gap_s).start() for each in groups
    ]
    cases: list[Case] = []
    places: list[Place] = []
    for number, group in enumerate(groups):
        place = (group.name, world.random.randrange(group.partitions))
        places.append(place)
        note = "with a live consumer" if number % 2 else "without members"
        others = {} if number % 2 else group.proof(_STANDS_STILL).places  # they stop with the consumer
        proof = Proof({**others, place: frozenset({"BEYOND_END"})}, ("past the",))
        cases.append(
            world.faulty(
                "committed offset beyond the end",
                group.name,
                proof,
                "KarrotOffsetBeyondEnd",
                commit_gap_s=group.commit_gap_s,
                note=note,
            )
        )
    yield
    for number, (group, member, place, case) in enumerate(zip(groups, members, places, cases, strict=True)):
        if world.until(group.at):
            member.close()
            world.commit(group.name, {place: world.end(*place) + world.random.randint(5_000, 50_000)})
            case.planted_at = world.now()
            if number % 2:
                told = (world.client, group.name, [group.name])
                Member(*told, commit_every_s=group.commit_gap_s, auto_offset_reset="error").start()


def never_commits(world: World, each: int) -> Iterator[None]:
    """A new consumer reads and commits nothing; one of three fails and is started again every few seconds."""
    groups = _groups(world, "silent", each)
    yield
    for number, group in enumerate(groups):
        restarts = number % 3 == 2
        proof = group.proof(frozenset({"NEVER_COMMITTED"}), "never committed", has_owner=not restarts)
        if world.until(group.at):
            note = "starts again and again" if restarts else f"{group.partitions} partitions"
            case = world.faulty("consumer that never commits", group.name, proof, _ERROR, commit_gap_s=0, note=note)
            member = Member(world.client, group.name, [group.name], commit_every_s=None).start()
            while not member.owned:
                assert not world.stopping.wait(0.1)
            case.planted_at = world.now()
            if restarts:
                world.go(f"restarts of {group.name}", partial(_restart, world, group.name, member))


def _restart(world: World, name: str, member: Member) -> None:
    while world.until(world.now() + 8):
        member.close()
        member = Member(world.client, name, [name], commit_every_s=None).start()


def forbidden(world: World, each: int) -> Iterator[None]:
    """A right is taken away: to read the topic, to see it, or to be in the group."""
    groups = _groups(world, "forbidden", each)
    cases = []
    for number, group in enumerate(groups):
        bindings = _rights(group.name)
        for done in world.admin.create_acls(bindings).values():
            done.result(60)
        Member(world.broker.tenant, group.name, [group.name], commit_every_s=group.commit_gap_s).start()
        note = ("no Read on the group", "no Read on the topic", "no right on the topic")[number % 3]
        proof = group.proof(_STANDS_STILL)
        cases.append(
            world.faulty("right taken away", group.name, proof, _ERROR, commit_gap_s=group.commit_gap_s, note=note)
        )
    yield
    for number, (group, case) in enumerate(zip(groups, cases, strict=True)):
        if world.until(group.at):
            on_group, *on_topic = _rights(group.name)
            for right in ((on_group,), on_topic[:1], on_topic)[number % 3]:
                gone = AclBindingFilter(
                    right.restype,
                    right.name,
                    right.resource_pattern_type,
                    right.principal,
                    right.host,
                    right.operation,
                    right.permission_type,
                )
                for done in world.admin.delete_acls([gone]).values():
                    assert len(done.result(60)) == 1
            case.planted_at = world.now()


def _rights(name: str) -> list[AclBinding]:
    """Return the right on the group, and those on the topic: Read first."""
    rights = (
        (ResourceType.GROUP, AclOperation.READ),
        (ResourceType.TOPIC, AclOperation.READ),
        (ResourceType.TOPIC, AclOperation.DESCRIBE),
    )
    return [
        AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{TENANT}", "*", operation, AclPermissionType.ALLOW)
        for kind, operation in rights
    ]


def open_transactions(world: World, each: int) -> Iterator[None]:
    """A producer dies in a transaction that stays open: readers of committed records wait behind it."""
    groups = _groups(world, "open-transaction", each)
    cases, producers, places = [], [], []
    for group in groups:
        Member(world.client, group.name, [group.name], commit_every_s=group.commit_gap_s).start()
        producers.append(world.transactional(group.name))
        place = (group.name, world.random.randrange(group.partitions))
        places.append(place)
        proof = Proof({place: _STANDS_STILL | {"OPEN_TRANSACTION"}}, ("transaction",), has_owner=True)
        cases.append(
            world.faulty(
                "open transaction",
                group.name,
                proof,
                _ERROR,
                commit_gap_s=group.commit_gap_s,
                note=f"partition {place[1]}",
            )
        )
    yield
    for group, producer, (topic, partition), case in zip(groups, producers, places, cases, strict=True):
        if world.until(group.at):
            producer.begin_transaction()
            producer.produce(topic, b"x" * 20, partition=partition)
            producer.flush(60)
            case.planted_at = world.now()
    world.until(world.timetable.end + 3600)  # the producers live as long as this function


def down(world: World, each: int) -> Iterator[None]:
    """A service with a day of history is down before Karrot starts; its topic still gets records."""
    groups = _groups(world, "down", each, feeds=False)
    members = []
    for group in groups:
        at_ms = world.a_day_ago_ms()
        for partition in range(group.partitions):
            world.send(group.name, world.random.randint(20, 60), partition, timestamp=at_ms)
        members.append(Member(world.client, group.name, [group.name], commit_every_s=1).start())
    for group, member in zip(groups, members, strict=True):
        while len(world.committed(group.name)) < group.partitions:
            assert not world.stopping.wait(0.2)
        member.close()
        world.feed(group.name, group.partitions, group.partitions)
        proof = group.proof(_STANDS_STILL)
        case = world.faulty(
            "service with history that is down",
            group.name,
            proof,
            _ERROR,
            commit_gap_s=0,
            note=f"{group.partitions} partitions",
        )
        case.planted_at = 0
    yield


PLANTS: tuple[Plant, ...] = (
    killed,
    poisoned,
    hung,
    hot_key,
    beyond_end,
    never_commits,
    forbidden,
    open_transactions,
    down,
)
