import os
import resource
import signal
from pathlib import Path

import pytest

from karrot.server import start_gunicorn
from support.service import stopped_at_birth
from support.service.karrot_service import Service
from support.waiting import wait_for

Limits = tuple[int, int]
ENDLESS = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "connections", "after"),
    [
        ((1_024, 524_288), 4_096, (4_224, 524_288)),
        ((1_024, ENDLESS), 4_096, (4_224, ENDLESS)),
        ((1_024, 1_024), 896, (1_024, 1_024)),
        ((1_024, 2_000), 1_872, (2_000, 2_000)),
        ((65_536, 65_536), 4_096, (65_536, 65_536)),
        ((ENDLESS, ENDLESS), 4_096, (ENDLESS, ENDLESS)),
        ((64, 64), 1, (64, 64)),
    ],
)
def test_a_worker_has_at_most_as_many_connections_as_its_limit_of_open_files(
    monkeypatch: pytest.MonkeyPatch, limits: Limits, connections: int, after: Limits
) -> None:
    now = [limits]
    monkeypatch.setattr(resource, "getrlimit", lambda _what: now[0])
    monkeypatch.setattr(resource, "setrlimit", lambda _what, given: now.__setitem__(0, given))
    assert start_gunicorn._connections() == connections
    assert now[0] == after


class StoppedAtBirth(Service):
    program = (stopped_at_birth.__file__,)


def test_a_worker_that_is_stopped_right_after_its_start_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    monkeypatch.setenv("STOPPED_AT_BIRTH", str(file))
    with StoppedAtBirth(tmp_path / "data", workers="1", event_log="memory") as service:
        file.touch()
        for pid in service.workers():
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: service.said.read_text().count("Worker exiting") == 1)
        wait_for(service.ready)
        assert not file.exists()
        assert service.stop() == 0
