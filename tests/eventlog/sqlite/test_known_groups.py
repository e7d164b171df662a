from contextlib import closing
from pathlib import Path

from karrot.event import GroupKey
from karrot.eventlog.sqlite.known_groups import known_groups
from support.eventlog.appended_events import append_event
from support.eventlog.sqlite_log import open_sqlite
from support.manual_clock import ManualClock


def test_the_groups_of_a_log_that_is_in_use_are_seen_without_those_that_were_deleted(tmp_path: Path) -> None:
    with closing(open_sqlite(tmp_path, ManualClock())) as log:
        append_event(log, consumer="a")
        append_event(log, consumer="b")
        append_event(log, consumer="b", status_text="NOTFOUND", incident_id=None)
        assert known_groups(tmp_path) == [GroupKey("prod-eu", "a")]


def test_where_there_is_no_log_there_are_no_groups_and_none_is_made(tmp_path: Path) -> None:
    assert known_groups(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "events.db").write_bytes(b"not a database at all, but long enough to look at" * 10)
    assert known_groups(tmp_path) == []
