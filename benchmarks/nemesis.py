"""Breaks two replicas and their PostgreSQL at random, often two things at once, and then counts every event.

PYTHONPATH=tests python benchmarks/nemesis.py [--schedules 40] [--seed 1] [--seconds 20] [--rate 60] [--control]

Each schedule has a seed, with two new replicas behind HAProxy, a new PostgreSQL with a synchronous standby, and a new
archive in a simulated S3. A seed always breaks the same things in the same order: ``--seed 7 --schedules 1``. At the
end, all is repaired. Then both replicas must become ready and end with 0, and `FoundEvents` compares the events: none
that was acknowledged may be missing, each must be reported and be archived once, and no two may have the same id.

With ``--control``, the standby is asynchronous, cut off, and then promoted: every schedule must find lost events.
Only root can mount the small volumes of the servers. Without root, no disk becomes full. The exit code is 1 if a
promise was broken (with ``--control``, if no loss was found).
"""

import argparse
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Self

import boto3
import psycopg
from harness.posting_process import PostingProcess

from karrot.clock import SystemClock
from karrot.eventlog.base import StoredEvent
from support.eventlog.postgres_log import open_postgres
from support.eventlog.postgres_server import DATABASE, PostgresServer, postgres_home, running_postgres
from support.eventlog.postgres_standby import streaming_standby
from support.pipeline.mirrored_tables import aws_environment, moto_server
from support.reporters.archive_folder import segment_lines
from support.servers.faulty_proxy import FaultyProxy, faulty_proxy
from support.servers.haproxy import running_haproxy
from support.service import shifted_clock
from support.service.found_events import Found, FoundEvents, printed_events
from support.service.karrot_service import Service
from support.service.postgres_service import PostgresService
from support.service.small_volume import small_volume
from support.waiting import wait_for

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

SCHEMA = "karrot"
BUCKET = "nemesis"
VOLUME_BYTES = 384 << 20
SMALL_WAL = {"min_wal_size": "32MB", "max_wal_size": "64MB"}
JUMPS_S = (-315_360_000, -86_400, -3_600, 3_600, 86_400, 315_360_000)
REPAIRED_S = 90.0
TRANSIENT_EXITS = {os.EX_TEMPFAIL}
"""A start without the database ends with this code. A supervisor, such as systemd, then starts Karrot again."""


class Replica(PostgresService):
    """A replica with a clock and networks of its own. It is started again whenever it ends, as by systemd."""

    program = (shifted_clock.__file__,)

    def __init__(self, directory: Path, server: PostgresServer, networks: list[FaultyProxy], archive: str) -> None:
        hosts = ",".join(f"127.0.0.1:{network.port}" for network in networks)
        super().__init__(
            directory, server, SCHEMA, url=f"postgresql://karrot@{hosts}/karrot?schema={SCHEMA}",
            reporters="prometheus,stdout,archive", archive_dir=archive, archive_segment_seconds="2",
            max_log_bytes="16GiB",
        )  # fmt: skip
        self.networks = networks
        self.exits: list[int] = []
        self.must_run = threading.Event()
        self._shift = directory / "shift"
        self.environment = {"SHIFTED_CLOCK": str(self._shift)}
        self.jump(0)
        self._over = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise)

    def __enter__(self) -> Self:
        super().__enter__()
        self.must_run.set()
        self._supervisor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()
        self.kill()

    def leave(self) -> None:
        """End the supervision."""
        self._over.set()
        self._supervisor.join()

    def jump(self, seconds: int) -> None:
        """Set the clock. The file is replaced, because Karrot reads it at any moment."""
        new = self._shift.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self._shift)

    def _supervise(self) -> None:
        while not self._over.wait(0.2):
            if self.must_run.is_set() and self.process is not None and (code := self.process.poll()) is not None:
                self.exits.append(code)
                self.start(wait=False)


