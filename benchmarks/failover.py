"""Breaks two replicas over PostgreSQL under load, again and again: every acknowledged event must be stored once.

PYTHONPATH=tests python benchmarks/failover.py [--kills 20] [--database-kills 10] [--promotions 5] [--freeze 60]
    [--swallow 30] [--rate 200]

The replicas are behind HAProxy, which never repeats an event, and the database has a synchronous standby. The last two
parts have a database of their own: one whose packets are lost, and one on a small volume, which needs root.
The exit code is 1 if a promise was broken.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import Random
from typing import Self

from harness.posting_process import AnswerCounts, PostingProcess

from support.burrow.recorded_bodies import padded_warn_body, warn_body
from support.eventlog.postgres_server import DATABASE, PostgresServer, postgres_bin, running_postgres
from support.eventlog.postgres_standby import streaming_standby
from support.eventlog.saved_cursor import SavedCursor
from support.servers.faulty_proxy import faulty_proxy
from support.service.postgres_service import BATCH, PostgresService, replicas_over
from support.service.small_volume import small_volume
from support.waiting import wait_for

KILLED_S = 5.0
SILENT_S = 15.0
ANSWER_S = 2.0
BUSY_S = 0.5
"""What a busy machine may add to an answer."""

SCHEMA = "karrot"
VOLUME_BYTES = 256 << 20
SMALL_WAL = {"min_wal_size": "32MB", "max_wal_size": "64MB", "wal_keep_size": "0"}


class Pair:
    """A primary and a synchronous standby, which change places."""

    def __init__(self, opened: ExitStack) -> None:
        self._opened = opened
        self.primary = opened.enter_context(running_postgres())
        self.standby = opened.enter_context(streaming_standby(self.primary, synchronous=True))

    @property
    def servers(self) -> list[PostgresServer]:
        return [self.primary, self.standby]

    def fail_over(self) -> None:
        """Kill the primary and promote the standby."""
        self.primary.kill()
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    def build_standby(self) -> None:
        """Replace the killed server with a new standby on its port."""
        port = self.standby.port
        self.standby = self._opened.enter_context(streaming_standby(self.primary, synchronous=True, own_port=port))


class Load:
    """Events through HAProxy, with the answers since the last phase."""

    def __init__(self, poster: PostingProcess, rng: Random) -> None:
        self._poster = poster
        self._rng = rng
        self._before = AnswerCounts(0, 0, 0, 0)

    def at_any_moment(self) -> None:
        """Keep the load for a random time."""
        self.until_accepted()
        time.sleep(self._rng.uniform(0.1, 1.5))

    def until_accepted(self) -> float:
        """Wait until an event is accepted that was sent now; return the seconds."""
        began = time.monotonic()
        before = self._poster.tallies.accepted + 8  # some answers are on their way
        wait_for(lambda: self._poster.tallies.accepted > before, 120)
        return time.monotonic() - began

    def told(self, phase: str) -> None:
        """Print the answers of a phase."""
        after = self._poster.tallies
        accepted, refused, other, broken = (new - old for new, old in zip(after, self._before, strict=True))
        print(
            f"{phase}: {accepted} answers 202, {refused} 503, {other} others, {broken} connections broken", flush=True
        )
        self._before = after


def shown(what: str, seconds: Sequence[float]) -> None:
    """Print the median and the worst value."""
    if seconds:
        print(f"  {what}: median {sorted(seconds)[len(seconds) // 2]:.2f} s, worst {max(seconds):.2f} s", flush=True)


def leader_of(replicas: Sequence[PostgresService], server: PostgresServer) -> PostgresService | None:
    """The replica whose worker holds the lock of the leader, by the client's port of its session."""
    sql = (
        "SELECT client_port FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE locktype = 'advisory' AND granted "
        "AND objsubid = 2"
    )
    with server.connect(DATABASE) as connection:
        ports = {int(str(port)) for (port,) in connection.execute(sql).fetchall()}
    for replica in replicas:
        pids = [replica.pid, *replica.workers()] if replica.process and replica.process.poll() is None else []
        if any(ports & ports_of(pid) for pid in pids):
            return replica
    return None


