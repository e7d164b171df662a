"""What a copy does with damaged rows, with an older schema, and when it is killed while it renames the file."""

from contextlib import closing
from pathlib import Path
from signal import SIGKILL

import apsw
import pytest

from karrot.clock import SystemClock
from karrot.event import GroupKey
from karrot.eventlog.base import Damaged, LogUnavailableError
from karrot.eventlog.copied_tables import EVENTS, STATE
from karrot.eventlog.sqlite import database
from karrot.eventlog.sqlite.datadir import DATABASE, UNFINISHED_COPY
from karrot.eventlog.sqlite.row_copy import SqliteCopyTarget
from karrot.settings.options import Settings
from support.child_process import CHILDREN
from support.eventlog.appended_events import append_event
from support.eventlog.log_copies import copy, copy_and_kill_self, everything, limits, serving
from support.manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def source(tmp_path: Path) -> Settings:
    return limits(data_dir=tmp_path / "source")


@pytest.fixture
def target(tmp_path: Path) -> Settings:
    return limits(data_dir=tmp_path / "target")


def change(place: Settings, *statements: str) -> None:
    with closing(apsw.Connection(str(place.data_dir / DATABASE))) as file:
        for statement in statements:
            file.execute(statement)


def store_three(place: Settings, clock: ManualClock) -> None:
    with serving(place, clock) as log:
        for consumer in ("a", "b", "a"):
            append_event(log, consumer=consumer)
        log.count("karrot_x_total")
        log.flush()


def test_every_column_of_the_schema_is_copied() -> None:
    """A migration that adds a column or a table must add it to the copy too."""
    with closing(apsw.Connection(":memory:")) as file:
        for script in database.MIGRATIONS:
            file.execute(script)
        tables = [name for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        columns = {name: {row[1] for row in file.execute(f"PRAGMA table_info({name})")} for name in tables}
    assert columns.pop("log") == {
        "id", "log_id", "boot_id", "boot_ms", "wall_ms", "log_ms", "events", "groups", "log_end_bytes"
    }  # fmt: skip
    assert columns.pop("sqlite_sequence") == {"name", "seq"}
    columns["rejects"].remove("id")  # the copy numbers them again, in the same order
    assert columns == {table.name: set(table.columns) for table in (EVENTS, *STATE)}


def test_damaged_rows_are_copied_as_they_are_and_counted(
    source: Settings, target: Settings, clock: ManualClock
) -> None:
    store_three(source, clock)
    change(
        source,
        "UPDATE events SET body = replace(CAST(body AS TEXT), 'WARN', 'WARM') WHERE seq = 1",
        "UPDATE events SET source = CAST(x'f7656268' AS TEXT) WHERE seq = 2",
        "UPDATE groups SET state = x'00' WHERE consumer = 'b'",
    )
    with serving(source, clock) as log:
        before = everything(log)
    result = copy(source, target, clock)
    assert (dict(+result.damaged), dict(+result.left_out)) == ({"events": 2, "groups": 1}, {})
    with serving(target, clock) as log:
        assert everything(log) == before
        assert log.read(0, 2) == [Damaged(log.log_id, 1), Damaged(log.log_id, 2)]
        assert log.group(GroupKey("prod-eu", "b")) is None
        assert append_event(log, consumer="b").tracked  # its next event replaces the state


def test_a_row_that_no_database_can_hold_keeps_its_place_as_a_damaged_row(
    source: Settings, target: Settings, clock: ManualClock
) -> None:
    store_three(source, clock)
    change(
        source,
        "PRAGMA writable_schema = 1",
        "UPDATE sqlite_schema SET sql = replace(sql, 'NOT NULL', '        ') WHERE name IN ('events', 'counters')",
    )
    change(
        source,
        "UPDATE events SET received_at_ms = NULL, body = NULL WHERE seq = 2",
        "UPDATE events SET crc = 'text' WHERE seq = 3",
        "INSERT INTO counters VALUES (CAST(x'ff' AS TEXT), '[]', 1.0)",
    )
    result = copy(source, target, clock)
    assert (dict(+result.damaged), dict(+result.left_out)) == ({"events": 2}, {"counters": 1})
    with serving(target, clock) as log:
        first, *damaged = log.read(0)
        assert (first.seq, damaged) == (1, [Damaged(log.log_id, 2), Damaged(log.log_id, 3)])
        assert [event.seq for event in log.recent(GroupKey("prod-eu", "a"))] == [1]


def test_a_source_of_an_older_version_is_refused(source: Settings, target: Settings, clock: ManualClock) -> None:
    store_three(source, clock)
    change(source, "PRAGMA user_version = 4")
    with pytest.raises(
        LogUnavailableError, match=r"schema version 4, and this Karrot copies version \d+: start `karrot"
    ):
        copy(source, target, clock)
    change(source, "PRAGMA user_version = 99")
    with pytest.raises(LogUnavailableError, match="schema version 99: copy it with the newer Karrot"):
        copy(source, target, clock)
    change(source, "PRAGMA application_id = 7")
    with pytest.raises(LogUnavailableError, match="is a database of another program"):
        copy(source, target, clock)


def test_a_network_file_system_is_refused_as_target(tmp_path: Path, clock: ManualClock) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"server:/x {tmp_path} nfs4 rw 0 0\n")
    with pytest.raises(LogUnavailableError, match="is on nfs4"):
        SqliteCopyTarget(tmp_path / "data", clock, mounts)


@pytest.mark.parametrize("call", ["unlink", "replace"])
def test_a_copy_that_is_killed_while_it_renames_the_file_continues(
    source: Settings, target: Settings, clock: ManualClock, call: str
) -> None:
    store_three(source, clock)
    with serving(source, clock) as log:
        before = everything(log)
    with serving(target, clock):
        pass  # an empty log of its own, whose file makes room
    arguments = (source, target, SystemClock(), (call, 1, "in"))
    child = CHILDREN.Process(target=copy_and_kill_self, args=arguments)
    child.start()
    child.join(60)
    assert child.exitcode == -SIGKILL
    assert (target.data_dir / UNFINISHED_COPY).exists()
    assert copy(source, target, clock).is_finished
    with serving(target, clock) as log:
        assert everything(log) == before


def test_the_finished_file_has_no_write_ahead_log_of_another_file(
    source: Settings, target: Settings, clock: ManualClock
) -> None:
    """SQLite would apply a write-ahead log that lies next to the file, whatever file it is."""
    store_three(source, clock)
    with serving(target, clock):
        pass
    with closing(apsw.Connection(str(target.data_dir / DATABASE))) as left_open:
        left_open.execute("UPDATE log SET wall_ms = 1")
        assert (target.data_dir / f"{DATABASE}-wal").exists()
        assert copy(source, target, clock).is_finished
        assert sorted(path.name for path in target.data_dir.iterdir() if DATABASE in path.name) == [DATABASE]