class Servers:
    """A primary and a standby. Each server has one of two ports, and its own volume if this is allowed."""

    def __init__(self, place: Path, *, synchronous: bool) -> None:
        self._place = place
        self._volumes = 0
        self._synchronous = synchronous
        self._opened = {True: ExitStack(), False: ExitStack()}
        """The contexts of the primary (true) and of the standby."""

    def __enter__(self) -> Self:
        self.primary = self._opened[True].enter_context(running_postgres(open_home=self._home, **SMALL_WAL))
        self.build_standby()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._opened.values():
            each.close()

    def build_standby(self, port: int | None = None) -> None:
        self.network = self._opened[False].enter_context(faulty_proxy(self.primary.port))
        self.standby = self._opened[False].enter_context(
            streaming_standby(
                self.primary, synchronous=self._synchronous, port=self.network.port, own_port=port,
                open_home=self._home,
            )
        )  # fmt: skip

    def wait_for_standby(self) -> None:
        """Wait until the standby has all that was committed before."""
        with self.primary.connect() as connection:
            row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
            assert row is not None
            sql = "SELECT bool_or(flush_lsn >= %s::pg_lsn AND sync_state = 'sync') FROM pg_stat_replication"
            wait_for(lambda: connection.execute(sql, row).fetchone() == (True,), REPAIRED_S)

    def promote(self) -> None:
        """Kill the primary, and promote the standby. There is no standby then."""
        self.primary.kill()
        self.standby.promote()
        self._opened = {True: self._opened[False], False: self._opened[True]}
        self._opened[False].close()
        self._opened[False] = ExitStack()
        self.primary, self.standby = self.standby, self.primary

    @contextmanager
    def _home(self) -> Iterator[Path]:
        if os.geteuid() != 0:
            with postgres_home() as home:
                yield home
            return
        self._volumes += 1
        with small_volume(self._place / f"volume-{self._volumes}", VOLUME_BYTES) as volume:
            yield volume


class World:
    """Everything that a schedule can break."""

    def __init__(self, opened: ExitStack, place: Path, archive: str, *, synchronous: bool) -> None:
        self.servers = opened.enter_context(Servers(place, synchronous=synchronous))
        ports = [self.servers.primary.port, self.servers.standby.port]
        self.replicas: list[Replica] = []
        for number in range(2):
            networks = [opened.enter_context(faulty_proxy(port)) for port in ports]
            replica = Replica(place / f"replica-{number}", self.servers.primary, networks, archive)
            self.replicas.append(opened.enter_context(replica))
        self.proxy = opened.enter_context(running_haproxy([each.port for each in self.replicas], place))


Fault = Callable[[World, Random], AbstractContextManager[object]]
"""Breaks something until the end of the block."""


@contextmanager
def killed_replica(world: World, _random: Random, *, number: int) -> Iterator[None]:
    replica = world.replicas[number]
    replica.must_run.clear()
    replica.kill()
    yield
    replica.start(wait=False)
    replica.must_run.set()


@contextmanager
def killed_worker(world: World, _random: Random, *, number: int) -> Iterator[None]:
    with suppress(ProcessLookupError, FileNotFoundError):  # the replica may just have ended
        for pid in world.replicas[number].workers():
            os.kill(pid, signal.SIGKILL)
    yield


@contextmanager
def frozen_replica(world: World, random: Random, *, number: int) -> Iterator[None]:
    replica = world.replicas[number]
    with suppress(ProcessLookupError):
        replica.freeze()
        time.sleep(random.choice((0, 0, 10)))  # after 10 s, another replica leads
    yield
    with suppress(ProcessLookupError):
        replica.thaw()


@contextmanager
def jumped_clock(world: World, random: Random, *, number: int) -> Iterator[None]:
    seconds = random.choice(JUMPS_S)
    print(f"         by {seconds} s", flush=True)
    world.replicas[number].jump(seconds)
    yield
    world.replicas[number].jump(0)


@contextmanager
def cut_network(world: World, _random: Random, *, number: int) -> Iterator[None]:
    for network in world.replicas[number].networks:
        network.cut()
    yield


@contextmanager
def slow_network(world: World, random: Random, *, number: int) -> Iterator[None]:
    delay_s = random.choice((0.02, 0.2, 0.8))
    for network in world.replicas[number].networks:
        network.delay_s = delay_s
    yield
    for network in world.replicas[number].networks:
        network.delay_s = 0.0


@contextmanager
def lost_packets(world: World, random: Random, *, number: int) -> Iterator[None]:
    for network in world.replicas[number].networks:
        network.swallows = True
    time.sleep(random.choice((0, 0, 10)))
    yield
    for network in world.replicas[number].networks:
        network.swallows = False


@contextmanager
def killed_database(world: World, _random: Random) -> Iterator[None]:
    world.servers.primary.kill()
    yield
    world.servers.primary.start()


@contextmanager
def frozen_database(world: World, _random: Random) -> Iterator[None]:
    world.servers.primary.freeze()
    yield
    world.servers.primary.thaw()


@contextmanager
def killed_standby(world: World, _random: Random) -> Iterator[None]:
    world.servers.standby.kill()
    yield
    world.servers.standby.start()


@contextmanager
def silent_standby(world: World, _random: Random) -> Iterator[None]:
    world.servers.network.swallows = True
    yield
    world.servers.network.swallows = False


