"""Old events go by their age and by the size of the log, in whole blocks, also while somebody reads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest
from structlog.testing import capture_logs

from karrot.burrow.payload import to_wire
from karrot.eventlog.base import LogUnavailableError
from karrot.eventlog.postgres import PostgresEventLog, store
from support.burrow.lag_events import make_event
from support.eventlog.appended_events import append_event, stored_events
from support.eventlog.postgres_server import PostgresServer
from support.manual_clock import ManualClock

from .conftest import OpenPostgres

RETENTION_MS = 3_600_000
LIMIT = 8 << 20


def blocks(server: PostgresServer, schema: str) -> list[str]:
    with server.connect("karrot") as connection:
        sql = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename ~ '^events_' ORDER BY 1"
        return [str(name) for (name,) in connection.execute(sql, (schema,))]


def pieces(server: PostgresServer, schema: str) -> int:
    """The events that are in the tables, whether or not they are deleted for readers."""
    with server.connect("karrot") as connection:
        found = connection.execute(f"SELECT count(*) FROM {schema}.events").fetchone()
    assert found is not None
    return int(str(found[0]))


@contextmanager
def long_reader(server: PostgresServer, schema: str) -> Iterator[None]:
    """Hold a transaction that has read the events, as a backup does."""
    with server.connect("karrot") as connection, connection.transaction():
        connection.execute(f"SELECT count(*) FROM {schema}.events").fetchone()
        yield


def append_large(log: PostgresEventLog, number: int) -> None:
    """Append an event whose text cannot be compressed much, so that its size on disk is known."""
    filler = Random(number).randbytes(30_000).hex()
    event = make_event(consumer=f"g{number % 10}", extras=(("filler", filler),))
    log.append(event, to_wire(event))


def test_blocks_whose_events_are_all_too_old_are_dropped(
    server: PostgresServer, schema: str, open_postgres: OpenPostgres
) -> None:
    clock = ManualClock()
    log = open_postgres(clock, retention_ms=RETENTION_MS, stale_after_ms=RETENTION_MS)
    for _ in range(4):
        for _ in range(5):
            append_event(log)
        clock.advance(RETENTION_MS // 8)
    assert len(blocks(server, schema)) > 3
    assert log.prune() == 0
    clock.advance(RETENTION_MS * 5 // 8 + 1)
    assert log.prune() == 10
    assert [event.seq for event in stored_events(log)] == list(range(11, 21))
    assert pieces(server, schema) < 20
    clock.advance(RETENTION_MS)
    assert log.prune() == 10
    assert stored_events(log) == []
    append_event(log)
    assert log.prune() == 0
    assert [event.seq for event in stored_events(log)] == [21]
    assert len(blocks(server, schema)) <= 2
    assert pieces(server, schema) <= 2


def test_an_event_that_arrives_while_all_others_are_pruned_is_kept(open_postgres: OpenPostgres) -> None:
    clock = ManualClock()
    log, other = (open_postgres(clock, retention_ms=1, stale_after_ms=RETENTION_MS) for _ in range(2))
    newest = 0

    def append_all() -> None:
        nonlocal newest
        for _ in range(300):
            newest = append_event(other).seq

    thread = threading.Thread(target=append_all)
    thread.start()
    while thread.is_alive():
        log.prune()  # no event is older than a millisecond, because the clock stands still
    thread.join()
    assert newest == log.size().events == 300
    clock.advance(2)
    assert log.prune() == 300


def test_the_size_of_the_log_holds_under_writing_without_the_leaders_help(
    server: PostgresServer, schema: str, open_postgres: OpenPostgres
) -> None:
    log = open_postgres(max_bytes=LIMIT)
    largest = 0
    for number in range(250):
        append_large(log, number)
        largest = max(largest, log.size().bytes)
    assert largest < LIMIT
    assert log.size().bytes > LIMIT * 0.6
    kept = [event.seq for event in stored_events(log)]
    assert kept[-1] == 250
    assert kept == list(range(kept[0], 251))
    assert log.size().events == len(kept)
    dropped = sum(each.value for each in log.counters() if each.name == "karrot_log_pruned_total")
    assert dropped == 250 - len(kept)
    assert len(blocks(server, schema)) <= 18


def test_a_log_that_is_too_large_for_a_lower_limit_is_shrunk_by_the_next_events(open_postgres: OpenPostgres) -> None:
    log = open_postgres()
    for number in range(250):
        append_large(log, number)
    before = log.size()
    assert before.bytes > LIMIT
    log.close()
    small = open_postgres(max_bytes=LIMIT)
    for number in range(20):
        append_large(small, number)
        assert small.size().last_seq == 251 + number
        assert small.event(251 + number) is not None  # the newest event is never dropped
    assert small.size().bytes < LIMIT


def test_no_event_is_deleted_while_the_size_cannot_be_read(
    open_postgres: OpenPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_postgres(max_bytes=LIMIT)
    for number in range(120):
        append_large(log, number)
    before = log.size()
    assert before.bytes > LIMIT * 0.6
    monkeypatch.setattr(store, "_SIZE", "SELECT 1 / 0")
    monkeypatch.setattr(store, "NEARLY_FULL", 0.1)  # by its last known size, the log is too large
    with capture_logs() as logged:
        for number in range(40):
            append_large(log, number)
        with pytest.raises(LogUnavailableError, match="division by zero"):
            log.prune()
    assert len(stored_events(log)) > 0
    assert log.event(before.first_seq) is not None
    assert "the oldest events could not be deleted now" in {each["event"] for each in logged}


def test_a_long_reader_delays_the_drop_but_no_event_is_deleted_for_nothing(
    server: PostgresServer, schema: str, open_postgres: OpenPostgres
) -> None:
    log = open_postgres(max_bytes=LIMIT)
    for number in range(100):
        append_large(log, number)
    with long_reader(server, schema):
        for number in range(100, 200):
            append_large(log, number)
        assert log.prune() == 0
        held = log.size()
        assert held.bytes > LIMIT
        assert held.events > 180  # at most one block was deleted before the reader was seen
        assert [event.seq for event in log.read(held.last_seq - 3)] == [198, 199, 200]
    log.prune()
    assert log.size().bytes < LIMIT
    assert log.size().last_seq == 200


@pytest.mark.parametrize("readers", [1, pytest.param(4, marks=pytest.mark.deep)])
def test_readers_that_follow_the_log_see_every_event_while_blocks_are_dropped(
    open_postgres: OpenPostgres, readers: int
) -> None:
    log = open_postgres(max_bytes=4 << 20)
    seen: dict[int, list[int]] = {reader: [] for reader in range(readers)}
    done = threading.Event()

    def follow(reader: int) -> None:
        while True:
            was_done = done.is_set()
            found = log.read(seen[reader][-1] if seen[reader] else 0)
            seen[reader] += [event.seq for event in found]
            if was_done and not found:
                return

    threads = [threading.Thread(target=follow, args=(reader,)) for reader in seen]
    for thread in threads:
        thread.start()
    for number in range(130):
        append_large(log, number)
    done.set()
    for thread in threads:
        thread.join()
    for found in seen.values():
        assert found == sorted(set(found))
        assert found[-1] == 130
