"""The whole service, as processes, keeps every acknowledged event whichever process is killed."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.burrow.recorded_bodies import recorded_body, recorded_posts, warn_body
from support.service.karrot_service import Service
from support.service.posting_threads import PostingThreads, assert_nothing_is_lost
from support.waiting import wait_for

WARN = recorded_body("karrot_v1.9.5_warn.json")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path / "data") as service:
        yield service


def test_the_recorded_conversation_gives_the_expected_metrics(service: Service) -> None:
    story = []
    for _, body in recorded_posts():
        assert service.post(body).status == 202
        if b"skewed-consumer-group" in body:
            group = service.get("/api/v1/group?cluster=stack&consumer=skewed-consumer-group").json
            incident = group["incident"]
            story.append((group["lag"], group["status"], incident and incident["id"][:8]))
    assert story[:6] == [
        (759, "WARN", "2acd55a9"),
        (808, "WARN", "2acd55a9"),
        (808, "ERR", "2acd55a9"),
        (0, "OK", None),
        (0, "OK", None),
        (0, "OK", None),
    ]
    assert set(story[3:]) == {(0, "OK", None)}
    assert len(story) == 20
    assert service.metric("karrot_consumer_incidents_total", consumer="skewed-consumer-group") == 1
    assert service.metric("karrot_consumer_lag", consumer="burrow-stack") is None
    assert service.metric("karrot_burrow_self_lag", cluster="stack") == 0
    wait_for(lambda: service.metric("karrot_events_accepted_total", source="webhook") == 40)


def test_every_worker_shows_the_same_data(service: Service) -> None:
    for number in range(20):
        assert service.post(warn_body(f"g{number}")).status == 202
        assert service.metric("karrot_consumer_lag", consumer=f"g{number}") == 11_020
    wait_for(lambda: {service.metric("karrot_events_accepted_total", source="webhook") for _ in range(6)} == {20})


def test_a_killed_worker_loses_no_event_and_another_leads(tmp_path: Path) -> None:
    with Service(tmp_path / "data", reporters="prometheus,stdout") as service:
        with PostingThreads(service) as load:
            for _ in range(4):
                load.reach(60)
                os.kill(service.workers()[0], signal.SIGKILL)
            load.reach(200)
        assert_nothing_is_lost(service, load)
        wait_for(lambda: set(load.acknowledged) <= set(re.findall(r'"consumer":"([^"]+)"', service.said.read_text())))


def test_a_killed_service_keeps_acknowledged_events(tmp_path: Path) -> None:
    service = Service(tmp_path / "data")
    service.start()
    try:
        with PostingThreads(service) as load:
            for _ in range(3):
                load.reach(100)
                service.kill()
                service.start()
            load.reach(50)
        assert_nothing_is_lost(service, load)
    finally:
        service.kill()


def test_a_killed_parent_leaves_orphans_that_its_successor_waits_for(service: Service) -> None:
    with PostingThreads(service) as load:
        load.reach(50)
        orphans = service.workers()
        os.kill(service.pid, signal.SIGKILL)
        assert service.process is not None
        service.process.wait()
        service.start(wait=False)
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in orphans))
        wait_for(service.ready)
        load.reach(50)
    assert_nothing_is_lost(service, load)


def test_sigterm_under_load_ends_cleanly(service: Service) -> None:
    with PostingThreads(service) as load:
        load.reach(100)
        assert service.stop() == 0
    assert_nothing_is_lost(service, load)


def test_a_reload_loses_no_event_and_applies_new_settings(tmp_path: Path) -> None:
    config = tmp_path / "karrot.toml"
    config.write_text('exclude_consumers = "^nobody$"\n')
    with Service(tmp_path / "data", arguments=("--config", str(config))) as service, PostingThreads(service) as load:
        load.reach(50)
        first = set(service.workers())
        config.write_text('exclude_consumers = "^0-"\n')
        os.kill(service.pid, signal.SIGHUP)
        wait_for(lambda: len(service.workers()) == 2 and not first & set(service.workers()), 30)
        load.reach(50)
        body = service.get("/metrics").body
        assert b'consumer="1-' in body
        assert b'consumer="0-' not in body
        assert load.broken == 0
    assert set(load.answers) == {202}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with a file of settings, which the tests leave as it was."""
    directory = tmp_path_factory.mktemp("running")
    (directory / "karrot.toml").write_text("")
    with Service(directory / "data", arguments=("--config", str(directory / "karrot.toml"))) as service:
        yield service