def ports_of(pid: int) -> set[int]:
    """The local ports of a process's TCP connections."""
    inodes = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(str(file.readlink()))
        except OSError:
            continue
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].partition(":")[2], 16) for row in rows if f"socket:[{row[9]}]" in inodes}


def seconds_until(condition: Callable[[], bool]) -> float:
    """Wait for a condition; return the seconds."""
    began = time.monotonic()
    wait_for(condition, 120)
    return time.monotonic() - began


def one_of(replicas: Sequence[PostgresService], server: PostgresServer) -> PostgresService:
    """Wait until a replica leads, and return it."""
    wait_for(lambda: leader_of(replicas, server) is not None, 60)
    found = leader_of(replicas, server)
    return found if found is not None else one_of(replicas, server)


def kill_replicas(replicas: Sequence[PostgresService], server: PostgresServer, load: Load, kills: int) -> Iterator[str]:
    """Kill each replica in turn, and start it again."""
    leads, ready = [], []
    for turn in range(kills * len(replicas)):
        victim = replicas[turn % len(replicas)]
        others = [each for each in replicas if each is not victim]
        load.at_any_moment()
        led = one_of(replicas, server) is victim
        victim.kill()
        if led:
            leads.append(seconds_until(lambda others=others: leader_of(others, server) is not None))  # type: ignore[misc]
        load.until_accepted()
        began = time.monotonic()
        victim.start()
        ready.append(time.monotonic() - began)
    load.told(f"{kills} kills of each replica, {len(leads)} of them of the leader")
    shown("another replica leads after", leads)
    shown("started and ready after", ready)
    if max(leads, default=0) > KILLED_S:
        yield f"no replica led for {max(leads):.1f} s after a kill"


def kill_database(pair: Pair, load: Load, kills: int) -> None:
    """Kill the primary, and start it again at once."""
    accepted = []
    for _ in range(kills):
        load.at_any_moment()
        pair.primary.kill()
        pair.primary.start()
        accepted.append(load.until_accepted())
    load.told(f"{kills} kills of PostgreSQL")
    shown("after its start, events are accepted after", accepted)


def promote(pair: Pair, load: Load, promotions: int) -> None:
    """Kill the primary, and promote the standby."""
    accepted = []
    for _ in range(promotions):
        load.at_any_moment()
        pair.fail_over()
        accepted.append(load.until_accepted())
        pair.build_standby()
    load.told(f"{promotions} promotions")
    shown("after a promotion, events are accepted after", accepted)


def freeze(replicas: Sequence[PostgresService], pair: Pair, load: Load, seconds: float) -> Iterator[str]:
    """Stop the leader's processes for a while."""
    load.at_any_moment()
    leader = one_of(replicas, pair.primary)
    others = [each for each in replicas if each is not leader]
    began = time.monotonic()
    leader.freeze()
    took = seconds_until(lambda: leader_of(others, pair.primary) is not None)
    time.sleep(max(0.0, seconds - (time.monotonic() - began)))
    before = len(leader.reported())
    leader.thaw()
    wait_for(leader.ready, 60)
    load.at_any_moment()
    late = len(leader.reported()) - before
    load.told(f"the leader frozen for {seconds:g} s")
    print(f"  another replica leads after {took:.2f} s; the frozen one reported {late} events when it woke", flush=True)
    if took > SILENT_S:
        yield f"no replica led for {took:.1f} s after the leader was frozen"
    if late > BATCH and one_of(replicas, pair.primary) is not leader:
        yield f"the frozen leader reported {late} events when it woke"


