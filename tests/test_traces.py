"""The tests of Karrot that Karrot itself suggests leave no trace, and a cluster that is gone can be forgotten."""

import html
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from karrot.burrow.payload import to_wire
from karrot.doctor import read_all
from karrot.doctor.read_karrot import KarrotSeen
from karrot.event import TEST_CLUSTERS
from support.burrow.lag_events import make_event
from support.eventlog.postgres_server import running_postgres
from support.karrot_command import run_karrot
from support.service.karrot_service import Service
from support.service.postgres_service import PostgresService
from support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[1]
OLD_AFTER: dict[str, Any] = {"stale_after": "8s", "workers": "1"}
TOKENS: dict[str, Any] = {"burrow_token": "canary-burrow", "api_token": "canary-reader"}
POSTER = {"Authorization": f"Bearer {TOKENS['burrow_token']}"}
READER = {"Authorization": f"Bearer {TOKENS['api_token']}", "Accept": "text/html"}
ENVIRONMENT = {f"KARROT_{name.upper()}": value for name, value in TOKENS.items()}
OPEN: dict[str, str] = {}


def verdict(cluster: str, group: str = "orders") -> bytes:
    return to_wire(make_event(cluster=cluster, consumer=group, status_text="OK", incident_id=None, partitions=()))


@contextmanager
def healthy_burrow(service: Service, headers: dict[str, str] = OPEN) -> Iterator[None]:
    """A Burrow that posts a verdict on ``prod-eu`` again and again."""
    stopped = threading.Event()

    def run() -> None:
        while not stopped.wait(0.2):
            with suppress(OSError, HTTPException):  # while the service restarts
                service.post(verdict("prod-eu"), headers)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def page(service: Service, headers: dict[str, str] = OPEN) -> str:
    return html.unescape(service.get("/", {"Accept": "text/html", **headers}).body.decode())


def words(service: Service, headers: dict[str, str] = OPEN) -> str:
    """The text of the page."""
    return " ".join(re.sub(r"<[^>]*>", "", page(service, headers)).split())


def alarms(service: Service, headers: dict[str, str] = OPEN) -> list[str]:
    """The banners of the page and the red words of its status line."""
    return re.findall(r'class="banner[^"]*"|class="silent"', page(service, headers))


def metrics(service: Service) -> str:
    return service.get("/metrics").body.decode()


def address(service: Service) -> str:
    return f"http://127.0.0.1:{service.port}"


def examined(service: Service, env: dict[str, str] = OPEN) -> tuple[int, str]:
    found = run_karrot("doctor", "--karrot", address(service), env=env)
    return found.exit_code, found.stdout


def try_everything(service: Service) -> None:
    """Do what the documents, the first page and `helm test` suggest."""
    curl = re.search(r"curl -i .*?</code>", page(service), re.DOTALL)
    assert curl is not None
    subprocess.run(["bash", "-ec", curl[0].removesuffix("</code>")], capture_output=True, timeout=60, check=True)
    for status in ("ERR", "WARN", "OK"):
        assert (
            run_karrot("send-sample", "--karrot", address(service), "--status", status, "--count", "12").exit_code == 0
        )


def test_a_test_is_shown_until_it_is_old_and_leaves_no_trace(tmp_path: Path) -> None:
    with Service(tmp_path / "data", **OLD_AFTER) as service:
        try_everything(service)
        wait_for(
            lambda: "No group is known now 13 groups are tests and have no metrics." in words(service), every_s=0.2
        )
        assert alarms(service) == []
        with healthy_burrow(service):
            wait_for(lambda: "The only group is OK 13 more groups are tests" in words(service), every_s=0.2)
            assert_no_trace(service)
            wait_for(lambda: len(service.get("/api/v1/groups").json["groups"]) == 1, every_s=0.2)
            wait_for(lambda: "groups are tests" not in words(service), every_s=0.2)
            assert [name for name in TEST_CLUSTERS if f" {name} " in words(service)] == []
            assert_no_trace(service)
            service.stop()
            service.start()
            wait_for(lambda: "Burrow of prod-eu heard" in words(service), every_s=0.2)
            assert_no_trace(service)


