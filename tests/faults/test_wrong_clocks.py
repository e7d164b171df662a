"""A wall clock that jumps, or that is wrong on one replica, does not hide a silent Burrow."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import pytest

from support.burrow.recorded_bodies import warn_body
from support.eventlog.postgres_server import running_postgres
from support.service import shifted_clock
from support.service.karrot_service import Service
from support.service.postgres_service import PostgresService
from support.waiting import wait_for

HOUR_S = 3600
TEN_YEARS_S = 315_360_000
CLUSTER = "prod-eu"


class ShiftedService(Service):
    program = (shifted_clock.__file__,)


class ShiftedReplica(PostgresService):
    program = (shifted_clock.__file__,)


def now(service: Service) -> float:
    return datetime.fromisoformat(service.get("/heartbeat").json["time"]).timestamp()


def heard_at(service: Service) -> float:
    at = service.metric("karrot_last_event_timestamp_seconds", cluster=CLUSTER)
    assert at is not None
    return at


@pytest.fixture
def shift(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "shift"
    file.write_text("0")
    monkeypatch.setenv("SHIFTED_CLOCK", str(file))
    return file


def test_the_time_of_the_last_webhook_is_right_again_when_the_clock_is(shift: Path, tmp_path: Path) -> None:
    with ShiftedService(tmp_path / "data") as service:
        before = now(service)
        assert service.post(warn_body("orders")).status == 202
        shift.write_text(str(TEN_YEARS_S))
        assert before + TEN_YEARS_S - 1 <= heard_at(service) <= now(service)  # as long ago as before
        assert service.post(warn_body("orders")).status == 202
        shift.write_text("0")
        assert before - 1 <= heard_at(service) <= now(service)
        service.stop()
        service.start()
        assert before - 1 <= heard_at(service) <= now(service)
        assert service.post(warn_body("orders")).status == 202
        assert before - 1 <= heard_at(service) <= now(service)


@pytest.fixture
def replicas(shift: Path, tmp_path: Path) -> Iterator[tuple[Service, Service]]:
    """Two replicas over one PostgreSQL. The clock of the second one is an hour ahead."""
    with running_postgres() as server, ExitStack() as started:
        right = started.enter_context(PostgresService(tmp_path / "right", server, "karrot"))
        shift.write_text(str(HOUR_S))
        yield right, started.enter_context(ShiftedReplica(tmp_path / "ahead", server, "karrot"))


def test_replicas_whose_clocks_differ_show_the_same_age_of_the_last_webhook(replicas: tuple[Service, Service]) -> None:
    right, ahead = replicas
    assert now(ahead) - now(right) > HOUR_S / 2
    for poster in (right, ahead, right):
        before = now(right)
        assert poster.post(warn_body("orders")).status == 202
        for shown_by, shift_s in ((right, 0), (ahead, HOUR_S)):
            wait_for(lambda: heard_at(shown_by) - shift_s >= before - 1)  # noqa: B023 - it is called at once
            assert heard_at(shown_by) <= now(shown_by)
