"""`karrot doctor` examines the fake Burrow, the real service and a Prometheus over HTTP."""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from karrot.cli import doctor as command
from karrot.cli import main
from karrot.doctor import Finding, Level
from support.burrow.fake_burrow_rig import FakeBurrowRig, fake_burrow, simulated_group
from support.burrow.recorded_bodies import recorded_body
from support.burrow.restartable_burrow import Outage
from support.burrow.viper_config import EXAMPLE
from support.prometheus.fake_prometheus import fake_prometheus
from support.prometheus.prometheus_server import Prometheus, prometheus_binary
from support.service.free_ports import free_port
from support.service.karrot_service import Service
from support.waiting import wait_for

TOKEN = "Bearer s3cret"
TEMPLATES_OWN = b'{"api_key":"","app":"a","block":false,"events":[{"id":"1","event":{"severity":"OK"}}]}'


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("doctor") / "data"
    # One worker, because a second worker shows the first one's counts only after its own next commit.
    with Service(directory, expected_clusters="prod", api_token="s3cret", workers="1") as running:
        yield running


def karrot(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(
        main,
        ("doctor", *arguments),
        env={"KARROT_BURROW_URL": None, "KARROT_URL": None, "KARROT_API_TOKEN": "s3cret", **environ},
    )


def url_of(service: Service) -> str:
    return f"http://127.0.0.1:{service.port}"


def configured(service: Service) -> str:
    return EXAMPLE.replace("http://karrot:5000", url_of(service))


def deliver(asked: FakeBurrowRig, service: Service) -> None:
    """Post the newest event of each group, as Burrow would post it."""
    asked.after(70)
    for post in {each.event.consumer: each for each in asked.fake.due(asked.clock.wall_ms())}.values():
        assert service.post(post.body).status == 202


def target(service: Service, **fields: Any) -> dict[str, Any]:
    return {
        "scrapeUrl": f"{url_of(service)}/metrics",
        "health": "up",
        "labels": {"job": "karrot", "instance": "karrot"},
        "scrapePool": "karrot",
        "lastScrape": datetime.now(UTC).isoformat(),
        "scrapeInterval": "15s",
        "scrapeTimeout": "10s",
        **fields,
    }


def findings(result: Result) -> dict[str, tuple[str, str]]:
    """Return level and sentence by check; of several findings the first, which is the worst."""
    told = json.loads(result.stdout)["findings"]
    return {each["check"]: (each["level"], each["what"]) for each in reversed(told)}


def test_a_healthy_setup_gives_no_fault_and_no_warning(service: Service) -> None:
    with (
        fake_burrow(
            simulated_group("billing"), simulated_group("burrow-prod"), configuration=configured(service)
        ) as asked,
        fake_prometheus(targets=[target(service)]) as scrape,
    ):
        deliver(asked, service)
        sides = ("--burrow", asked.server.url, "--karrot", url_of(service), "--prometheus", scrape)
        result, told = karrot(*sides), findings(karrot(*sides, "--json"))
    assert {level for level, _ in told.values()} == {"ok"}
    assert result.exit_code == 0
    assert result.stdout == f"0 faults, 0 warnings, 0 notes, {len(told)} checks passed (--all shows them)\n"


def test_the_faults_of_all_sides_are_found_in_one_run(service: Service) -> None:
    trapped = (
        configured(service)
        .replace("threshold = 1", "threshold = 2")
        .replace('method-close = "POST"', 'method-close = "DELETE"')
        .replace('template-open = "/etc/burrow/karrot.tmpl"', 'template-open = "conf/default-http-post.tmpl"')
        .replace('cluster = "prod"', 'cluster = "Prod"')
        .replace('kafka-version = "3.6.0"', 'kafka-version = "0.10.2"')
        .replace("interval = 30", "interval = 300", 1)
    )
    assert service.post(TEMPLATES_OWN).status == 400
    wait_for(lambda: b"unsupported_template" in service.get("/api/v1/rejects", {"Authorization": TOKEN}).body)
    with (
        fake_burrow(simulated_group("billing"), configuration=trapped) as asked,
        fake_prometheus(targets=[target(service, health="down")]) as scrape,
    ):
        asked.after(60)
        sides = ("--burrow", asked.server.url, "--karrot", url_of(service), "--prometheus", scrape)
        as_json, as_text = karrot(*sides, "--json"), karrot(*sides)
    assert (as_json.exit_code, as_text.exit_code) == (1, 1)
    told = findings(as_json)
    faults = {name for name, (level, _) in told.items() if level == "fault"}
    assert faults >= {
        *("threshold", "template", "cluster-names", "kafka-version", "stale-after"),
        *("templates-refused", "target"),
    }
    assert told["method"][0] == "warn"
    lines = as_text.stdout.splitlines()
    assert lines[0].startswith("✖ fault  ")
    assert (
        "✖ fault  [notifier.karrot] has threshold 2: Burrow sends only groups in WARN and ERR → "
        "[notifier.karrot] threshold = 1  (docs/burrow.md#why-each-line)"
    ) in lines
    marks = [line[0] for line in lines[:-1]]
    assert marks == sorted(marks, key="✖▲◆".index)
    assert f"{marks.count('✖')} faults, " in lines[-1]


def test_credentials_that_burrow_lacks_are_found(tmp_path: Path) -> None:
    with Service(tmp_path / "data", burrow_username="burrow", burrow_password="p", workers="1") as closed:
        assert closed.post(recorded_body("karrot_v1.9.5_warn.json")).status == 401
        wait_for(lambda: closed.metric("karrot_events_rejected_total", code="unauthorized") == 1)
        with fake_burrow(simulated_group("billing"), configuration=configured(closed)) as asked:
            asked.after(60)
            told = findings(karrot("--burrow", asked.server.url, "--karrot", url_of(closed), "--json"))
    assert told["credentials"] == ("warn", "refused as unauthorized: 1 request since the log began")
    assert told["webhook"][0] == "ok"
    assert told["silent-notifier"] == (
        "fault",
        "Burrow lists 1 group of prod, but Karrot never accepted an event of it",
    )


def test_without_the_token_the_closed_routes_are_named_in_one_warning(service: Service) -> None:
    result = karrot(KARROT_URL=url_of(service), KARROT_API_TOKEN="")
    assert result.exit_code == 1
    [warned] = [line for line in result.stdout.splitlines() if line.startswith("▲ warn   Karrot: ")]
    assert "settings (/config), reporters (/api/v1/reporters), rejects (/api/v1/rejects) could not be read" in warned
    assert "set KARROT_API_TOKEN (or _FILE) in the environment of karrot doctor" in warned


def test_unreachable_sides_are_faults_and_not_tracebacks() -> None:
    urls = [f"http://127.0.0.1:{free_port()}" for _ in range(3)]
    result = karrot("--burrow", urls[0], "--karrot", urls[1], "--prometheus", urls[2])
    assert result.exit_code == 1
    *lines, total = result.stdout.splitlines()
    assert total == "3 faults, 0 warnings, 0 notes, 0 checks passed"
    for line, side, url in zip(lines, ("Burrow", "Karrot", "Prometheus"), urls, strict=True):
        assert line.startswith(f"✖ fault  {side} cannot be read at {url}: no connection: Connection refused → pass ")


def test_a_starting_burrow_is_reported_as_starting(service: Service) -> None:
    with fake_burrow(simulated_group("billing"), configuration=configured(service)) as asked:
        asked.after(60)
        asked.fake.restart(Outage(down=1, starting=20, loading=5))
        asked.after(2)
        starting = findings(karrot("--burrow", asked.server.url, "--json"))
        asked.after(20)
        loading = findings(karrot("--burrow", asked.server.url, "--json"))
    assert (starting["ready"][0], "lists" in starting) == ("warn", False)
    assert loading["lists"] == ("fault", "Burrow lists no group of prod")


@pytest.mark.parametrize(("options", "named"), [(["--karrot", "karrot:5000"], "--karrot"), ([], "KARROT_URL")])
def test_unclear_addresses_are_refused(options: list[str], named: str) -> None:
    nonsense = karrot(*options, KARROT_URL="karrot:5000")
    assert nonsense.exit_code == 2
    assert nonsense.stderr.startswith(f"karrot: {named} is 'karrot:5000': it must be an http://")


def test_without_an_address_the_local_karrot_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setattr(command, "LOCAL_KARROT", url)
    assert f"Karrot cannot be read at {url}" in karrot().stdout


def test_addresses_may_come_from_the_environment() -> None:
    burrow, here = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    said = karrot(KARROT_BURROW_URL=burrow, KARROT_URL=here).stdout
    assert f"Burrow cannot be read at {burrow}" in said
    assert f"Karrot cannot be read at {here}" in said


@pytest.mark.parametrize(
    ("environ", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_a_terminal_gets_colours_unless_its_user_wants_none(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], *, is_coloured: bool
) -> None:
    class Terminal:
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    line = command._line(Finding(Level.FAULT, "lag", "wrong", "mend it", "burrow.md"))
    assert line.startswith("\x1b[31m") is is_coloured


def test_a_terminal_without_utf_8_gets_ascii_marks_and_names_cannot_move_its_cursor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Ascii:
        encoding = "ascii"

        def isatty(self) -> bool:
            return False

    monkeypatch.setattr(sys, "stdout", Ascii())
    (line, total) = command._lines([Finding(Level.FAULT, "lag", "gr\x1b[2Jüp", "mend it", "burrow.md")], with_ok=True)
    assert "x fault" in line
    assert line.endswith("  gr\\x1b[2J\\xfcp -> mend it  (docs/burrow.md)")
    assert total == "1 fault, 0 warnings, 0 notes, 0 checks passed"


@pytest.mark.skipif(prometheus_binary() is None, reason="needs a prometheus, on PATH or named by PROMETHEUS_BIN")
def test_a_real_prometheus_is_read_correctly(service: Service, tmp_path: Path) -> None:
    server = Prometheus(prometheus_binary() or "", tmp_path / "prometheus", service.port)
    labelled = server._config.replace("]}]", '], labels: {cluster: "k8s-1"}}]')
    with fake_burrow(simulated_group("billing"), configuration=configured(service)) as asked:
        deliver(asked, service)
    sides = ("--karrot", url_of(service), "--json", "--prometheus")
    with server:
        url = f"http://{server._address}"
        wait_for(lambda: server.number("count(karrot_consumer_lag)") is not None)
        honest = findings(karrot(*sides, url))
    server._config = labelled
    with server:
        wait_for(lambda: server.number('count(karrot_consumer_lag{exported_cluster!=""})') is not None)
        moved = findings(karrot(*sides, url))
    assert honest["target"] == ("ok", "Prometheus scrapes Karrot")
    assert moved["target"] == ("fault", "Prometheus renames Karrot's label cluster to exported_cluster")