def assert_no_trace(service: Service) -> None:
    assert alarms(service) == []
    told = metrics(service)
    assert [name for name in TEST_CLUSTERS if f'cluster="{name}"' in told] == []
    assert service.metric("karrot_webhook_events_total", kind="incident") == 0
    assert service.metric("karrot_consumers") == 1
    seen = read_all(None, address(service)).karrot
    assert isinstance(seen, KarrotSeen)
    assert {each.cluster for each in seen.groups or ()} == {"prod-eu"}
    assert examined(service)[0] == 0


def test_the_alert_and_the_test_of_the_chart_name_the_same_clusters() -> None:
    rules = (ROOT / "templates/prometheus/alerts.yaml").read_text()
    assert f'karrot_last_event_timestamp_seconds{{cluster!~"{"|".join(TEST_CLUSTERS)}"}}[1h]' in rules
    assert f"?cluster={TEST_CLUSTERS[0]}&" in (ROOT / "helm/karrot/files/read_back.py").read_text()


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def replicas(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Service]]:
    """One service on SQLite, or two replicas on PostgreSQL. The last one is asked."""
    settings = OLD_AFTER | TOKENS
    with ExitStack() as started:
        if request.param == "SQLite":
            yield [started.enter_context(Service(tmp_path / "data", **settings))]
        else:
            server = started.enter_context(running_postgres())
            names = ("one", "two")
            yield [
                started.enter_context(PostgresService(tmp_path / name, server, "karrot", **settings)) for name in names
            ]


def test_a_cluster_is_forgotten_in_every_replica_and_after_a_restart_until_it_posts_again(
    replicas: list[Service],
) -> None:
    first, last = replicas[0], replicas[-1]
    assert first.post(verdict("prod-old"), POSTER).status == 202
    with healthy_burrow(first, POSTER):
        wait_for(lambda: "Burrow of prod-old silent for" in words(last, READER), every_s=0.2)
        assert "If the cluster is gone, run karrot forget-cluster." in words(last, READER)
        status, said = examined(last, ENVIRONMENT)
        assert (status, "run karrot forget-cluster prod-old" in said) == (1, True)
        assert forget("prod-old", first) == 'prod-old karrot-forget-cluster deleted: 202 {"status":"accepted"}\n'
        for each in replicas:
            assert_forgotten(each)
        assert first.post(verdict("prod-old"), POSTER).status == 202
        for name in ("karrot_consumer_lag", "karrot_last_event_timestamp_seconds"):
            wait_for(lambda name=name: last.metric(name, cluster="prod-old") is not None)  # type: ignore[misc]
        assert forget("prod-old", first, "--yes").startswith("prod-old orders deleted: 202")
        first.stop()
        first.start()
        for each in replicas:
            assert_forgotten(each)


def test_a_cluster_that_karrot_does_not_know_is_named_and_not_called_deleted(tmp_path: Path) -> None:
    with Service(tmp_path / "data", expected_clusters="prod-eu,prod-us") as service:
        assert service.post(verdict("prod-eu", "orders")).status == 202
        for unknown in ("pord-eu", "prod-us"):
            done = run_karrot("forget-cluster", unknown, "--karrot", address(service), env=ENVIRONMENT)
            assert (done.exit_code, done.stdout) == (1, "")
            assert f"Karrot knows no cluster '{unknown}'" in done.stderr
        assert service.metric("karrot_consumer_lag", cluster="prod-eu") is not None
        assert "prod-eu orders deleted: 202" in forget("prod-eu", service, "--yes")
        again = run_karrot("forget-cluster", "prod-eu", "--karrot", address(service), env=ENVIRONMENT)
        assert again.exit_code == 1


