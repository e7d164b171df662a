"""Several processes append at once: a reader that follows the log misses nothing, and the order is that of commits."""

from karrot import telemetry
from karrot.eventlog.base import StoredEvent
from support.child_process import CHILDREN
from support.eventlog.postgres_log import append_many, open_postgres
from support.eventlog.postgres_server import PostgresServer
from support.manual_clock import ManualClock

PROCESSES = 3
EACH = 60


def test_a_tailing_reader_sees_every_event_of_every_process_in_order(server: PostgresServer, schema: str) -> None:
    with open_postgres(server, schema, ManualClock()) as log:
        writers = [
            CHILDREN.Process(target=append_many, args=(server.url(schema), f"w{number}", EACH), daemon=True)
            for number in range(PROCESSES)
        ]
        for writer in writers:
            writer.start()
        seen: list[StoredEvent] = []
        pages = 0
        while len(seen) < PROCESSES * EACH:
            assert any(writer.is_alive() for writer in writers) or log.size().last_seq == PROCESSES * EACH
            found = log.read(seen[-1].seq if seen else 0)
            pages += bool(found)
            seen += [event for event in found if isinstance(event, StoredEvent)]
        for writer in writers:
            writer.join(30)
        assert [event.seq for event in seen] == list(range(1, PROCESSES * EACH + 1))
        assert pages > 20
        for number in range(PROCESSES):  # each process has 3 threads, and each thread appends in its own order
            for thread in range(3):
                prefix = f"w{number}-{thread}-"
                mine = [event.event.consumer for event in seen if event.event.consumer.startswith(prefix)]
                assert mine == [f"{prefix}{turn}" for turn in range(EACH // 3)]
        assert len({event.event.consumer for event in seen}) == PROCESSES * EACH
        counted = {each.labels: each.value for each in log.counters() if each.name == telemetry.EVENTS_ACCEPTED.name}
        assert counted == {(("source", "webhook"),): PROCESSES * EACH}
        assert log.size().groups == PROCESSES * EACH
        assert [state.seq for state in sorted(log.live(), key=lambda state: state.seq)] == [event.seq for event in seen]
