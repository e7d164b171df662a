"""The log's own time is the same in every replica, whatever their wall clocks say, and never goes back."""

import pytest

from karrot.clock import Anchor, SystemClock
from karrot.event import GroupKey
from karrot.eventlog.postgres import PostgresEventLog
from karrot.eventlog.postgres.connections import Database
from karrot.eventlog.postgres.schema import Opened, prepare
from support.eventlog.appended_events import append_event, group_names, stored_events
from support.eventlog.postgres_server import PostgresServer
from support.manual_clock import ManualClock

from .conftest import OpenPostgres

HOUR_MS = 3_600_000
STALE_MS = 300_000


class WrongClock(SystemClock):
    """The machine's clock, with a wall clock that is off."""

    def __init__(self, off_ms: int) -> None:
        super().__init__()
        self._off_ms = off_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self._off_ms


@pytest.mark.parametrize("off_ms", [HOUR_MS, -HOUR_MS])
def test_replicas_whose_clocks_are_an_hour_apart_agree(open_postgres: OpenPostgres, off_ms: int) -> None:
    right, wrong = open_postgres(SystemClock()), open_postgres(WrongClock(off_ms))
    assert abs(right.log_time_ms() - wrong.log_time_ms()) < 1_000
    for number in range(6):
        append_event((right, wrong)[number % 2], consumer=f"g{number}")
    times = [event.log_time_ms for event in stored_events(right)]
    assert max(times) - min(times) < 10_000
    assert group_names(right) == group_names(wrong) == [f"g{number}" for number in range(6)]
    assert right.expire() == wrong.expire() == 0
    assert list(right.live()) == list(wrong.live())


def test_the_newest_verdict_wins_whichever_replica_got_it(open_postgres: OpenPostgres) -> None:
    right, wrong = open_postgres(SystemClock()), open_postgres(WrongClock(-HOUR_MS))
    append_event(right, total_lag=1)
    append_event(wrong, total_lag=2)
    state = right.group(GroupKey("prod-eu", "orders-svc"))
    assert state is not None
    assert state.summary.total_lag == 2


def test_a_new_primary_whose_clock_is_behind_does_not_turn_back_the_time(
    server: PostgresServer, schema: str, open_postgres: OpenPostgres
) -> None:
    log = open_postgres(SystemClock())
    append_event(log)
    with server.connect("karrot") as connection:
        # As after a failover from a primary whose clock was an hour ahead.
        connection.execute(f"UPDATE {schema}.log SET log_ms = log_ms + {HOUR_MS}, wall_ms = wall_ms + {HOUR_MS}")
    before = log.log_time_ms()
    append_event(log)
    assert log.log_time_ms() >= before + HOUR_MS - 1_000
    started_later = open_postgres(SystemClock())
    assert started_later.log_time_ms() >= before + HOUR_MS - 1_000
    append_event(started_later)
    assert [event.log_time_ms for event in stored_events(log)] == sorted(
        event.log_time_ms for event in stored_events(log)
    )


def test_time_goes_on_while_every_replica_is_down(database: Database, server: PostgresServer, schema: str) -> None:
    clock = ManualClock()
    log = PostgresEventLog(database, prepare(database, clock), clock, stale_after_ms=STALE_MS)
    append_event(log)
    log.close()
    with server.connect("karrot") as connection:
        connection.execute(f"UPDATE {schema}.log SET wall_ms = wall_ms - {STALE_MS}")  # five minutes ago
    clock.reboot(down_ms=0)
    later = PostgresEventLog(database, prepare(database, clock), clock, stale_after_ms=STALE_MS)
    assert group_names(later) == []
    later.close()


def test_a_replica_whose_time_is_behind_catches_up_with_its_next_commit(
    database: Database, open_postgres: OpenPostgres
) -> None:
    clock = ManualClock()
    ahead = open_postgres(clock)
    opened = prepare(database, clock)
    late = Opened(opened.log_id, Anchor(*opened.anchor[:3], opened.anchor.log_ms - 30_000))
    behind = PostgresEventLog(database, late, clock)
    assert ahead.log_time_ms() - behind.log_time_ms() > 29_000
    append_event(ahead)
    append_event(behind)
    assert abs(ahead.log_time_ms() - behind.log_time_ms()) < 1_000
    behind.close()
