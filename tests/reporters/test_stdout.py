import io
import json

from karrot.eventlog.base import Cursor
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.reporters.base import PushReporter, Unreported
from karrot.reporters.stdout import StdoutReporter, build
from support.eventlog.appended_events import append_event
from support.manual_clock import ManualClock
from support.reporters.reporter_context import make_context


def test_stdout_gets_one_line_of_json_per_event() -> None:
    clock = ManualClock()
    log = MemoryEventLog(clock)
    append_event(log, total_lag=2**64 - 1)
    append_event(log, consumer="grüppe\n", status_text="OK", incident_id=None, total_lag=None)
    stream = io.BytesIO()
    StdoutReporter(stream).report(Unreported(log, Cursor(log.log_id, 0)))
    first, second = stream.getvalue().splitlines()
    assert json.loads(first) == {
        "event_id": f"{log.log_id}-1",
        "received_at_ms": clock.wall,
        "source": "webhook",
        "cluster": "prod-eu",
        "consumer": "orders-svc",
        "status": "WARN",
        "kind": "incident",
        "total_lag": 2**64 - 1,
        "partition_count": 12,
        "incident_id": "8d5c0c9e-52a1-4d67-9a54-0f6a2b6f3c11",
    }
    assert json.loads(second)["consumer"] == "grüppe\n"
    assert json.loads(second)["total_lag"] is None


def test_a_name_cannot_command_the_terminal() -> None:
    log = MemoryEventLog(ManualClock())
    hidden = "a\x1b[2J\x7f\x85\x9b31m\u202eb\u2066"
    append_event(log, consumer=hidden)
    stream = io.BytesIO()
    StdoutReporter(stream).report(Unreported(log, Cursor(log.log_id, 0)))
    line = stream.getvalue().decode()
    assert line.removesuffix("\n").isprintable()
    assert json.loads(line)["consumer"] == hidden


def test_stdout_is_a_push_reporter() -> None:
    assert isinstance(build(make_context("stdout")), PushReporter)
