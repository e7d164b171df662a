"""Runs ``karrot serve`` with its event log in PostgreSQL. A test can start several of these replicas."""

import os
import re
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from karrot.clock import SystemClock
from karrot.eventlog.base import StoredEvent
from support.eventlog.postgres_log import open_postgres
from support.eventlog.postgres_server import PASSWORD, PostgresServer
from support.servers.haproxy import HaProxy, running_haproxy
from support.service.karrot_service import Service
from support.waiting import wait_for

_SCHEMA = "karrot"
BATCH = 500
"""The most events of one report."""

_REPORTED = re.compile(rb'^\{"event_id":"[^"]+-(\d+)"', re.MULTILINE)


class PostgresService(Service):
    """One replica with one worker, and with a directory of its own. It prints the events while it leads.

    ``port`` is that of a proxy. ``url`` replaces the whole URL.
    """

    def __init__(
        self,
        directory: Path,
        server: PostgresServer,
        schema: str,
        *,
        port: int | None = None,
        url: str | None = None,
        arguments: tuple[str, ...] = (),
        **settings: str,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        password = directory / "password"
        password.write_text(f"{PASSWORD}\n")
        chosen = {
            "event_log": url or server.url(schema, port=port),
            "event_log_password_file": str(password),
            "workers": "1",
            "reporters": "prometheus,stdout",
        }
        super().__init__(directory, arguments=arguments, **{**chosen, **settings})
        self.server = server
        self.schema = schema

    def stored_consumers(self) -> Counter[str]:
        """Return the number of events of each consumer group in the log; every event must be complete."""
        found: Counter[str] = Counter()
        with open_postgres(self.server, self.schema, SystemClock(), max_bytes=1 << 40) as log:
            after = 0
            while page := log.read(after):
                assert all(isinstance(event, StoredEvent) for event in page)
                found.update(event.event.consumer for event in page if isinstance(event, StoredEvent))
                after = page[-1].seq
        return found

    def terms(self) -> int:
        """How many times a worker of this replica has taken the lead."""
        return self.said.read_bytes().count(b"this worker leads")

    def reported(self) -> Sequence[int]:
        """The sequence numbers of the events that this replica has printed, in their order."""
        return [int(seq) for seq in _REPORTED.findall(self.said.read_bytes())]

    def threads(self) -> int:
        """The number of threads of the worker."""
        [worker] = self.workers()
        return len(list(Path(f"/proc/{worker}/task").iterdir()))

    def freeze(self) -> None:
        """Stop every process of the replica without ending it."""
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)


@contextmanager
def replicas_over(
    servers: Sequence[PostgresServer], directory: Path, count: int = 2, max_log_bytes: str = "1GiB"
) -> Iterator[tuple[HaProxy, list[PostgresService]]]:
    """Replicas that know every server, behind HAProxy."""
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    url = f"postgresql://karrot@{hosts}/karrot?schema={_SCHEMA}"
    with ExitStack() as started:
        replicas = [
            started.enter_context(
                PostgresService(
                    directory / f"replica-{number}", servers[0], _SCHEMA, url=url, max_log_bytes=max_log_bytes
                )
            )
            for number in range(count)
        ]
        proxy = started.enter_context(running_haproxy([replica.port for replica in replicas], directory))
        wait_for(lambda: sum(replica.terms() for replica in replicas) == 1)
        yield proxy, replicas


def assert_all_reported(replicas: Sequence[PostgresService], events: int, *, changes: int = 1) -> None:
    """Assert that every event was printed, and that each change of the leader repeated at most one batch."""
    wait_for(lambda: len({seq for each in replicas for seq in each.reported()}) == events, 60)
    assert sum(len(each.reported()) for each in replicas) - events <= changes * BATCH