@contextmanager
def promoted_standby(world: World, random: Random) -> Iterator[None]:
    servers = world.servers
    servers.wait_for_standby()
    if random.random() < 0.5:  # a server that hangs is replaced
        servers.primary.freeze()
        time.sleep(random.uniform(0, 2))
    servers.promote()
    yield
    servers.build_standby(servers.standby.port)


@contextmanager
def full_disk(world: World, _random: Random) -> Iterator[None]:
    filler = world.servers.primary.home / "filler"
    over = threading.Event()

    def fill() -> None:
        with filler.open("ab", buffering=0) as file:
            while not over.wait(0.05):  # PostgreSQL frees some space again
                with suppress(OSError):
                    while not over.is_set():
                        file.write(bytes(1 << 16))

    filling = threading.Thread(target=fill)
    filling.start()
    yield
    over.set()
    filling.join()
    filler.unlink()
    if world.servers.primary.process is not None and world.servers.primary.process.poll() is not None:
        world.servers.primary.start()  # it ends itself if it cannot write its log


REPLICA_FAULTS = (killed_replica, killed_worker, frozen_replica)
NETWORK_FAULTS = (cut_network, slow_network, lost_packets)
DATABASE_FAULTS = (killed_database, frozen_database, killed_standby, silent_standby, promoted_standby, full_disk)


def faults_by_place() -> Mapping[str, list[Fault]]:
    """The faults at each place. A place is broken once at a time."""
    found: dict[str, list[Fault]] = {}
    for number in range(2):
        found[f"replica {number}"] = [partial(each, number=number) for each in REPLICA_FAULTS]
        found[f"network {number}"] = [partial(each, number=number) for each in NETWORK_FAULTS]
        found[f"clock {number}"] = [partial(jumped_clock, number=number)]
    database: list[Fault] = [each for each in DATABASE_FAULTS if each is not full_disk or os.geteuid() == 0]
    return found | {"database": database}


def break_things(world: World, random: Random, seconds: float, load: PostingProcess) -> int:
    """Break one or two things at a time, until the time is over. Return the number of faults."""
    began, count = time.monotonic(), 0
    faults = faults_by_place()
    while time.monotonic() - began < seconds:
        places = random.sample(list(faults), random.choice((1, 2, 2)), counts=[1, 1, 1, 1, 1, 1, 3])
        chosen = [(place, random.choice(faults[place])) for place in dict.fromkeys(places)]
        shown = " and ".join(f"{_name(fault)} ({place})" for place, fault in chosen)
        print(f"  {time.monotonic() - began:5.1f} s: {shown}", flush=True)
        count += len(chosen)
        with ExitStack() as broken:
            for _, fault in chosen:
                broken.enter_context(fault(world, random))
                time.sleep(random.uniform(0, 1))
            time.sleep(random.uniform(0.2, 4))
        if random.random() < 0.5:
            accepted = load.tallies.accepted
            wait_for(lambda: load.tallies.accepted > accepted, REPAIRED_S)  # noqa: B023 - it is called at once
    return count


def _name(fault: Fault) -> str:
    made = fault.func if isinstance(fault, partial) else fault
    return str(made.__name__).replace("_", " ")


def lose_events(world: World, load: PostingProcess) -> None:
    """Promote a standby that lacks acknowledged events."""
    world.servers.network.swallows = True
    accepted = load.tallies.accepted
    wait_for(lambda: load.tallies.accepted > accepted + 50)
    world.servers.promote()


def repaired(world: World, load: PostingProcess) -> Iterator[str]:
    """Wait until everything works again, and stop it; yield what does not."""
    for number, replica in enumerate(world.replicas):
        began = time.monotonic()
        if not _within(REPAIRED_S, partial(_is_ready, replica)):
            yield f"replica {number} is not ready {REPAIRED_S:g} s after the last repair"
        print(f"  replica {number} is ready after {time.monotonic() - began:.1f} s; its own ends: {replica.exits}")
        if other := set(replica.exits) - TRANSIENT_EXITS:
            yield f"replica {number} ended by itself with {other}"
    load.__exit__(None, None, None)
    if not _within(REPAIRED_S, partial(_is_drained, world.servers.primary)):
        yield f"the reporters have a backlog {REPAIRED_S:g} s after the last event: {_cursors(world.servers.primary)}"
    for number, replica in enumerate(world.replicas):
        replica.leave()
        if code := replica.stop(30):
            yield f"replica {number} ended with {code} after SIGTERM"


def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    try:
        wait_for(condition, seconds, every_s=0.2)
    except AssertionError:
        return False
    return True


def _is_ready(replica: Service) -> bool:
    return replica.process is not None and replica.process.poll() is None and replica.ready()


