"""The archive of a real service survives kills at any moment and a full disk."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from karrot.clock import SystemClock
from karrot.delivery import Delivery
from karrot.event_json_line import event_of
from karrot.eventlog.base import Cursor
from karrot.reporters.archive import build
from support.eventlog.appended_events import append_event
from support.eventlog.sqlite_log import open_sqlite
from support.reporters.archive_folder import read_archive, segment_names
from support.reporters.reporter_context import make_context
from support.service.karrot_service import Service
from support.service.posting_threads import PostingThreads
from support.service.small_volume import small_volume
from support.waiting import wait_for


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    with small_volume(tmp_path / "volume", 1 << 20) as path:
        yield path


def test_acknowledged_events_are_archived_once_however_often_the_service_is_killed(tmp_path: Path) -> None:
    archive = tmp_path / "data" / "archive"
    acknowledged: set[str] = set()
    service = Service(
        tmp_path / "data",
        reporters="prometheus,archive",
        archive_segment_seconds="1",
        archive_segment_bytes="64KiB",
        retention="1h",
    )
    for _ in range(2):
        with service, PostingThreads(service) as load:
            before = len(segment_names(archive))
            wait_for(lambda before=before: len(segment_names(archive)) > before + 3)  # type: ignore[misc]
            service.kill()  # while segments are being written
        acknowledged |= set(load.acknowledged)
    with service:
        wait_for(lambda: len(service.workers()) == 2)
        os.kill(
            service.workers()[0], signal.SIGKILL
        )  # one of the two workers leads; if it was this one, the other takes over
        wait_for(lambda: service.metric("karrot_reporter_backlog_events", reporter="archive") == 0)
        assert str(archive) in service.get("/reporters/archive", {"Accept": "text/html"}).body.decode()
        assert service.stop() == 0
    lines = sorted(read_archive(archive), key=lambda line: line.seq)
    assert len({line.log_id for line in lines}) == 2  # one for each start with events
    assert len(acknowledged) > 100
    assert [line.seq for line in lines] == list(range(1, len(lines) + 1))
    assert Counter(line.consumer for line in lines) == service.stored_consumers()
    assert acknowledged <= {line.consumer for line in lines}


def test_a_full_disk_is_reported_and_loses_no_event(volume: Path, tmp_path: Path) -> None:
    filler = volume / "filler"
    filler.write_bytes(bytes(900 << 10))
    (tmp_path / "data").mkdir()
    clock = SystemClock()
    log = open_sqlite(tmp_path / "data", clock)
    settings = {"dir": str(volume / "archive"), "segment_seconds": "1"}
    incompressible = [os.urandom(150 << 10).hex() for _ in range(2)]
    for text in incompressible:
        append_event(log, extras=(("noise", text),))
    context = replace(make_context("archive", settings, log=log), clock=clock)
    delivery = Delivery(log, {"archive": lambda: build(context)}, clock)
    delivery.start()
    try:
        wait_for(lambda: [each.state for each in log.reporters()] == ["failing"])
        assert log.reporters()[0].last_error == "a segment cannot be written: No space left on device"
        assert segment_names(volume / "archive") == []
        assert list(volume.rglob("*.part")) == []
        filler.unlink()
        wait_for(lambda: log.cursor("archive") == Cursor(log.log_id, 2))
    finally:
        delivery.stop()
    kept = [event_of(line).event.extras for line in read_archive(volume / "archive")]
    assert kept == [(("noise", text),) for text in incompressible]
    log.close()
