import errno
import os
import stat
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import apsw
import pytest
from structlog.testing import capture_logs

from karrot.clock import Anchor
from karrot.eventlog.base import Counter, LogUnavailableError
from karrot.eventlog.event_log import EventLog
from karrot.eventlog.sqlite import data_directory, database
from karrot.eventlog.transaction_rules import FORGET_GROUPS
from support.child_process import CHILDREN
from support.eventlog.appended_events import append_event, group_names, stored_events
from support.eventlog.sqlite_log import MAX_BYTES, append_and_kill_self, open_sqlite
from support.manual_clock import ManualClock

ANCHOR = Anchor("boot", 1, 2, 3)


def filled(directory: Path, clock: ManualClock) -> Sequence[str]:
    log = open_sqlite(directory, clock)
    for n in range(40):
        append_event(log, consumer=f"g{n}", extras=(("filler", "x" * 10_000),))
    told = ids(log)
    log.close()
    return told


def ids(log: EventLog) -> list[str]:
    return [event.event_id for event in stored_events(log)]


def prepare(directory: Path, clock: ManualClock) -> list[tuple[str, str]]:
    """The paths of the logs that were set aside, and the reasons."""
    with capture_logs() as logs:
        data_directory.prepare(directory, clock, max_bytes=MAX_BYTES)
    return [(each["path"], each["reason"]) for each in logs if each["code"] == "log_set_aside"]


def ids_in(directory: Path, clock: ManualClock) -> Sequence[str]:
    with closing(open_sqlite(directory, clock, prepare=False)) as log:
        return ids(log)


def test_an_intact_log_is_not_changed(tmp_path: Path, clock: ManualClock) -> None:
    told = filled(tmp_path, clock)
    assert prepare(tmp_path, clock) == []
    assert prepare(tmp_path, clock) == []
    assert ids_in(tmp_path, clock) == told


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.write_bytes(b""), "it is empty, but a log was here"),
        (lambda path: path.write_bytes(b"\x00" * 4096 + path.read_bytes()[4096:]), "file is not a database"),
        (lambda path: path.write_bytes(path.read_bytes()[: 20 * 4096]), ""),
        (lambda path: path.write_bytes(path.read_bytes()[:8192] + b"\xa5" * 8192 + path.read_bytes()[16384:]), ""),
        (lambda path: path.write_text("not a database, but a letter to my mother\n" * 200), "file is not a database"),
    ],
    ids=["emptied", "no header", "truncated", "pages overwritten", "a text file"],
)
def test_a_damaged_log_is_set_aside_and_a_new_one_is_started(
    tmp_path: Path, clock: ManualClock, damage: "object", reason: str
) -> None:
    old = filled(tmp_path, clock)[0].rpartition("-")[0]
    damage(tmp_path / "events.db")  # type: ignore[operator]
    [(path, why)] = prepare(tmp_path, clock)
    assert path == str(tmp_path / "events.db.corrupt-000001-20270115T080000Z")
    assert Path(path).exists()
    assert reason in why
    log = open_sqlite(tmp_path, clock, prepare=False)
    assert log.log_id != old
    assert append_event(log).seq == 1
    assert Counter("karrot_log_replaced_total", (), 1) in log.counters()
    log.close()