def refused_reload(service: Service, settings: str) -> str:
    """Reload these settings, and return the line that refuses them; the service goes on."""

    def refusals() -> list[str]:
        return [line for line in service.said.read_text().splitlines() if "the new settings are refused" in line]

    config = service.directory.with_name("karrot.toml")
    config.write_text(settings)
    before = len(refusals())
    os.kill(service.pid, signal.SIGHUP)
    wait_for(lambda: len(refusals()) > before)
    config.write_text("")
    wait_for(service.ready)
    assert service.post(WARN).status == 202
    refusal = refusals()[-1]
    assert "the old ones stay" in refusal
    return refusal


def test_a_bad_reload_keeps_the_old_settings(running: Service) -> None:
    problem = refused_reload(running, 'max_consumers = "many"\nbind = "127.0.0.1:1"\n')
    assert "max_consumers" in problem
    assert "many" in problem


def test_a_second_service_on_the_same_directory_fails_with_the_reason(running: Service) -> None:
    second = Service(running.directory)
    wait = "from karrot.eventlog.sqlite import data_directory; data_directory.hold.__defaults__ = (0.2,)"
    second.program = ("-c", f"{wait}; from karrot.cli import main; main()")
    second.start(wait=False)
    assert second.process is not None
    assert second.process.wait(30) == os.EX_TEMPFAIL
    assert "is in use by another Karrot" in second.said.read_text()


def test_a_taken_port_is_reported_in_one_line(running: Service, tmp_path: Path) -> None:
    second = Service(tmp_path / "other", workers="1")
    second.port = running.port
    second.start(wait=False)
    assert second.process is not None
    assert second.process.wait(30) == os.EX_TEMPFAIL
    assert second.said.read_text().splitlines()[-1] == (
        f"karrot: cannot listen on 127.0.0.1:{running.port}: Address already in use; choose another address with "
        "--bind HOST:PORT or KARROT_BIND"
    )


@pytest.fixture
def junk(tmp_path: Path) -> Path:
    """A file that is not a certificate."""
    file = tmp_path / "junk.pem"
    file.write_text("junk")
    return file


def test_an_invalid_certificate_is_refused_at_the_start(tmp_path: Path, junk: Path) -> None:
    refused = Service(tmp_path / "refused", tls_cert=str(junk), tls_key=str(junk))
    refused.start(wait=False)
    assert refused.process is not None
    assert refused.process.wait(30) == 2
    assert "KARROT_TLS_CERT and KARROT_TLS_KEY are not a certificate and its private key" in refused.said.read_text()


def test_an_invalid_certificate_is_refused_at_a_reload(running: Service, junk: Path) -> None:
    refused_reload(running, f'tls_cert = "{junk}"\ntls_key = "{junk}"\n')


def test_a_memory_log_needs_no_directory(tmp_path: Path) -> None:
    with Service(tmp_path / "data", event_log="memory", workers="1") as service:
        assert service.post(WARN).status == 202
        assert service.metric("karrot_consumer_lag", consumer="orders-svc") == 11_020
        assert not service.directory.exists()


def test_a_failed_start_ends_with_one_sentence(tmp_path: Path) -> None:
    service = Service(tmp_path / "data", exclude_consumers="(", workers="1")
    service.start(wait=False)
    assert service.process is not None
    assert service.process.wait(30) == 2
    said = service.said.read_text()
    assert said.startswith("karrot: KARROT_EXCLUDE_CONSUMERS is '('")
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("event_log", "postgresql://karrot@127.0.0.1:1/karrot", "cannot connect to PostgreSQL"),
        ("data_dir", "/proc/not-mounted-yet", "cannot use the data directory (KARROT_DATA_DIR) /proc/not-mounted-yet"),
    ],
)
def test_a_start_that_can_succeed_later_does_not_end_like_one_with_wrong_settings(
    tmp_path: Path, name: str, value: str, reason: str
) -> None:
    service = Service(tmp_path / "data", arguments=(), workers="1", **{name: value})
    service.start(wait=False)
    assert service.process is not None
    assert service.process.wait(60) == os.EX_TEMPFAIL
    assert service.said.read_text().splitlines()[-1].startswith(f"karrot: {reason}")


def test_a_start_does_not_wait_for_kafka_and_burrow(tmp_path: Path) -> None:
    away = {"watch_bootstrap": "127.0.0.1:1", "watch_cluster": "prod-eu", "burrow_url": "http://127.0.0.1:1"}
    with Service(tmp_path / "data", arguments=(), workers="1", **away) as service:
        assert service.post(WARN).status == 202
