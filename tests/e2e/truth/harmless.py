"""Groups that look odd and lack nothing: no incident and no alert is right.

Each function is a scenario. What comes before its ``yield`` happens before Karrot starts.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress

from confluent_kafka import KafkaException, Producer

from e2e.truth.members import Member
from e2e.truth.plan import ELSEWHERE, NIGHTLY, WINDOW_S
from e2e.truth.world import World

Scenario = Callable[[World], Iterator[None]]
_JOBS = 200


def transactions(world: World) -> Iterator[None]:
    """Readers of committed records: the log ends with a marker, which nobody reads."""
    kind, topics = "transactional topic", []
    for name in ("idle", "wide", "busy"):
        topic = world.topic(f"transactional-{name}", 3 if name == "wide" else 1)
        topics.append(topic)
        Member(world.client, world.harmless(kind, topic), [topic]).start()
    producer = world.transactional("transactions")
    for _ in range(3):
        _transact(producer, {(topics[0], 0), *((topics[1], partition) for partition in range(3))})
    yield
    for _ in world.every(3, 0, world.timetable.end):
        _transact(producer, {(topics[2], 0)})


def aborts(world: World) -> Iterator[None]:
    """The last records of the log are those of a transaction that was aborted."""
    kind = "aborted transaction"
    topics = [world.topic(f"aborted-{name}") for name in ("idle", "late", "busy")]
    for topic in topics:
        Member(world.client, world.harmless(kind, topic), [topic]).start()
    producer = world.transactional("aborts")
    _transact(producer, {(topic, 0) for topic in topics})
    _transact(producer, {(topics[0], 0)}, abort=True)
    yield
    if world.until(world.timetable.plants[0]):
        _transact(producer, {(topics[1], 0)}, abort=True)
    for number, _ in enumerate(world.every(4, world.now(), world.timetable.end)):
        _transact(producer, {(topics[2], 0)}, abort=number % 3 != 0)


def _transact(producer: Producer, places: set[tuple[str, int]], *, abort: bool = False) -> None:
    producer.begin_transaction()
    for topic, partition in places:
        for _ in range(7):
            producer.produce(topic, b"x" * 20, partition=partition)
    producer.flush(60)
    if abort:
        producer.abort_transaction(60)
    else:
        producer.commit_transaction(60)


def compacted(world: World) -> Iterator[None]:
    """A topic loses most of its records to the cleaner, before and while it is read."""
    told = {
        "cleanup_policy": "compact",
        "segment_ms": "4000",
        "min_cleanable_dirty_ratio": "0.01",
        "delete_retention_ms": "100",
    }
    topics = [world.topic(f"compacted-{name}", 1, **told) for name in ("busy", "idle")]

    def write(topic: str, value: bytes | None = b"x" * 20) -> None:
        for number in range(30):
            world.send(topic, 1, key=b"%d" % (number % 3), value=value)

    for topic in topics:
        write(topic)
        Member(world.client, world.harmless("compacted topic", topic), [topic]).start()
    yield
    for number, _ in enumerate(world.every(6, 0, world.timetable.end)):
        write(topics[0], None if number % 4 == 3 else b"x" * 20)
        if number < 10:
            write(topics[1], None if number == 9 else b"x" * 20)


def emptied(world: World) -> Iterator[None]:
    """Retention deletes everything: what was read, and what nobody read while the consumer was stopped."""
    kind = "topic emptied by retention"
    live, late, stopped = (world.topic(f"emptied-{name}") for name in ("live", "late", "stopped"))
    members = {}
    for topic in (live, late, stopped):
        world.send(topic, 100)
        group = world.harmless(kind, topic)
        members[topic] = Member(world.client, group, [topic], commit_every_s=1).start()
    _until_read(world, live, late, stopped)
    for topic in (late, stopped):
        members[topic].close()
        world.send(topic, 400)
        world.purge(topic, 500)
    Member(world.client, late, [late]).start()
    yield
    if world.until(world.timetable.plants[0]):
        world.purge(live, 100)


def _until_read(world: World, *groups: str) -> None:
    """Wait until each group has committed the end of its topic, whose name it has."""
    for group in groups:
        while world.committed(group).get((group, 0)) != world.end(group):
            assert not world.stopping.wait(0.5)


def left(world: World) -> Iterator[None]:
    """A new version of a consumer reads one topic less; records still arrive on the other one."""
    groups = [world.harmless("left topic", f"left-{number}") for number in range(2)]
    members = []
    for group in groups:
        topics = [world.topic(f"{group}-kept"), world.topic(f"{group}-gone", 2)]
        world.feed(topics[0], 1, 1)
        world.feed(topics[1], 2, 1)
        members.append(Member(world.client, group, topics).start())
    yield
    for number, (group, member) in enumerate(zip(groups, members, strict=True)):
        if world.until(world.timetable.plants[0] + 30 * number):
            member.close()
            Member(world.client, group, [f"{group}-kept"]).start()


def created_again(world: World) -> Iterator[None]:
    """A topic is deleted and made again, with fewer partitions, under its reader."""
    topics = [world.topic(f"again-{number}", 3) for number in range(2)]
    feeds = []
    for topic in topics:
        group = world.harmless("deleted and re-created topic", topic)
        for partition in range(3):
            world.send(topic, 100, partition)
        feeds.append(world.feed(topic, 3, 1))
        Member(world.client, group, [topic], topic_metadata_refresh_interval_ms=2000).start()
    yield
    for number, (topic, feed) in enumerate(zip(topics, feeds, strict=True)):
        if world.until(world.timetable.plants[0] + 45 * number):
            feed.per_second = 0
            world.until(world.now() + 3)
            world.delete_topic(topic)
            world.until(world.now() + 5)
            world.topic(topic, 1)
            world.until(world.now() + 5)
            world.feed(topic, 1, 1)


def widened(world: World) -> Iterator[None]:
    """A topic gets partitions while it is read."""
    topics = [world.topic(f"widened-{number}", number + 1) for number in range(2)]
    for topic in topics:
        group = world.harmless("partitions added", topic)
        world.feed(topic, 1, 1)
        Member(world.client, group, [topic], topic_metadata_refresh_interval_ms=5000).start()
    yield
    for number, topic in enumerate(topics):
        if world.until(world.timetable.plants[0] + 40 * number):
            world.add_partitions(topic, 4)
            world.until(world.now() + 3)
            world.feed(topic, range(1, 4), 1)


def seldom(world: World) -> Iterator[None]:
    """Commits come every window and a half: a member of a group, and one that chose its partitions itself."""
    rhythm = 1.5 * WINDOW_S
    for number in range(4):
        topic = world.topic(f"seldom-{number}", 2)
        group = world.harmless("commits every window and a half", topic)
        world.feed(topic, 2, 1)
        assigned = [(topic, partition) for partition in range(2)] if number % 2 else None
        Member(world.client, group, [topic], commit_every_s=rhythm, assigned=assigned).start()
    yield


def paused(world: World) -> Iterator[None]:
    """A consumer pauses: for good, while nothing arrives; and for less than a window again and again."""
    quiet, short = (world.topic(f"paused-{name}") for name in ("quiet", "short"))
    members = []
    for topic in (quiet, short):
        world.send(topic, 20)
        members.append(
            Member(world.client, world.harmless("paused consumer", topic), [topic], commit_every_s=1).start()
        )
    world.feed(short, 1, 1)
    _until_read(world, quiet)
    members[0].pauses = True
    yield
    for _ in world.every(60, 60, world.timetable.end):
        members[1].pauses = True
        world.until(world.now() + 0.4 * WINDOW_S)
        members[1].pauses = False


def idle_at_latest(world: World) -> Iterator[None]:
    """A consumer waits for the first new record, and has nothing to commit."""
    for number in range(3):
        topic = world.topic(f"latest-{number}", number + 1)
        for partition in range(number + 1):
            world.send(topic, 50, partition)
        group = world.harmless("idle consumer at latest", topic)
        Member(world.client, group, [topic], auto_offset_reset="latest").start()
    yield


def elsewhere(world: World) -> Iterator[None]:
    """A consumer keeps its offsets in a database of its own, and the settings say so."""
    for number in range(2):
        topic = world.topic(f"{ELSEWHERE}{number}", 2)
        group = world.harmless("offsets kept elsewhere", topic)
        world.feed(topic, 2, 1)
        Member(world.client, group, [topic], commit_every_s=None).start()
    yield


def static_members(world: World) -> Iterator[None]:
    """Members with names of their own restart one after the other, within their session.

    The session is shorter than the window, as with the defaults of Kafka and of Karrot: 45 s and 100 s.
    """
    topic = world.topic("static", 3)
    group = world.harmless("static members restarted", topic)
    world.feed(topic, 3, 2)

    def pod(number: int) -> Member:
        return Member(
            world.client, group, [topic], group_instance_id=f"pod-{number}", session_timeout_ms=15_000
        ).start()

    members = [pod(number) for number in range(3)]
    yield
    for number, _ in enumerate(world.every(30, 60, world.timetable.end - 60)):
        members[number % 3].close()
        members[number % 3] = pod(number % 3)


def deploys(world: World) -> Iterator[None]:
    """Five times, each of three members is replaced: a new one starts, then an old one leaves."""
    topics = [world.topic(f"deployed-{number}", 3) for number in range(2)]
    members = {}
    for topic in topics:
        world.feed(topic, 3, 2)
        world.harmless("five rolling deploys", topic)
        members[topic] = [Member(world.client, topic, [topic]).start() for _ in range(3)]
    yield
    pace = (world.timetable.kill - 90) / 5
    for _ in world.every(pace, 45, 45 + 4.5 * pace):
        for pod in range(3):
            for topic in topics:
                new = Member(world.client, topic, [topic]).start()
                world.until(world.now() + 2)
                members[topic].pop(0).close()
                members[topic].append(new)
            world.until(world.now() + 3 * (pod < 2))


def jobs(world: World) -> Iterator[None]:
    """Jobs have a group each, and end: with all read, or with ten records left. Some groups are deleted later."""
    done, live = world.topic("jobs-done"), world.topic("jobs-live")
    kind = "finished job groups"
    world.send(done, 100)
    before = [world.harmless(kind, f"{NIGHTLY}{number}") for number in range(_JOBS // 2)]
    for number, group in enumerate(before):
        _job(world, group, done, left=10 * (number % 2))
    world.feed(live, 1, 1)
    yield
    during, first = [f"job-{number}" for number in range(_JOBS // 2)], 75
    pace = (min(world.timetable.kill - 120, 420) - first) / len(during)
    for number, (group, _) in enumerate(zip(during, world.every(pace, first, world.timetable.end), strict=False)):
        _job(world, world.harmless(kind, group), live, left=10 * (number % 2))
    for group in [*before[::4], *during[::4]]:
        world.admin.delete_consumer_groups([group])[group].result(60)


def _job(world: World, group: str, topic: str, *, left: int) -> None:
    """Read to the end, or almost; commit and leave. Every tenth job is a member of its group."""
    if group.endswith("0"):
        member = Member(world.client, group, [topic], commit_every_s=1).start()
        while not member.read:
            assert not world.stopping.wait(0.2)
        member.close()
    world.commit(group, {(topic, 0): max(0, world.end(topic) - left)})


def mirrored(world: World) -> Iterator[None]:
    """Offsets are copied from another cluster every 12 s, and only multiples of 64: the group has no members."""
    topics = [world.topic(f"mirrored-{number}") for number in range(2)]
    for topic in topics:
        world.send(topic, 200)
        world.feed(topic, 1, 5)
        world.harmless("offsets that jump, as MirrorMaker sets them", topic)
        world.commit(topic, {(topic, 0): 128})
    yield
    for _ in world.every(12, 0, world.timetable.end, always=True):
        for topic in topics:
            with suppress(KafkaException, TimeoutError):  # the broker is down: it tries again
                offset = (world.end(topic, within_s=5) - 30) // 64 * 64
                world.commit(topic, {(topic, 0): offset}, within_s=5)


def broker_killed(world: World) -> Iterator[None]:
    """The only broker dies for 20 s under healthy consumers, and under all other groups of this run."""
    for number in range(4):
        topic = world.topic(f"healthy-{number}", number + 1)
        world.feed(topic, number + 1, 2)
        Member(world.client, world.harmless("broker killed for 20 s", topic), [topic]).start()
    yield


SCENARIOS: tuple[Scenario, ...] = (
    transactions,
    aborts,
    compacted,
    emptied,
    left,
    created_again,
    widened,
    seldom,
    paused,
    idle_at_latest,
    elsewhere,
    static_members,
    deploys,
    jobs,
    mirrored,
    broker_killed,
)