def test_each_set_aside_log_has_its_own_name_and_the_newest_ones_have_a_limit(
    tmp_path: Path, clock: ManualClock
) -> None:
    paths: list[str] = []
    for letter in "abcde":
        (tmp_path / "events.db").write_bytes(letter.encode())  # all within one second
        os.truncate(tmp_path / "events.db", MAX_BYTES // 2)
        (tmp_path / "events.db-wal").write_bytes(letter.encode())
        paths += [path for path, _ in prepare(tmp_path, clock)]
    assert len({*paths}) == 5
    assert sorted(each.name for each in tmp_path.glob("*.corrupt-*")) == [
        Path(f"{paths[4]}{tail}").name for tail in ("", "-shm", "-wal")
    ]
    (tmp_path / "events.db").write_bytes(b"small")
    paths += [path for path, _ in prepare(tmp_path, clock)]
    assert [Path(path).exists() for path in paths] == [False, False, False, False, True, True]
    with closing(open_sqlite(tmp_path, clock, prepare=False)) as log:
        assert Counter("karrot_log_replaced_total", (), 6) in log.counters()


def test_a_set_aside_log_above_the_limit_stays_while_it_is_the_newest(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "events.db").write_bytes(b"x")
    os.truncate(tmp_path / "events.db", MAX_BYTES + 1)
    [(path, _)] = prepare(tmp_path, clock)
    assert Path(path).exists()


def modes(directory: Path) -> dict[str, str]:
    return {each.name: oct(stat.S_IMODE(each.stat().st_mode)) for each in (directory, *directory.iterdir())}


def modes_in_service(directory: Path, clock: ManualClock) -> dict[str, str]:
    with closing(data_directory.hold(directory, wait_s=0)), closing(open_sqlite(directory, clock)) as log:
        append_event(log)
        return modes(directory)


NAMES = ["events.db", "events.db-wal", "events.db-shm", "log-id", "dir.lock", "commit.lock", "leader.lock"]


def test_only_the_owner_can_use_the_directory_and_its_files(tmp_path: Path, clock: ManualClock) -> None:
    assert modes_in_service(tmp_path / "new" / "data", clock) == {"data": "0o700", **dict.fromkeys(NAMES, "0o600")}


def test_the_directory_of_an_older_version_is_closed_to_other_users_once(tmp_path: Path, clock: ManualClock) -> None:
    filled(tmp_path, clock)
    tmp_path.chmod(0o755)
    with capture_logs() as logs:
        for _ in range(2):
            assert modes_in_service(tmp_path, clock)[tmp_path.name] == "0o700"
    assert [each["path"] for each in logs if each.get("code") == "access_removed"] == [str(tmp_path)]


@pytest.mark.parametrize(
    ("before", "after", "is_our_own"),
    [
        *((0o755, 0o700, True), (0o750, 0o750, True)),
        *((0o2775, 0o2770, True), (0o2775, 0o2775, False)),  # a volume of Kubernetes with fsGroup
        *((0o777, 0o777, False), (0o1777, 0o1777, True)),
    ],
)
def test_a_chosen_group_keeps_its_access_and_a_directory_of_another_owner_is_used_as_it_is(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, before: int, after: int, *, is_our_own: bool
) -> None:
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user if is_our_own else user + 1)
    tmp_path.chmod(before)
    assert modes_in_service(tmp_path, clock) == {tmp_path.name: oct(after), **dict.fromkeys(NAMES, "0o600")}


def test_a_directory_is_used_as_it_is_where_nobody_can_change_its_mode(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))  # as on FAT, and on a Windows drive in WSL

    tmp_path.chmod(0o777)
    monkeypatch.setattr(Path, "chmod", refuse)
    with capture_logs() as logs:
        assert prepare(tmp_path, clock) == []
        data_directory.hold(tmp_path).close()
    assert "access_removed" not in [each.get("code") for each in logs]


def test_a_database_of_another_program_is_set_aside(tmp_path: Path, clock: ManualClock) -> None:
    with apsw.Connection(str(tmp_path / "events.db")) as other:
        other.execute("CREATE TABLE recipes (name)")
    assert [reason for _, reason in prepare(tmp_path, clock)] == ["it is a database of another program"]


def test_a_log_without_its_write_ahead_log_still_opens(tmp_path: Path, clock: ManualClock) -> None:
    told = filled(tmp_path, clock)
    for tail in ("-wal", "-shm"):
        (tmp_path / f"events.db{tail}").unlink(missing_ok=True)
    assert prepare(tmp_path, clock) == []
    assert ids_in(tmp_path, clock) == told


