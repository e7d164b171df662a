"""A power cut loses no acknowledged event, gives no event id twice, and leaves an archive that is right.

A real service is recorded under load, with kills. Then its disk is cut off at random places of the recording, and
Karrot starts on what can be left. ``TESTS_POWER_CUTS=300`` makes 300 cuts instead of 24.
"""

import os
import signal
import sys
import zlib
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import apsw
import pytest

from karrot.clock import SystemClock
from karrot.eventlog.base import Cursor
from karrot.telemetry import LOG_LOST_EVENTS
from support.eventlog.appended_events import append_event, stored_events
from support.eventlog.sqlite_log import open_sqlite
from support.manual_clock import ManualClock
from support.powercut.recording import Recording
from support.powercut.replay import Cut, check, cuts
from support.reporters.archive_folder import archive_feed, read_archive, segment_names
from support.service.karrot_service import Service
from support.service.posting_threads import PostingThreads
from support.waiting import wait_for

LOG_BYTES = 1 << 30
CUTS = int(os.environ.get("TESTS_POWER_CUTS", "24"))


class Acknowledged(list[str]):
    """The acknowledged events, and how long the recording was when each answer had come."""

    def __init__(self, recording: Recording) -> None:
        self.at: dict[str, int] = {}
        self._recording = recording

    def append(self, name: str) -> None:
        super().append(name)
        self.at[name] = self._recording.position()


@dataclass
class Findings:
    """What a start found on a disk after a cut."""

    checked: int = 0
    lost: int = 0
    wrong: Counter[str] = field(default_factory=Counter)


@dataclass
class Recorded:
    recording: Recording
    acknowledged: dict[str, int]
    consumers: dict[str, str]
    """The consumer of each event id that was ever given."""

    def start_after(self, place: Path, cut: Cut, findings: Findings, *, earlier: int = 0) -> None:
        """Start on the disk after a cut, archive the rest, and compare.

        Events count as acknowledged if their answer came before the cut, or at most ``earlier`` bytes after it.
        """
        data, clock = place / "data", ManualClock(SystemClock().wall_ms())
        expected = {name for name, at in self.acknowledged.items() if at - earlier <= cut.at}
        data.mkdir(exist_ok=True)
        with closing(open_sqlite(data, clock, max_bytes=LOG_BYTES)) as log:
            cursor, events = log.cursor("archive"), stored_events(log)
            stored = Counter(event.event.consumer for event in events)
            findings.checked += len(expected)
            findings.lost += len(expected - stored.keys())
            wrong = {
                "a stored event is doubled": max(stored.values(), default=0) > 1,
                "the log was set aside": any(data.glob("*.corrupt*")),
                "an event id has two events": any(
                    self.consumers.get(event.event_id) != event.event.consumer for event in events
                ),
                "a segment is torn": not _is_whole(data / "archive"),
            }
            if not any(wrong.values()):
                archived = {line.event_id for line in read_archive(data / "archive")}
                passed = {event.event_id for event in events if cursor and event.seq <= cursor.seq}
                added = append_event(log, consumer="after the cut")
                assert log.lead()
                feed = archive_feed(log, clock, data / "archive")
                while feed.step() == 0 or (log.cursor("archive") or Cursor("", 0)).seq < added.seq:
                    clock.advance(60_000)
                feed.close()
                all_archived = Counter(line.consumer for line in read_archive(data / "archive"))
                wrong |= {
                    "the cursor passed an event that is not archived": bool(passed - archived),
                    "an event id is given twice": f"{log.log_id}-{added.seq}" in self.consumers,
                    "an archived event is doubled": max(all_archived.values()) > 1,
                    "a lost event is counted": any(each.name == LOG_LOST_EVENTS.name for each in log.counters()),
                    "a stored event is never archived": bool(expected & stored.keys() - all_archived.keys()),
                }
        with closing(apsw.Connection(str(data / "events.db"))) as connection:
            wrong["the file is damaged"] = connection.pragma("integrity_check") != "ok"
        findings.wrong.update(what for what, is_found in wrong.items() if is_found)


def _is_whole(archive: Path) -> bool:
    try:
        read_archive(archive)
    except (AssertionError, EOFError, OSError, zlib.error):
        return False
    return True


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    scratch = tmp_path_factory.mktemp("recorded")
    recording = Recording.of(scratch)
    with pytest.MonkeyPatch.context() as environment:
        for name, text in recording.begin().items():
            environment.setenv(name, text)
        service = Service(recording.folder / "data", reporters="prometheus,archive", archive_segment_seconds="1s")
        service.said = scratch / "said.log"
        with service, PostingThreads(service, 6) as load:
            load.acknowledged = acknowledged = Acknowledged(recording)
            load.reach(600)
            os.kill(service.workers()[0], signal.SIGKILL)
            load.reach(600)
            service.kill()
            service.start()
            load.reach(600)
            wait_for(lambda: len(segment_names(recording.folder / "data" / "archive")) > 5)
            assert service.stop() == 0
    check(recording)
    with closing(open_sqlite(recording.folder / "data", ManualClock(), prepare=False, max_bytes=LOG_BYTES)) as log:
        consumers = {event.event_id: event.event.consumer for event in stored_events(log)}
    return Recorded(recording, acknowledged.at, consumers)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("many", [CUTS, pytest.param(max(CUTS, 300), marks=pytest.mark.deep)])
def test_a_power_cut_loses_and_doubles_nothing(recorded: Recorded, tmp_path: Path, many: int) -> None:
    findings = Findings()
    for cut in cuts(recorded.recording, Random(many), many, tmp_path / "cut"):
        recorded.start_after(tmp_path / "cut", cut, findings)
    sys.stdout.write(f"{many} cuts: {findings}\n")
    assert (findings.lost, findings.wrong) == (0, Counter())
    assert findings.checked > many * 100


@pytest.mark.deep
@pytest.mark.parametrize(("flushes", "earlier"), [(False, 0), (True, 60_000)], ids=["no flush", "early answers"])
def test_a_service_that_flushes_nothing_or_answers_too_early_is_found(
    recorded: Recorded, tmp_path: Path, *, flushes: bool, earlier: int
) -> None:
    """Otherwise, the test above could not fail."""
    findings = Findings()
    for cut in cuts(recorded.recording, Random(7), 12, tmp_path / "cut", flushes=flushes):
        recorded.start_after(tmp_path / "cut", cut, findings, earlier=earlier)
    assert findings.lost > 0
    assert flushes or findings.wrong["a segment is torn"] > 0
