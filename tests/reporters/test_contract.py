"""The contract of docs/reporters.md, for each push reporter: no event is lost, whatever fails at any moment."""

import importlib.util
import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karrot.delivery import Feed
from karrot.event_json_line import decode
from karrot.eventlog.base import READ_LIMIT, Cursor
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.reporters.archive.local_folder import Folder
from karrot.reporters.archive.reporter import ArchiveReporter
from karrot.reporters.archive.segment_store import SegmentName, StoreError
from karrot.reporters.base import Context, PushReporter, Unreported
from karrot.reporters.kafka import reporter as kafka
from karrot.reporters.stdout import StdoutReporter
from karrot.settings.options import Archive, Kafka
from support.eventlog.appended_events import append_event, append_many
from support.manual_clock import ManualClock
from support.reporters.archive_folder import read_archive
from support.reporters.reporter_context import make_context

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Destination:
    """A destination in a folder. While it is away, it accepts at most one event of a report."""

    folder: Path
    context: Context
    away: bool = False
    got: list[str] = field(default_factory=list)

    def build(self) -> PushReporter:
        raise NotImplementedError

    def seqs(self) -> list[int]:
        return [int(event_id.rpartition("-")[2]) for event_id in self.got]


class ToStdout(Destination):
    def build(self) -> PushReporter:
        return StdoutReporter(SimpleNamespace(write=self.write, flush=lambda: None))  # type: ignore[arg-type]

    def write(self, line: bytes) -> None:
        if self.away:
            raise BrokenPipeError
        self.got.append(json.loads(line)["event_id"])


class ToArchive(Destination):
    def build(self) -> PushReporter:
        folder = Folder(self.folder)
        put = folder.put

        def put_if_there(name: SegmentName, data: bytes) -> None:
            if self.away:
                raise StoreError("full", "there is no space")
            put(name, data)

        folder.put = put_if_there  # type: ignore[method-assign]
        return ArchiveReporter(Archive(self.folder, segment_bytes=65_536), folder, self.context)

    def seqs(self) -> list[int]:
        return [line.seq for line in read_archive(self.folder)]


class ToKafka(Destination):
    def build(self) -> PushReporter:
        topic: Any = SimpleNamespace(send=self.send, close=lambda: None)
        return kafka.KafkaReporter(Kafka(("a:9092",)), lambda: topic, self.context)

    def send(self, messages: Sequence[kafka.Message]) -> list[kafka.Outcome]:
        taken = messages[: 1 if self.away else None]
        self.got += [decode(each.value).event_id for each in taken]
        failed = kafka.Failed("_transport", "nobody is there")
        return [kafka.Written(0, 0) if number < len(taken) else failed for number in range(len(messages))]


class ExamplePackage(Destination):
    def build(self) -> PushReporter:
        spec = importlib.util.spec_from_file_location("example", ROOT / "examples" / "reporter" / "karrot_textfile.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.os = SimpleNamespace(fsync=self.sync)  # type: ignore[attr-defined]
        reporter: PushReporter = module.TextfileReporter(self.folder / "events.txt")
        return reporter

    def sync(self, _file: int) -> None:
        if self.away:
            raise OSError("the disk is away")

    def seqs(self) -> list[int]:
        lines = (self.folder / "events.txt").read_text().splitlines()
        return [int(line.split()[0].rpartition("-")[2]) for line in lines]


class ExampleOnThePage(Destination):
    def build(self) -> PushReporter:
        (code,) = re.findall(
            r"```python\n(.*class Pager.*?)```", (ROOT / "docs" / "reporters.md").read_text(), re.DOTALL
        )
        page = ModuleType("page")
        exec(code, vars(page))
        reporter: PushReporter = page.Pager(self.context, self.call)
        return reporter

    def call(self, event_id: str, text: str) -> bool:
        assert text.endswith(" is WARN")
        if not self.away:
            self.got.append(event_id)
        return not self.away


KINDS: Sequence[Callable[..., Destination]] = (ToStdout, ToArchive, ToKafka, ExamplePackage, ExampleOnThePage)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@dataclass
class Rig:
    """One reporter after another, with the cursor in the log."""

    kind: Callable[..., Destination]
    folder: Path
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.log = MemoryEventLog(self.clock)
        self.destination = self.kind(self.folder, make_context("stdout", log=self.log, clock=self.clock))
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.feed.close()

    def start(self) -> None:
        self.feed = Feed("it", self.log, self.clock, Random(1), self.destination.build)
        self.feed.reporter = self.feed.build()

    def run(self) -> None:
        self.clock.advance(60_000)
        while self.feed.step() == 0:
            pass

    def crash(self) -> None:
        """Let the reporter report without a move of the cursor, and start another one."""
        assert self.feed.reporter is not None
        with suppress(Exception):
            events = Unreported(self.log, self.log.cursor("it") or Cursor(self.log.log_id, 0))
            if events.peek() is not None:
                self.feed.reporter.report(events)
        self.feed.reporter.close()
        self.start()


@each_kind
def test_it_is_a_push_reporter_and_can_be_closed_without_a_report(
    kind: Callable[..., Destination], tmp_path: Path
) -> None:
    with Rig(kind, tmp_path) as rig:
        assert isinstance(rig.feed.reporter, PushReporter)
        assert rig.feed.reporter.every_s >= 0


@each_kind
def test_a_long_backlog_is_reported_once_and_in_order(kind: Callable[..., Destination], tmp_path: Path) -> None:
    with Rig(kind, tmp_path) as rig:
        append_many(rig.log, READ_LIMIT + 20)
        rig.run()
    assert rig.destination.seqs() == list(range(1, READ_LIMIT + 21))
    assert rig.log.cursor("it") == Cursor(rig.log.log_id, READ_LIMIT + 20)


@each_kind
def test_a_destination_that_is_away_gets_the_events_later_and_the_reporter_is_failing_until_then(
    kind: Callable[..., Destination], tmp_path: Path
) -> None:
    with Rig(kind, tmp_path) as rig:
        for _ in range(3):
            append_event(rig.log)
        rig.destination.away = True
        rig.run()
        (state,) = rig.log.reporters()
        assert (state.state, state.cursor) == ("failing", None)
        rig.destination.away = False
        rig.run()
        assert list(dict.fromkeys(rig.destination.seqs())) == [1, 2, 3]
        (state,) = rig.log.reporters()
        assert (state.state, state.cursor) == ("ok", Cursor(rig.log.log_id, 3))


@each_kind
@settings(max_examples=15)
@given(
    happenings=st.lists(st.sampled_from(["append", "append", "run", "away", "back", "crash", "restart"]), max_size=15)
)
def test_every_event_is_reported_and_a_later_one_never_before_an_earlier_one(
    kind: Callable[..., Destination], happenings: list[str]
) -> None:
    with TemporaryDirectory() as folder, Rig(kind, Path(folder)) as rig:
        for happening in [*happenings, "append", "back", "run"]:
            match happening:
                case "append":
                    append_event(rig.log)
                case "run":
                    rig.run()
                case "crash":
                    rig.crash()
                case "restart":
                    rig.feed.close()
                    rig.start()
                case _:
                    rig.destination.away = happening == "away"
        assert list(dict.fromkeys(rig.destination.seqs())) == list(range(1, rig.log.size().last_seq + 1))
        assert rig.log.cursor("it") == Cursor(rig.log.log_id, rig.log.size().last_seq)