def judged(
    replicas: Sequence[PostgresService], poster: PostingProcess, cursor: SavedCursor, changes: int
) -> Iterator[str]:
    """Compare the acknowledged events with the log and with the reported events."""
    acknowledged = poster.acknowledged()
    stored = replicas[0].stored_consumers()
    missing = acknowledged - stored.keys()
    twice = [name for name, times in stored.items() if times > 1]
    print(f"acknowledged {len(acknowledged)}, stored {stored.total()}, missing {len(missing)}, twice {len(twice)}")
    if missing or twice:
        yield f"missing {sorted(missing)[:5]}, twice {twice[:5]}"
    wait_for(lambda: cursor.seq == stored.total(), 120)
    reported = Counter(seq for each in replicas for seq in each.reported())
    skipped = set(range(1, stored.total() + 1)) - reported.keys()
    again = reported.total() - len(reported)
    print(f"the reporters got {len(reported)} events, {again} of them again; never {len(skipped)}")
    if skipped:
        yield f"never reported: {sorted(skipped)[:5]}"
    if again > changes * BATCH:
        yield f"{again} events were reported again, with {changes} changes of the leader"
    if cursor.went_back:
        yield "the cursor went back"
    counted = replicas[0].metric("karrot_events_accepted_total", source="webhook")
    print(f"karrot_events_accepted_total {counted:.0f}")
    if counted != stored.total():
        yield f"karrot_events_accepted_total is {counted}, but {stored.total()} events are stored"


def break_everything(asked: argparse.Namespace, place: Path) -> Iterator[str]:
    """Kill replicas and servers, promote standbys, and freeze the leader."""
    (place / "acknowledged").mkdir()
    with ExitStack() as opened:
        pair = Pair(opened)
        # The replicas know the ports of the first two servers. Each later server has one of these ports.
        proxy, replicas = opened.enter_context(replicas_over(pair.servers, place, max_log_bytes="16GiB"))
        cursor = opened.enter_context(SavedCursor(pair.servers, SCHEMA))
        with PostingProcess(proxy.port, directory=place / "acknowledged", threads=8, rate=asked.rate) as poster:
            load = Load(poster, Random(asked.seed))
            yield from kill_replicas(replicas, pair.primary, load, asked.kills)
            kill_database(pair, load, asked.database_kills)
            promote(pair, load, asked.promotions)
            yield from freeze(replicas, pair, load, asked.freeze)
            load.at_any_moment()
        for replica in replicas:
            replica.server = pair.primary
        changes = 2 * asked.kills + asked.database_kills + asked.promotions + 1
        yield from judged(replicas, poster, cursor, changes)


class Asking:
    """Asks one replica again and again. ``slowest_s`` is the slowest answer to each request."""

    def __init__(self, replica: PostgresService) -> None:
        self.slowest_s: dict[str, float] = {}
        self.answers: dict[str, Counter[int]] = {}
        self._port = replica.port
        self._over = threading.Event()
        paths = ("/burrow", "/metrics", "/", "/api/v1/groups", "/readyz")
        self._threads = [threading.Thread(target=self._ask, args=(path,)) for path in paths]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, path: str) -> None:
        answers = self.answers[path] = Counter()
        while not self._over.wait(0.1):
            began = time.monotonic()
            with closing(HTTPConnection("127.0.0.1", self._port, timeout=20)) as connection:
                try:
                    if path == "/burrow":
                        connection.request("POST", path, warn_body("asked"))
                    else:
                        connection.request("GET", path)
                    response = connection.getresponse()
                    response.read()
                    answers[response.status] += 1
                except (OSError, HTTPException):
                    answers[0] += 1
            self.slowest_s[path] = max(self.slowest_s.get(path, 0.0), time.monotonic() - began)


