"""A real Alertmanager accepts the example configuration and routes alerts as documented."""

import json
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
import yaml

from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.processes import NotStarted, Server, Servers, wait_until
from karrot.render.prometheus_rules import alert_rules
from support.prometheus.promtool import parse_rules
from support.servers.background_server import serve_in_thread
from support.service.free_ports import free_port
from support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "alertmanager"
CONFIG = EXAMPLE / "alertmanager.yml"
SECRETS = "/etc/alertmanager/secrets"
KARROT = "https://karrot.example.org"
FULL: dict[str, Any] = {"external_url": KARROT, "runbook_url": f"{KARROT}/runbooks"}
ALERTS = {rule["alert"]: rule for rule in parse_rules(alert_rules(**FULL))}
ORDERS = {"cluster": "prod-eu", "consumer": "orders"}
GROUP_PAGE = f"{KARROT}/group?cluster=prod-eu&consumer=orders"
_MISSING = "needs Alertmanager: install Debian's prometheus-alertmanager, or set ALERTMANAGER_BIN"

_DEBIAN_TEMPLATES = Path("/usr/share/prometheus/alertmanager/default.tmpl")
"""The directory in which Debian's server looks for its templates, independent of its own location."""


def amtool(*arguments: str | Path) -> str:
    """Run amtool and return its output. A failure fails the test; without amtool the test is skipped."""
    command = [_server().with_name("amtool"), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


class Alertmanager:
    """A running Alertmanager."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def take(self, alerts: Sequence[dict[str, Any]]) -> None:
        """Post alerts like Prometheus."""
        body = json.dumps(alerts).encode()
        with urlopen(Request(f"{self.url}/api/v2/alerts", body, {"Content-Type": "application/json"})):
            pass

    def states(self) -> dict[str, str]:
        """Return ``active``, ``suppressed`` or ``unprocessed`` for each alert, by name."""
        with urlopen(f"{self.url}/api/v2/alerts") as answer:
            return {each["labels"]["alertname"]: each["status"]["state"] for each in json.load(answer)}

    def is_ready(self) -> bool:
        with suppress(URLError, ConnectionError), urlopen(f"{self.url}/-/ready"):
            return True
        return False


@contextmanager
def alertmanager(config: Path, directory: Path) -> Iterator[Alertmanager]:
    """Start the server with a configuration and wait until it is ready; without the program the test is skipped."""
    running, port = _server(), free_port()
    if running.is_relative_to(default_cache()) and not _DEBIAN_TEMPLATES.exists():
        pytest.skip(_MISSING)
    with Servers(directory) as servers:
        command: list[str | Path] = [running, f"--config.file={config}", f"--storage.path={directory / 'data'}"]
        command += [f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="]
        server: Server = servers.start("alertmanager", command)
        api = Alertmanager(port)
        wait_until(api.is_ready, [server], what="Alertmanager is ready")
        yield api


@cache
def _found() -> Path | None:
    try:
        return Downloads(default_cache()).alertmanager()
    except (NotStarted, OSError):
        return None


def _server() -> Path:
    return _found() or pytest.skip(_MISSING)


def fired(name: str, value: str = "42", **labels: str) -> dict[str, Any]:
    """Return an alert as Prometheus makes it from our rule; only the labels in its templates are filled in."""
    rule = ALERTS[name]

    def filled(text: str) -> str:
        text = re.sub(r"\{\{ with .*\{\{ end \}\}", "", text)
        text = re.sub(r"\{\{ \$labels\.(\w+)(?: \| urlquery)? \}\}", lambda found: labels[found[1]], text)
        return re.sub(r"\{\{ \$value.*?\}\}", value, text)

    return {
        "labels": {"alertname": name, **rule["labels"], **labels},
        "annotations": {key: filled(text) for key, text in rule["annotations"].items()},
        "startsAt": datetime.now(UTC).isoformat(),
    }


def matches(matchers: list[str], name: str, job: str = "") -> bool:
    """Return whether matchers, which may only use ``alertname`` and ``job``, select an alert."""
    for matcher in matchers:
        found = re.fullmatch(r'(alertname|job)(=~|!=|=)"(.*)"', matcher)
        assert found is not None, matcher
        value = name if found[1] == "alertname" else job
        same = re.fullmatch(found[3] if found[2] == "=~" else re.escape(found[3]), value) is not None
        if same == (found[2] == "!="):
            return False
    return True


def test_alertmanager_accepts_the_configuration_and_its_templates() -> None:
    said = amtool("check-config", CONFIG)
    assert " - 4 receivers" in said
    assert " - 1 templates" in said


@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        pytest.param(
            {"alertname": "KarrotConsumerError", "severity": "critical"} | ORDERS,
            "pagerduty,slack",
            id="a critical alert in production",
        ),
        pytest.param(
            {"alertname": "KarrotConsumerLagGrowing", "severity": "warning"} | ORDERS,
            "slack",
            id="a warning in production",
        ),
        pytest.param(
            {"alertname": "KarrotConsumerError", "severity": "critical", "cluster": "staging-eu", "consumer": "orders"},
            "slack",
            id="a critical alert in staging",
        ),
        pytest.param(
            {"alertname": "KarrotMessagesLost", "severity": "critical", "cluster": "prod-us", "consumer": "payments-a"},
            "pagerduty,slack-payments",
            id="a critical alert of payments",
        ),
        pytest.param(
            {"alertname": "KarrotPartitionStopped", "severity": "warning", "cluster": "prod-us"}
            | {"consumer": "payments-a", "status": "STALL"},
            "slack-payments",
            id="a warning of payments",
        ),
        pytest.param(
            {"alertname": "KarrotBurrowSilent", "severity": "critical", "cluster": "prod-eu"},
            "pagerduty,slack",
            id="a silent Burrow",
        ),
        pytest.param({"alertname": "KarrotAbsent", "severity": "critical"}, "pagerduty,slack", id="no Karrot"),
        pytest.param(
            {"alertname": "KarrotReporterBacklog", "severity": "warning", "reporter": "kafka"},
            "slack",
            id="a reporter behind",
        ),
        pytest.param({"alertname": "NodeDown", "severity": "critical"}, "others", id="an alert of another system"),
    ],
)
def test_an_alert_goes_to_the_receiver_in_the_readme(labels: dict[str, str], receivers: str) -> None:
    told = [f"{name}={value}" for name, value in labels.items()]
    assert amtool("config", "routes", "test", f"--config.file={CONFIG}", *told).strip() == receivers


def test_each_of_our_alerts_has_a_receiver_by_its_severity() -> None:
    wanted = {"critical": "pagerduty,slack", "warning": "slack"}
    for name, rule in ALERTS.items():
        labels = [f"alertname={name}", f"severity={rule['labels']['severity']}"]
        found = amtool("config", "routes", "test", f"--config.file={CONFIG}", *labels).strip()
        assert found == wanted[rule["labels"]["severity"]], name


def test_an_inhibition_names_alerts_that_exist_and_none_mutes_itself() -> None:
    rules = yaml.safe_load(CONFIG.read_text())["inhibit_rules"]
    for rule in rules:
        sources = {name for name in ALERTS if matches(rule["source_matchers"], name)}
        targets = {name for name in ALERTS if matches(rule["target_matchers"], name)}
        assert sources, rule
        assert targets, rule
        assert not sources & targets, rule
        for name in re.findall(r"Karrot[A-Z]\w+\b(?![.(])", str(rule["source_matchers"] + rule["target_matchers"])):
            assert name in ALERTS, name


def test_the_alert_on_one_of_several_karrots_mutes_nothing() -> None:
    rules = yaml.safe_load(CONFIG.read_text())["inhibit_rules"]
    muting = [[job for job in ("", "eu") if matches(each["source_matchers"], "KarrotAbsent", job)] for each in rules]
    assert [jobs for jobs in muting if jobs] == [[""]]


def test_the_table_of_the_documentation_lists_the_inhibitions() -> None:
    rules = yaml.safe_load(CONFIG.read_text())["inhibit_rules"]
    page = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
    section = page.partition("## Less noise\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    sources = [{name for name in ALERTS if matches(rule["source_matchers"], name)} for rule in rules]
    assert {name for row in rows for name in re.findall(r"`(Karrot\w+)`", row)} == set().union(*sources)


def test_secrets_are_in_files_that_the_readme_names() -> None:
    text = CONFIG.read_text()
    assert re.findall(r"^\s*(?:- )?(?:api_url|routing_key|service_key):", text, re.MULTILINE) == []
    files = set(re.findall(rf"_file: {SECRETS}/(\S+)", text))
    readme = (EXAMPLE / "README.md").read_text()
    assert files == {"slack-url", "slack-url-payments", "pagerduty-key"}
    assert {name for name in files if f"`{name}`" not in readme} == set()


class Sink:
    """A server for both Slack and PagerDuty that keeps posted bodies, by the last part of the path."""

    def __init__(self) -> None:
        self._posted: list[tuple[str, dict[str, Any]]] = []
        self._lock = threading.Lock()

    def add(self, path: str, body: dict[str, Any]) -> None:
        with self._lock:
            self._posted.append((path.rpartition("/")[2], body))

    def bodies(self, receiver: str) -> list[dict[str, Any]]:
        with self._lock:
            return [body for name, body in self._posted if name == receiver]


@contextmanager
def sinking() -> Iterator[tuple[Sink, str]]:
    sink = Sink()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sink.add(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(202 if self.path.endswith("/enqueue") else 200)
            self.end_headers()
            self.wfile.write(b"{}" if self.path.endswith("/enqueue") else b"ok")

        def log_message(self, *_arguments: object) -> None:
            """Log nothing."""

    with serve_in_thread(HTTPServer(("127.0.0.1", 0), Handler)) as port:
        yield sink, f"http://127.0.0.1:{port}"


def configured(directory: Path, sink_url: str) -> Path:
    """Return the example with the URLs and secrets of this test, and with short waits."""
    (directory / "slack-url").write_text(f"{sink_url}/slack")
    (directory / "slack-url-payments").write_text(f"{sink_url}/slack-payments")
    (directory / "pagerduty-key").write_text("a-routing-key")
    text = CONFIG.read_text().replace(SECRETS, str(directory))
    text = text.replace("group_wait: 30s", "group_wait: 1s").replace("group_interval: 5m", "group_interval: 1s")
    text = text.replace("\nglobal:\n", f"\nglobal:\n  pagerduty_url: {sink_url}/v2/enqueue\n")
    (directory / "karrot.tmpl").write_text((EXAMPLE / "karrot.tmpl").read_text())
    written = directory / "alertmanager.yml"
    written.write_text(text)
    return written


@pytest.mark.e2e
def test_one_incident_gives_one_slack_message_and_one_page_with_links_to_karrot_and_the_runbook(tmp_path: Path) -> None:
    error, lost = fired("KarrotConsumerError", **ORDERS), fired("KarrotMessagesLost", value="1.2k", **ORDERS)
    symptom = fired("KarrotPartitionStopped", status="STALL", **ORDERS)
    with sinking() as (sink, url), alertmanager(configured(tmp_path, url), tmp_path / "server") as server:
        server.take([error, lost, symptom])
        wait_for(lambda: bool(sink.bodies("slack") and sink.bodies("enqueue")))
        assert server.states() == {
            "KarrotConsumerError": "active",
            "KarrotMessagesLost": "active",
            "KarrotPartitionStopped": "suppressed",
        }
        over = datetime.now(UTC).isoformat()
        server.take([each | {"endsAt": over} for each in (error, lost, symptom)])
        wait_for(lambda: len(sink.bodies("slack")) > 1 and len(sink.bodies("enqueue")) > 1)
    fires, resolved = sink.bodies("slack")
    slack_page = GROUP_PAGE.replace("&", "&amp;")
    assert fires["channel"] == "#kafka-lag"
    [shown] = fires["attachments"]
    assert {key: shown[key] for key in ("title", "title_link", "text", "color", "footer")} == {
        "title": "[critical] orders on prod-eu: KarrotConsumerError, KarrotMessagesLost",
        "title_link": GROUP_PAGE,
        "color": "danger",
        "footer": f"since {datetime.fromisoformat(error['startsAt']):%Y-%m-%d %H:%M UTC}",
        "text": (
            "*Consumer group orders on prod-eu is in error*\n"
            "orders on prod-eu has been ERR for 5m or longer. At least one partition is stopped, stalled or rewound, "
            "has an offset past the log end or no committed offset, or waits for an open transaction.\n"
            f"<{slack_page}|Open in Karrot>  <{KARROT}/runbooks/KarrotConsumerError.md|Runbook>\n"
            "*Consumer group orders on prod-eu has lost messages*\n"
            "Kafka deleted 1.2k messages before orders on prod-eu read them.\n"
            f"<{slack_page}|Open in Karrot>  <{KARROT}/runbooks/KarrotMessagesLost.md|Runbook>\n"
        ),
    }
    [ended] = resolved["attachments"]
    assert ended["color"] == "good"
    assert ended["title"].startswith("[resolved] orders on prod-eu: KarrotConsumerError, KarrotMessagesLost")
    paged, closed = sink.bodies("enqueue")
    assert (paged["event_action"], closed["event_action"]) == ("trigger", "resolve")
    assert (paged["routing_key"], paged["dedup_key"]) == ("a-routing-key", closed["dedup_key"])
    assert paged["links"] == [
        {"href": GROUP_PAGE, "text": "Open in Karrot"},
        {"href": f"{KARROT}/runbooks/KarrotConsumerError.md", "text": "Runbook"},
    ]
    payload = paged["payload"]
    assert {key: payload[key] for key in ("summary", "severity", "class", "component", "group")} == {
        "summary": "[critical] orders on prod-eu: KarrotConsumerError, KarrotMessagesLost",
        "severity": "critical",
        "class": "KarrotConsumerError, KarrotMessagesLost",
        "component": "orders",
        "group": "prod-eu",
    }


@pytest.mark.e2e
def test_a_missing_karrot_gives_one_alert_and_a_name_with_markup_mentions_no_channel(tmp_path: Path) -> None:
    absent = fired("KarrotAbsent")
    hostile = fired("KarrotConsumerFlapping", cluster="prod-eu", consumer="<!channel> & co")
    silent = fired("KarrotBurrowSilent", cluster="prod-eu")
    with sinking() as (sink, url), alertmanager(configured(tmp_path, url), tmp_path / "server") as server:
        server.take([hostile])
        wait_for(lambda: bool(sink.bodies("slack")))
        server.take([absent])
        wait_for(lambda: len(sink.bodies("slack")) > 1 and bool(sink.bodies("enqueue")))
        server.take([silent])
        wait_for(lambda: server.states().get("KarrotBurrowSilent") == "suppressed")
        assert server.states()["KarrotConsumerFlapping"] == "suppressed"
    named, missing = sink.bodies("slack")
    title = "[warning] &lt;!channel&gt; &amp; co on prod-eu: KarrotConsumerFlapping"
    assert (named["attachments"][0]["title"], named["attachments"][0]["fallback"]) == (title, title)
    assert named["attachments"][0]["text"].startswith(
        "*Consumer group &lt;!channel&gt; &amp; co on prod-eu fails and recovers over and over*\n"
    )
    assert missing["attachments"][0]["title"] == "[critical] Karrot: KarrotAbsent"
    assert missing["attachments"][0]["text"].endswith(f"\n<{KARROT}/runbooks/KarrotAbsent.md|Runbook>\n")
    [page] = sink.bodies("enqueue")
    assert page["links"] == [{"href": f"{KARROT}/runbooks/KarrotAbsent.md", "text": "Runbook"}]
