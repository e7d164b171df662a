"""The cloudwatch reporter in the real service, with processes, signals and real time, sends to the strict fake."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from karrot.clock import SystemClock
from support.burrow.recorded_bodies import warn_body
from support.reporters.cloudwatch_reporter_rig import point_aws_at
from support.reporters.injected_faults import HANG, HANG_AFTER_KEEPING, UNRECOGNIZED_CLIENT
from support.reporters.scripted_cloudwatch import ScriptedCloudWatch
from support.service.karrot_service import Service
from support.waiting import wait_for

_END_WITHIN_S = 15  # the promise is 10 seconds; on a busy machine the processes need longer to end


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedCloudWatch]:
    with ScriptedCloudWatch(clock_ms=SystemClock().wall_ms) as serving:
        point_aws_at(serving, monkeypatch)
        yield serving


def publishing(directory: Path, **settings: str) -> Service:
    told = {"cloudwatch_interval": "1", "cloudwatch_resolution": "1"} | settings
    return Service(directory / "data", arguments=(), reporters="prometheus,cloudwatch", **told)


def points(fake: ScriptedCloudWatch, consumer: str) -> list[Any]:
    return fake.points("Karrot", "Lag", {"Cluster": "prod-eu", "ConsumerGroup": consumer})


def post(service: Service, *consumers: str) -> None:
    assert {service.post(warn_body(consumer)).status for consumer in consumers} == {202}


def cloudwatch(service: Service) -> Any:
    reporters = service.get("/api/v1/reporters").json["reporters"]
    return next(each for each in reporters if each["name"] == "cloudwatch")


def leader(service: Service) -> int:
    """Return the process id of the leader, which holds the lock."""
    inode = (service.directory / "leader.lock").stat().st_ino
    held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    (pid,) = [int(lock[4]) for lock in held if lock[5].endswith(f":{inode}")]
    return pid


def test_a_posted_event_is_in_cloudwatch_a_second_later(fake: ScriptedCloudWatch, tmp_path: Path) -> None:
    with publishing(tmp_path) as service:
        before_ms = SystemClock().wall_ms()
        for number in range(20):
            post(service, f"g{number}")
        after_ms = SystemClock().wall_ms()
        wait_for(lambda: all(points(fake, f"g{number}") for number in range(20)))
        wait_for(lambda: cloudwatch(service)["backlog_events"] == 0)
    for number in range(20):
        (point,) = points(fake, f"g{number}")
        assert point.value == 11_020
        assert before_ms <= point.timestamp_ms <= after_ms
    beats = fake.points("Karrot", "Heartbeat", {"Cluster": "prod-eu"})
    assert {point.value for point in beats} == {1.0}
    assert {datum.resolution for datum in fake.accepted} == {1}
    assert {call.status for call in fake.calls} == {200}


def test_a_leader_killed_between_call_and_cursor_may_send_a_datum_twice_but_loses_none(
    fake: ScriptedCloudWatch, tmp_path: Path
) -> None:
    with publishing(tmp_path) as service:
        post(service, "a")
        wait_for(lambda: bool(points(fake, "a")))
        fake.script(HANG_AFTER_KEEPING)
        post(service, "kept")
        wait_for(lambda: bool(points(fake, "kept")))
        os.kill(leader(service), signal.SIGKILL)
        post(service, "later")
        wait_for(lambda: len(points(fake, "kept")) == 2)
        wait_for(lambda: bool(points(fake, "later")))
    assert len(set(points(fake, "kept"))) == 1


def test_sigterm_sends_owed_data(fake: ScriptedCloudWatch, tmp_path: Path) -> None:
    with publishing(tmp_path, cloudwatch_interval="120") as service:
        post(service, "first")
        wait_for(lambda: bool(points(fake, "first")))
        post(service, "last")
        assert service.stop(_END_WITHIN_S) == 0
    assert [point.value for point in points(fake, "last")] == [11_020]


def test_sigterm_ends_within_ten_seconds_while_cloudwatch_hangs_and_the_next_start_sends(
    fake: ScriptedCloudWatch, tmp_path: Path
) -> None:
    fake.stand(HANG)
    with publishing(tmp_path) as service:
        post(service, "a")
        wait_for(lambda: bool(fake.calls))
        assert service.stop(_END_WITHIN_S) == 0
        fake.clear()
        service.start()
        wait_for(lambda: bool(points(fake, "a")))


def test_refused_credentials_are_reported_and_events_are_still_accepted(
    fake: ScriptedCloudWatch, tmp_path: Path
) -> None:
    fake.stand(UNRECOGNIZED_CLIENT)
    with publishing(tmp_path) as service:
        post(service, "a")
        wait_for(lambda: cloudwatch(service)["state"] == "failing")
        ready = service.get("/readyz")
        assert ready.status == 200
        assert ready.json["components"]["reporter cloudwatch"] == {"state": "failing"}
        told = cloudwatch(service)
        assert "security token" in told["last_error"]
        assert told["backlog_events"] == 1
        assert service.metric("karrot_reporter_failures_total", reporter="cloudwatch", reason="credentials") == 1
        post(service, "b")
