"""On a full volume events are refused with the reason, all else works, and events are taken again after a cleanup."""

import json
import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from support.burrow.recorded_bodies import padded_warn_body, warn_body
from support.service.karrot_service import Service
from support.service.small_volume import small_volume
from support.waiting import wait_for

VOLUME_BYTES = 20 << 20
SPARE_BYTES = 6 << 20
REFUSED = {"code": "log_unavailable", "status": 503}


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    with small_volume(tmp_path / "volume", VOLUME_BYTES) as path:
        yield path


def fill_what_is_left(volume: Path) -> None:
    with (volume / "last-bytes").open("ab", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            return


def post_until_refused(service: Service) -> tuple[list[str], int]:
    """Post large events until every event is refused; return the acknowledged groups and the number of refusals."""
    acknowledged: list[str] = []
    refused = in_a_row = 0
    for number in count():
        answer = service.post(padded_warn_body(f"g{number}", 100_000))
        if answer.status == 202:
            acknowledged.append(f"g{number}")
            in_a_row = 0
        else:
            assert REFUSED.items() <= json.loads(answer.body).items()
            refused, in_a_row = refused + 1, in_a_row + 1
            fill_what_is_left(service.directory)
        if in_a_row > 3 and writable(service) == 0 and log_state(service) == (503, "failing"):
            return acknowledged, refused  # before, a smaller commit found room in between
    raise AssertionError("unreachable")


def writable(service: Service) -> float | None:
    return service.metric("karrot_log_writable")


def log_state(service: Service) -> tuple[int, str]:
    ready = service.get("/readyz")
    return ready.status, ready.json["components"]["log"]["state"]


def test_a_full_volume_refuses_only_events_until_there_is_space(volume: Path) -> None:
    spare = volume / "spare"
    spare.write_bytes(b"\0" * SPARE_BYTES)
    # One worker: each worker sets karrot_log_writable from its own commits, and a worker without commits cannot set it.
    with Service(volume, max_log_bytes="1GiB", workers="1") as service:
        acknowledged, refused = post_until_refused(service)
        assert len(acknowledged) > 20
        for path in ("/", "/api/v1/groups", f"/group?cluster=prod-eu&consumer={acknowledged[-1]}", "/healthz"):
            assert service.get(path).status == 200, path
        assert service.metric("karrot_consumer_lag", consumer=acknowledged[-1]) == 11_020

        spare.unlink()
        (volume / "last-bytes").unlink()
        answers: list[int] = []

        def is_taken() -> bool:
            answers.append(service.post(warn_body("after")).status)
            return answers[-1] == 202

        wait_for(is_taken)
        assert set(answers) <= {202, 503}
        refused += answers.count(503)
        wait_for(service.ready)
        wait_for(lambda: writable(service) == 1)
        wait_for(lambda: service.metric("karrot_events_rejected_total", code="log_unavailable") == refused)
        assert service.metric("karrot_log_pruned_total") in (None, 0)
        assert service.stop() == 0
    assert set(service.stored_consumers()) >= {*acknowledged, "after"}


def test_a_log_with_a_limit_below_the_volume_drops_the_oldest_events_and_takes_all_new_ones(volume: Path) -> None:
    with Service(volume, max_log_bytes="6MiB") as service:
        assert {service.post(padded_warn_body(f"g{number}", 100_000)).status for number in range(300)} == {202}
        assert writable(service) == 1
        assert (service.metric("karrot_log_pruned_total") or 0) > 200
        assert service.stop() == 0
    stored = service.stored_consumers()
    assert list(stored) == [f"g{number}" for number in range(300 - len(stored), 300)]


@pytest.mark.parametrize("end", [Service.stop, Service.kill])
def test_a_service_that_starts_on_a_full_volume_shows_what_it_knows_and_takes_events_again_when_there_is_space(
    volume: Path, end: Callable[[Service], object]
) -> None:
    with Service(volume, workers="1") as service:
        assert service.post(warn_body("before")).status == 202
        end(service)
        fill_what_is_left(volume)
        service.start(wait=False)
        wait_for(lambda: answers(service))

        def refuses() -> bool:
            fill_what_is_left(volume)  # the start merges the write-ahead log, which frees some space
            refused = service.post(padded_warn_body("full", 100_000)).status == 503
            return refused and (writable(service), log_state(service)) == (0, (503, "failing"))

        wait_for(refuses)
        for path in ("/", "/api/v1/groups", "/group?cluster=prod-eu&consumer=before", "/healthz"):
            assert service.get(path).status == 200, path
        assert service.metric("karrot_consumer_lag", consumer="before") == 11_020

        (volume / "last-bytes").unlink()
        wait_for(lambda: service.post(warn_body("after")).status == 202)
        wait_for(lambda: service.ready() and writable(service) == 1)
        seen = service.get("/api/v1/group?cluster=prod-eu&consumer=before").json["events"][0]["event_id"]
        later = service.get("/api/v1/group?cluster=prod-eu&consumer=after").json["events"][0]["event_id"]
        assert seen.partition("-")[0] != later.partition("-")[0]  # as after each start
        assert service.stop() == 0
    assert set(service.stored_consumers()) >= {"before", "after"}


def test_a_service_without_a_log_does_not_start_on_a_full_volume_but_can_be_started_again(volume: Path) -> None:
    fill_what_is_left(volume)
    service = Service(volume)
    service.start(wait=False)
    assert service.process is not None
    assert service.process.wait(30) == os.EX_TEMPFAIL
    assert "the volume is full" in service.said.read_text() or "No space left" in service.said.read_text()


def answers(service: Service) -> bool:
    assert service.process is not None
    assert service.process.poll() is None, service.said.read_text()
    try:
        return service.get("/healthz").status == 200
    except OSError:
        return False