def lose_packets(seconds: float, place: Path) -> Iterator[str]:
    """Lose every packet between the leader and the database for a while."""
    with (
        running_postgres() as server,
        faulty_proxy(server.port) as network,
        PostgresService(place / "first", server, SCHEMA, port=network.port) as first,
    ):
        wait_for(lambda: first.terms() == 1)
        with PostgresService(place / "second", server, SCHEMA) as second, Asking(first) as asking:
            time.sleep(2)
            threads = first.threads()
            network.swallows = True
            began = time.monotonic()
            took = seconds_until(lambda: second.terms() == 1)
            time.sleep(max(0.0, seconds - (time.monotonic() - began)))
            more = first.threads() - threads
            network.swallows = False
            ready = seconds_until(first.ready)
        print(
            f"packets lost for {seconds:g} s: another replica leads after {took:.2f} s; ready again {ready:.2f} s later"
        )
        print(
            f"  slowest answers: {', '.join(f'{path} {slowest:.2f} s' for path, slowest in asking.slowest_s.items())}"
        )
        print(f"  answers: {asking.answers}; {more} more threads", flush=True)
        if took > SILENT_S:
            yield f"no replica led for {took:.1f} s after the packets were lost"
        if max(asking.slowest_s.values()) > ANSWER_S + BUSY_S:
            yield f"an answer took {max(asking.slowest_s.values()):.2f} s"
        if more > 4:
            yield f"{more} threads piled up"


def fill_what_is_left(file: Path) -> None:
    """Write to a file until the volume is full."""
    with file.open("ab", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            return


def fill_disk(place: Path) -> Iterator[str]:
    """Fill the volume of the database, and free it again."""
    with small_volume(place / "volume", VOLUME_BYTES) as volume:
        server = PostgresServer(volume, postgres_bin(), settings=SMALL_WAL)
        server.create()
        server.start()
        with server.connect() as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")
        acknowledged, answers = [], Counter[str]()
        with PostgresService(place / "replica", server, SCHEMA) as replica:

            def post(name: str) -> bool:
                answer = replica.post(padded_warn_body(name, 200_000))
                answers["202" if answer.status == 202 else str(answer.json["code"])] += 1
                if answer.status == 202:
                    acknowledged.append(name)
                return answer.status == 202

            for number in range(20):
                post(f"before-{number}")
            number = in_a_row = 0
            while in_a_row < 30:
                number += 1
                fill_what_is_left(volume / "filler")
                in_a_row = 0 if post(f"full-{number}") else in_a_row + 1
            told = dict(answers)
            pages = {path: replica.get(path).status for path in ("/metrics", "/", "/api/v1/groups", "/healthz")}
            (volume / "filler").unlink()
            if server.process is not None and server.process.poll() is not None:
                print("  PostgreSQL ended itself, as it does if it cannot write its log; it is started again")
                server.start()
            took = seconds_until(lambda: post("after"))
            wait_for(replica.ready, 60)
            stored = replica.stored_consumers()
            missing = set(acknowledged) - stored.keys()
        server.stop()
    print(
        f"a full volume: {told}; meanwhile {pages}; events are accepted {took:.2f} s after there is space", flush=True
    )
    print(f"  acknowledged {len(acknowledged)}, stored {stored.total()}, missing {len(missing)}")
    if missing:
        yield f"missing after a full volume: {sorted(missing)[:5]}"
    if set(pages.values()) != {200}:
        yield f"a page was refused on a full volume: {pages}"


def run(asked: argparse.Namespace, place: Path) -> Iterator[str]:
    """Run all parts; yield each broken promise."""
    for name, part in (
        ("everything", lambda where: break_everything(asked, where)),
        ("packets", lambda where: lose_packets(asked.swallow, where)),
        ("disk", fill_disk),
    ):
        if asked.only in (None, name):
            (place / name).mkdir(mode=0o755)  # the user of PostgreSQL must reach its volume
            yield from part(place / name)


def parsed() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of each replica")
    parser.add_argument("--database-kills", type=int, default=10)
    parser.add_argument("--promotions", type=int, default=5)
    parser.add_argument("--freeze", type=float, default=60, help="seconds")
    parser.add_argument("--swallow", type=float, default=30, help="seconds")
    parser.add_argument("--rate", type=float, default=200, help="events per second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("everything", "packets", "disk"))
    return parser.parse_args()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="karrot-failover-") as scratch:
        Path(scratch).chmod(0o755)
        broken = list(run(parsed(), Path(scratch)))
    for promise in broken:
        print(f"BROKEN: {promise}")
    sys.exit(1 if broken else 0)