def test_the_write_ahead_log_of_a_killed_process_is_recovered(tmp_path: Path, clock: ManualClock) -> None:
    process = CHILDREN.Process(target=append_and_kill_self, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == -9
    log = open_sqlite(tmp_path, clock)
    assert group_names(log) == ["a", "b"]
    log.close()


def test_a_file_of_a_newer_karrot_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    filled(tmp_path, clock)
    with apsw.Connection(str(tmp_path / "events.db")) as file:
        file.execute("PRAGMA user_version=99")
    with pytest.raises(LogUnavailableError, match="schema version 99, but this Karrot supports"):
        prepare(tmp_path, clock)


def test_each_migration_runs_once_and_in_order(tmp_path: Path) -> None:
    file = database.connect(tmp_path / "events.db", max_bytes=MAX_BYTES, create=True)
    older = database.MIGRATIONS
    newer = (*older, "CREATE TABLE more (x); INSERT INTO more VALUES (1)")
    assert database.create_or_migrate(file, ANCHOR, older) == 0
    log_id = file.execute("SELECT log_id FROM log").get
    assert database.create_or_migrate(file, ANCHOR, newer) == len(older)
    assert database.create_or_migrate(file, ANCHOR, newer) == len(newer)
    assert file.execute("SELECT x FROM more").fetchall() == [(1,)]
    assert file.execute("SELECT log_id FROM log").get == log_id
    file.close()


def test_the_time_of_the_last_webhook_becomes_log_time_and_is_not_in_the_future(tmp_path: Path) -> None:
    file = database.connect(tmp_path / "events.db", max_bytes=MAX_BYTES, create=True)
    database.create_or_migrate(file, ANCHOR._replace(wall_ms=9_000_000, log_ms=5_000_000), database.MIGRATIONS[:6])
    file.execute("INSERT INTO heard VALUES ('a minute ago', 8940000), ('set by a wrong clock', 777000000)")
    database.create_or_migrate(file, ANCHOR)
    found = file.execute("SELECT at_ms FROM heard ORDER BY at_ms").fetchall()
    assert found == [(4_940_000,), (5_000_000,)]
    file.close()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    file = database.connect(tmp_path / "events.db", max_bytes=MAX_BYTES, create=True)
    database.create_or_migrate(file, ANCHOR)
    broken = (*database.MIGRATIONS, "CREATE TABLE more (x); INSERT INTO nowhere VALUES (1)")
    with pytest.raises(apsw.SQLError):
        database.create_or_migrate(file, ANCHOR, broken)
    assert file.pragma("user_version") == len(database.MIGRATIONS)
    assert file.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'more'").get == 0
    file.close()


def test_a_second_service_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    first = data_directory.hold(tmp_path, wait_s=0)
    with pytest.raises(LogUnavailableError, match="in use by another Karrot"):
        data_directory.hold(tmp_path, wait_s=0.1)
    first.close()
    data_directory.hold(tmp_path, wait_s=0).close()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        LogUnavailableError, match=r"cannot use the data directory \(KARROT_DATA_DIR\) /.*: Not a directory$"
    ):
        data_directory.hold(tmp_path / "file" / "data")


@pytest.mark.parametrize(
    ("kind", "refused"),
    [("nfs4", True), ("cifs", True), ("fuse.sshfs", True), ("ext4", False), ("fuse.fuse-overlayfs", False)],
)
def test_a_network_file_system_is_refused(tmp_path: Path, clock: ManualClock, kind: str, *, refused: bool) -> None:
    data = tmp_path / "with space" / "data"
    data.mkdir(parents=True)
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"/dev/vda / ext4 rw 0 0\nserver:/x {str(tmp_path).replace(' ', chr(92) + '040')} {kind} rw 0 0\n"
    )
    if refused:
        with pytest.raises(LogUnavailableError, match=f"is on {kind}"):
            data_directory.prepare(data, clock, max_bytes=MAX_BYTES, mounts=mounts)
    else:
        data_directory.prepare(data, clock, max_bytes=MAX_BYTES, mounts=mounts)


def test_a_log_that_could_not_be_read_once_is_not_set_aside(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_sqlite(tmp_path, clock).close()
    failures, check = [apsw.CorruptError("SQLite says this of EIO too")], database.check

    def fail_once(connection: apsw.Connection) -> None:
        if failures:
            raise failures.pop()
        check(connection)

    monkeypatch.setattr(database, "check", fail_once)
    open_sqlite(tmp_path, clock).close()
    assert not list(tmp_path.glob("*.corrupt-*"))


@pytest.mark.parametrize("version", ["3.40.1", "3.51.2"])
def test_an_sqlite_that_can_corrupt_the_log_is_refused(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: version)
    with pytest.raises(LogUnavailableError, match="WAL-reset"):
        data_directory.prepare(tmp_path, clock, max_bytes=MAX_BYTES)


def test_the_query_for_expired_groups_does_not_scan_all_groups(tmp_path: Path) -> None:
    file = database.connect(tmp_path / "events.db", max_bytes=MAX_BYTES, create=True)
    database.create_or_migrate(file, ANCHOR)
    steps = {detail for *_, detail in file.execute(f"EXPLAIN QUERY PLAN {FORGET_GROUPS}")}
    assert "SCAN groups USING INDEX forgettable" in steps  # this index has only the groups that can expire
    assert "SCAN groups" not in steps
    assert "USE TEMP B-TREE FOR ORDER BY" not in steps
    file.close()