def _cursors(server: PostgresServer) -> dict[object, object]:
    with server.connect(DATABASE) as connection:
        rows = connection.execute(
            f"SELECT name, seq FROM {SCHEMA}.reporters UNION ALL SELECT 'log', last_seq FROM {SCHEMA}.log"
        ).fetchall()
        return {row[0]: row[1] for row in rows}


def _is_drained(server: PostgresServer) -> bool:
    with suppress(psycopg.Error):
        found = _cursors(server)
        return all(found.get(name) == found["log"] for name in ("stdout", "archive"))
    return False


def found_events(world: World, load: PostingProcess, s3: "S3Client", prefix: str) -> FoundEvents:
    """Read the events at each place."""
    log: list[Found] = []
    with open_postgres(world.servers.primary, SCHEMA, SystemClock(), max_bytes=1 << 40) as opened:
        after = 0
        while page := opened.read(after):
            log += [Found(each.event_id, each.event.consumer) for each in page if isinstance(each, StoredEvent)]
            after = page[-1].seq
    archived: list[Found] = []
    for objects in s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{prefix}/day="):
        for each in objects.get("Contents", []):
            segment = s3.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read()
            archived += [Found(line.event_id, line.consumer) for line in segment_lines(segment)]
    reported = [event for replica in world.replicas for event in printed_events(replica.said)]
    return FoundEvents(load.acknowledged(), log, reported, archived)


def schedule(seed: int, asked: argparse.Namespace, place: Path, s3: "S3Client", totals: Counter[str]) -> Iterator[str]:
    """Run one schedule; yield each broken promise. Adds what was counted to ``totals``."""
    random = Random(seed)
    prefix = f"schedule-{seed}"
    notes = place / "acknowledged"
    notes.mkdir(parents=True)
    with ExitStack() as opened:
        world = World(opened, place, f"s3://{BUCKET}/{prefix}", synchronous=not asked.control)
        load = opened.enter_context(PostingProcess(world.proxy.port, directory=notes, threads=8, rate=asked.rate))
        wait_for(lambda: load.tallies.accepted > 20)
        if asked.control:
            lose_events(world, load)
        else:
            totals["faults"] += break_things(world, random, asked.seconds, load)
        yield from repaired(world, load)
        found = found_events(world, load, s3, prefix)
        counted = Counter(found.counts() | load.tallies._asdict())
        print(f"  {shown(counted)}", flush=True)
        totals.update(counted)
        yield from found.broken_promises()


def shown(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counted.items())


def run(asked: argparse.Namespace, place: Path) -> Mapping[int, list[str]]:
    """Run all schedules. Return the broken promises by seed."""
    broken: dict[int, list[str]] = {}
    totals = Counter[str]()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # moto's server, one line for each request
    place.chmod(0o755)  # the user of PostgreSQL must reach its volume
    with moto_server() as address:
        os.environ.update(aws_environment(address))
        with closing(boto3.client("s3", endpoint_url=address, region_name="us-east-1")) as s3:
            s3.create_bucket(Bucket=BUCKET)
            for seed in range(asked.seed, asked.seed + asked.schedules):
                began = time.monotonic()
                print(f"seed {seed}", flush=True)
                own = place / str(seed)
                own.mkdir()
                broken[seed] = []
                try:
                    broken[seed].extend(schedule(seed, asked, own, s3, totals))
                except AssertionError as error:  # of `wait_for`, or of a server that ended
                    broken[seed].append(f"the schedule cannot go on: {error}")
                    traceback.print_exc()
                for promise in broken[seed]:
                    print(f"  BROKEN: {promise}")
                print(f"  {time.monotonic() - began:.0f} s", flush=True)
    print(f"all together: {shown(totals)}")
    return broken


def parsed() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1, help="of the first schedule")
    parser.add_argument("--seconds", type=float, default=20, help="of faults in each schedule")
    parser.add_argument("--rate", type=float, default=60, help="events per second")
    parser.add_argument("--control", action="store_true", help="lose events on purpose")
    parser.add_argument("--keep", type=Path, help="a folder for the files of the schedules")
    return parser.parse_args()


def main() -> int:
    """Run what was asked for, and return the exit code."""
    asked = parsed()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that every server ends, and every volume is unmounted
    with tempfile.TemporaryDirectory(prefix="karrot-nemesis-") as scratch:
        broken = run(asked, asked.keep or Path(scratch))
    failed = [seed for seed, promises in broken.items() if promises]
    print(f"{len(broken)} schedules, {len(failed)} of them broke a promise: seeds {failed}")
    if asked.control:
        return 0 if len(failed) == len(broken) else 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
