"""``karrot notify`` sends a test message, and prints what the event log would have sent."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from karrot import mutes
from karrot.clock import SystemClock
from support.eventlog.appended_events import append_event
from support.eventlog.mutes import make_mute
from support.eventlog.sqlite_log import open_sqlite
from support.karrot_command import run_karrot
from support.manual_clock import ManualClock
from support.reporters.notify_rig import Receiver
from support.servers.background_server import serve_in_thread


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    with serve_in_thread(server):
        yield server


@pytest.fixture
def settings(tmp_path: Path, receiver: Receiver) -> dict[str, str]:
    (tmp_path / "notify.toml").write_text(f'[channels.ops]\nurl = "{receiver.url("s3cret")}"\n')
    return {"KARROT_NOTIFY_CONFIG": str(tmp_path / "notify.toml"), "KARROT_DATA_DIR": str(tmp_path / "data")}


def test_a_test_message_says_what_happened(settings: dict[str, str], receiver: Receiver) -> None:
    ran = run_karrot("notify", "--test", "ops", env=settings)
    assert (ran.exit_code, ran.stdout) == (0, "channel ops: the service accepted the message\n")
    assert receiver.messages("/s3cret") == ["Test message of Karrot\nChannel: ops"]
    receiver.status = 403
    refused = run_karrot("notify", "--test", "ops", env=settings)
    assert (refused.exit_code, refused.stderr) == (1, "karrot: channel ops: the server answered 403 (unauthorized)\n")
    unknown = run_karrot("notify", "--test", "dev", env=settings)
    assert unknown.exit_code == 2
    assert "'dev' is not a channel of" in unknown.stderr


def test_a_dry_run_prints_the_messages_of_the_last_day_and_sends_none(
    settings: dict[str, str], receiver: Receiver
) -> None:
    assert "--dry-run needs an event log in SQLite" in run_karrot("notify", "--dry-run", env=settings).stderr
    Path(settings["KARROT_DATA_DIR"]).mkdir()
    clock = ManualClock(wall=SystemClock().wall_ms() - 30 * 3_600_000)
    log = open_sqlite(Path(settings["KARROT_DATA_DIR"]), clock)
    for hours, status, consumer in (
        (0, "WARN", "old"),
        (28, "WARN", "orders"),
        (1, "ERR", "orders"),
        (0, "OK", "orders"),
    ):
        clock.advance(hours * 3_600_000)
        append_event(log, consumer=consumer, status_text=status, observed_at_ms=clock.wall_ms(), incident_id=consumer)
        clock.advance(600_000)
    log.close()
    ran = run_karrot("notify", "--dry-run", env=settings)
    assert ran.exit_code == 0, ran.stderr
    told = [line.partition(": ")[2] for line in ran.stdout.splitlines() if " ops: " in line]
    assert told == [
        "WARN: orders on prod-eu",
        "Worse, ERR: orders on prod-eu",
        "Over: orders on prod-eu",
    ]
    assert receiver.seen == []


def test_a_dry_run_knows_the_mutes_that_last_and_the_silence_of_a_cluster(settings: dict[str, str]) -> None:
    Path(settings["KARROT_DATA_DIR"]).mkdir()
    clock = ManualClock(wall=SystemClock().wall_ms() - 5 * 3_600_000)
    log = open_sqlite(Path(settings["KARROT_DATA_DIR"]), clock)

    def tell(status: str, *consumers: str, minutes: int = 1) -> None:
        for _ in range(minutes):
            for consumer in consumers:
                now_ms = clock.wall_ms()
                append_event(log, consumer=consumer, status_text=status, observed_at_ms=now_ms, incident_id=consumer)
            clock.advance(60_000)

    tell("ERR", "orders", "muted", "deleted", "silent")
    mutes.begin(log, make_mute(clock, cluster="prod-eu", pattern="muted*", seconds=86_400))
    tell("ERR", "muted-2", "orders", "deleted", "silent")
    tell("NOTFOUND", "deleted")
    tell("OK", "muted")
    clock.advance(2 * 3_600_000)  # the whole cluster is silent, so no incident ends
    tell("ERR", "orders", minutes=10)
    log.close()
    ran = run_karrot("notify", "--dry-run", env=settings)
    assert ran.stderr == "Mutes that have ended are not known: their groups are not silent here.\n"
    lines = [line.split(" ops: ") for line in ran.stdout.splitlines() if " ops: " in line]
    assert sorted(title for _, title in lines) == [
        *(f"ERR: {name} on prod-eu" for name in ("deleted", "muted", "orders", "silent")),
        *(f"Over: {name} on prod-eu" for name in ("deleted", "silent")),
    ]
    # after the outage, a group is over when its cluster has had verdicts for five minutes
    assert lines[-1][1] == "Over: silent on prod-eu"
    assert datetime.fromisoformat(lines[-1][0]) - datetime.fromisoformat(lines[0][0]) > timedelta(hours=2, minutes=5)


@pytest.mark.parametrize("arguments", [(), ("--test", "ops", "--dry-run")])
def test_the_command_needs_one_of_its_two_options(settings: dict[str, str], arguments: tuple[str, ...]) -> None:
    ran = run_karrot("notify", *arguments, env=settings)
    assert ran.exit_code == 2
    assert "give --test CHANNEL or --dry-run" in ran.stderr