def test_all_groups_of_a_cluster_are_forgotten_however_many_pages_list_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("karrot.doctor.reader_helpers._PAGE", 2)
    monkeypatch.setattr("karrot.doctor.reader_helpers.GROUPS_READ", 4)
    with Service(tmp_path / "data") as service:
        for number in range(7):
            assert service.post(verdict("prod-old", f"group-{number}")).status == 202
        assert len(forget("prod-old", service, "--yes").splitlines()) == 7
        assert service.get("/api/v1/groups").json["groups"] == []


def test_an_empty_name_of_a_cluster_forgets_nothing() -> None:
    done = run_karrot("forget-cluster", "", "--karrot", "http://127.0.0.1:1", env=ENVIRONMENT)
    assert (done.exit_code, "Name the cluster." in done.stderr) == (2, True)


def test_a_cluster_that_still_sends_is_forgotten_only_on_demand(tmp_path: Path) -> None:
    with Service(tmp_path / "data") as service:
        assert service.post(verdict("prod-eu", "orders")).status == 202
        done = run_karrot("forget-cluster", "prod-eu", "--karrot", address(service), env=ENVIRONMENT)
        assert (done.exit_code, done.stdout) == (1, "")
        assert re.search("'prod-eu' still sends: its newest event came [0-9]+ s ago, and the next one", done.stderr)
        assert service.metric("karrot_consumer_lag", cluster="prod-eu") is not None
        assert service.post(verdict("prod-eu", "a\nb\x1b[2J")).status == 202
        assert forget("prod-eu", service, "--yes").splitlines() == [
            r'prod-eu a\nb\x1b[2J deleted: 202 {"status":"accepted"}',
            'prod-eu orders deleted: 202 {"status":"accepted"}',
        ]


def forget(cluster: str, service: Service, *options: str) -> str:
    done = run_karrot("forget-cluster", cluster, "--karrot", address(service), *options, env=ENVIRONMENT)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def assert_forgotten(service: Service) -> None:
    wait_for(lambda: 'cluster="prod-old"' not in metrics(service))
    wait_for(lambda: "prod-old" not in words(service, READER), every_s=0.2)
    wait_for(lambda: alarms(service, READER) == [], every_s=0.2)
    assert examined(service, ENVIRONMENT)[0] == 0


def test_a_cluster_is_not_forgotten_without_the_credentials(tmp_path: Path) -> None:
    with Service(tmp_path / "data", **TOKENS) as service:
        assert service.post(verdict("prod-old"), POSTER).status == 202
        for missing, sentence in (("KARROT_API_TOKEN", "/api/v1/groups: HTTP 401"), ("KARROT_BURROW_TOKEN", "401")):
            known = {name: value for name, value in ENVIRONMENT.items() if name != missing}
            found = run_karrot("forget-cluster", "prod-old", "--yes", "--karrot", address(service), env=known)
            assert (found.exit_code, found.stdout) == (1, "")
            assert sentence in found.stderr
        assert service.metric("karrot_consumer_lag", cluster="prod-old") is not None
        assert service.metric("karrot_last_event_timestamp_seconds", cluster="prod-old") is not None


def test_only_a_posted_cluster_of_this_name_is_a_test_and_it_can_be_forgotten_at_once(tmp_path: Path) -> None:
    with Service(tmp_path / "data") as service:
        for cluster in TEST_CLUSTERS:
            assert service.post(verdict(cluster, "watched"), {"Karrot-Source": "kafka"}).status == 202
            assert service.post(verdict(cluster, "posted")).status == 202
            assert service.metric("karrot_consumer_lag", cluster=cluster, consumer="watched") is not None
        seen = read_all(None, address(service)).karrot
        assert isinstance(seen, KarrotSeen)
        assert [each.consumer for each in seen.groups or ()] == ["watched"] * 2
        assert "try posted deleted: 202" in forget("try", service)
        names = [(each["cluster"], each["consumer"]) for each in service.get("/api/v1/groups").json["groups"]]
        assert names == [("karrot-sample", "posted"), ("karrot-sample", "watched")]
