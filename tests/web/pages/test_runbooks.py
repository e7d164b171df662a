"""Karrot serves the runbooks as pages, and other pages link to them."""

import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from tempfile import NamedTemporaryFile
from urllib.parse import quote

import pytest

from karrot.event import Source
from karrot.eventlog.base import ReporterState
from karrot.render import runbooks_dir, templates_dir
from karrot.render.prometheus_rules import alert_rules
from karrot.reporters.prometheus.group_metrics import promql_text
from karrot.runbooks_and_remedies import DOCS_URL
from karrot.web.pages import runbooks
from support.burrow.lag_events import make_event, make_partition
from support.prometheus.promtool import parse_rules
from support.web.credentials import make_credentials
from support.web.website import Website, make_website

ALERTS = {rule["alert"]: rule["labels"]["severity"] for rule in parse_rules(alert_rules())}
DOCS = Path(__file__).resolve().parents[3] / "docs"
HTML = {"Accept": "text/html"}


def read(website: Website, path: str) -> str:
    answer = website.client.get(path, headers=HTML)
    assert (answer.status_code, answer.content_type) == (200, "text/html; charset=utf-8"), path
    return answer.text


def article(page: str) -> str:
    found = re.search(r"</header>\n(.*)</article>", page, re.DOTALL)
    assert found is not None
    return found[1]


def linked(page: str) -> list[str]:
    """Return the runbooks that the main part of a page links to."""
    return re.findall(r'href="/runbooks/(\w+)["?]', page.partition("<main")[2])


@pytest.mark.parametrize("name", ALERTS)
def test_the_runbook_of_an_alert_is_a_page_with_and_without_md(name: str) -> None:
    website = make_website()
    page = read(website, f"/runbooks/{name}")
    assert read(website, f"/runbooks/{name}.md") == page
    assert re.findall(r"<h1>.*?</svg>(\w+)</span> (\w+)</h1>", page, re.DOTALL) == [(ALERTS[name], name)]
    assert re.findall(r"<h2>(.*?)</h2>", article(page)) == ["What to check", "What to do"]


def test_the_index_has_every_alert_in_the_order_of_the_rules() -> None:
    page = read(make_website(), "/runbooks")
    assert linked(page) == list(ALERTS)
    assert "Consumer group <var>consumer</var> on <var>cluster</var> is in error" in page
    assert "{{" not in page


def test_links_between_runbooks_stay_in_karrot_and_others_lead_to_the_documentation() -> None:
    website = make_website()
    targets = {
        target
        for name in ALERTS
        for target in re.findall(r'<a href="([^"]*)"', article(read(website, f"/runbooks/{name}")))
    }
    here = {target for target in targets if target.startswith("/")}
    assert here
    assert all(website.client.get(target).status_code == 200 for target in here)
    documents = {target.partition("#")[0].removeprefix(f"{DOCS_URL}/") for target in targets - here}
    assert {"data-directory.md", "cloudwatch.md", "reference/codes.md"} <= documents
    assert [document for document in documents if not (DOCS / document).is_file()] == []


def test_unsafe_html_and_links_in_markdown_are_not_rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(runbooks_dir(), tmp_path / "runbooks")
    hostile = (
        "# KarrotAbsent\n\n<script>alert(1)</script> [x](javascript:alert(1)) `{{ 7*7 }}`\n\n| a |\n| --- |\n| b |\n"
    )
    (tmp_path / "runbooks" / "KarrotAbsent.md").write_text(hostile, encoding="utf-8")
    monkeypatch.setattr(runbooks, "runbooks_dir", lambda: tmp_path / "runbooks")
    shown = article(read(make_website(), "/runbooks/KarrotAbsent"))
    assert "&lt;script&gt;alert(1)&lt;/script&gt; [x](javascript:alert(1)) <code>{{ 7*7 }}</code>" in shown
    assert "<td>b</td>" in shown


@pytest.mark.parametrize("name", ["KarrotNothing", "..%2Falerts", "KarrotAbsent.txt", "karrotabsent"])
def test_an_unknown_runbook_is_not_found_and_the_page_links_to_the_index(name: str) -> None:
    answer = make_website().client.get(f"/runbooks/{name}", headers=HTML)
    assert answer.status_code == 404
    assert 'href="/runbooks"' in answer.text


def test_runbooks_need_the_token_if_one_is_set() -> None:
    client = make_website(credentials=make_credentials(api_token="read-me")).client
    for path in ("/runbooks", "/runbooks/KarrotAbsent"):
        assert client.get(path).status_code == 401
        assert client.get(path, headers={"Authorization": "Bearer read-me"}).status_code == 200


def test_the_links_of_a_runbook_have_the_url_prefix() -> None:
    website = make_website(external_url="https://tools.example/karrot")
    for path in ("/runbooks", "/runbooks/KarrotBurrowSilent"):
        page = read(website, f"/karrot{path}")
        assert page == read(website, path)
        links = re.findall(r'(?:href|src)="([^"]*)"', page)
        assert [each for each in links if not each.startswith(("/karrot/", "#", DOCS_URL))] == []


def test_the_rules_link_to_runbooks_that_karrot_serves() -> None:
    website = make_website()
    for address in ("https://karrot.example/runbooks", "https://karrot.example/runbooks/"):
        rules = list(parse_rules(alert_rules(runbook_url=address)))
        for rule in rules:
            path = rule["annotations"]["runbook_url"].removeprefix("https://karrot.example")
            assert rule["alert"] in read(website, path)


def test_the_worst_group_and_its_page_link_the_runbook_of_the_cause() -> None:
    website = make_website()
    website.context.intake.accept(make_event(partitions=(make_partition(status_text="STOP"),)))
    assert linked(read(website, "/")) == ["KarrotPartitionStopped"]
    group = "/group?cluster=prod-eu&consumer=orders-svc"
    assert linked(read(website, group)) == ["KarrotPartitionStopped"]
    website.clock.advance(website.context.stale_after_ms * 3 // 4)
    assert linked(read(website, group)) == ["KarrotConsumerVanished", "KarrotPartitionStopped"]


PLAIN = {"cluster": "CLUSTER", "consumer": "GROUP", "topic": "TOPIC"}
SETTINGS = {"KARROT_WATCH_BOOTSTRAP": "b-1:9094,b-2:9094", "KARROT_BURROW_URL": "https://burrow.internal"}
HOSTILE = {
    "cluster": "eu'; touch /tmp/x; '",
    "consumer": 'a\nrm -rf ~ #`id`$(id)\\ & "b" <i> %0a',
    "topic": "t\r'$(id)'\n",
}


def filled(name: str, cluster: str, consumer: str, topic: str) -> str:
    """Return the page of a runbook that is filled in for a group with these names."""
    bad = make_partition(topic=topic, partition=7, status_text="STALL")
    settings = SETTINGS | {"KARROT_WATCH_CLUSTER": cluster}
    website = make_website(external_url="https://tools.example/karrot", effective_settings=lambda: settings)
    event = make_event(cluster=cluster, consumer=consumer, status_text="ERR", partitions=(bad,), max_lag=bad)
    website.context.intake.accept(event)
    query = {"cluster": cluster, "consumer": consumer}
    return website.client.get(f"/runbooks/{name}", query_string=query, headers=HTML).text


def code(page: str, language: str) -> list[str]:
    return [unescape(each) for each in re.findall(rf'<code class="language-{language}">(.*?)</code>', page, re.DOTALL)]


def words(script: str) -> list[list[str]]:
    """Let a shell without any program run a script, and return the words of each command."""
    catch = "command_not_found_handle() { printf '%s\\0' \"$@\" '' >>\"$WORDS\"; }\n"
    with NamedTemporaryFile() as kept:
        environment = {"PATH": "/nowhere", "WORDS": kept.name}
        subprocess.run(["/bin/bash", "-c", catch + script], env=environment, capture_output=True, check=False)
        commands = Path(kept.name).read_bytes().decode().split("\0\0")
    return sorted(command.split("\0") for command in commands if command)


def hostile_form(word: str) -> str:
    for part, name in HOSTILE.items():
        word = word.replace(PLAIN[part], quote(name, safe="") if "://" in word else name)
    return word


@pytest.mark.parametrize("name", ALERTS)
def test_a_runbook_of_a_group_has_its_names_whatever_they_are(name: str) -> None:
    plain, hostile = filled(name, **PLAIN), filled(name, **HOSTILE)
    assert "<i>" not in hostile
    for one, other in zip(code(plain, "shell"), code(hostile, "shell"), strict=True):
        assert len(one.splitlines()) == len(other.splitlines())
        assert words(other) == sorted([hostile_form(word) for word in command] for command in words(one))
    for one, other in zip(code(plain, "promql"), code(hostile, "promql"), strict=True):
        assert one.count("\n") == other.count("\n")
        assert "\r" not in other
        assert f'consumer="{promql_text(HOSTILE["consumer"])}"' in other or "consumer=" not in one


def test_a_runbook_of_a_group_has_its_partition_and_the_addresses_of_the_settings() -> None:
    page = unescape(filled("KarrotPartitionStopped", cluster="prod-eu", consumer="billing", topic="paid"))
    for told in (
        "curl -s 'https://tools.example/karrot/api/v1/group?cluster=prod-eu&consumer=billing'",
        "karrot lag --burrow https://burrow.internal --cluster prod-eu --group billing ",
        "kafka-console-consumer.sh --bootstrap-server b-1:9094,b-2:9094 --topic paid --partition 7 --offset 508100 ",
        "--topic paid:7 --reset-offsets",
        'karrot_consumer_bad_partitions{cluster="prod-eu", consumer="billing"}',
        '/runbooks/KarrotConsumerError?cluster=prod-eu&consumer=billing"',
        "billing</bdi></a> of",
    ):
        assert told in page
    assert "orders" not in article(page)
    assert "Still examples" not in page


def test_a_runbook_says_which_names_are_still_examples() -> None:
    website = make_website()
    website.context.intake.accept(make_event(source=Source.KAFKA, partitions=(), max_lag=None))
    page = read(website, "/runbooks/KarrotConsumerVanished?cluster=prod-eu&consumer=orders-svc")
    assert "Burrow may not know the group" in page
    assert re.findall("<code>([^<]*)</code>", page.partition("Still examples:")[2].partition("Replace")[0]) == [
        *("orders.v1", "3", "4711", "kafka-1:9092", "http://burrow:8000")
    ]
    website.forget()
    page = unescape(read(website, "/runbooks/KarrotConsumerVanished?cluster=prod-eu&consumer=orders-svc"))
    assert "grep -Fx -- orders-svc" in page


def test_a_runbook_shows_no_name_that_no_event_has() -> None:
    page = read(make_website(), "/runbooks/KarrotConsumerError?cluster=prod-eu&consumer=rm%20-rf")
    assert "Karrot has no event on this group now" in page
    assert "--group orders " in page
    assert "--group rm" not in page
    answer = make_website().client.get("/runbooks/KarrotConsumerError?cluster=prod-eu", headers=HTML)
    assert answer.status_code == 400
    assert "The parameter consumer is missing." in answer.text


def test_a_healthy_group_has_no_runbook() -> None:
    website = make_website()
    website.context.intake.accept(make_event(status_text="OK", partitions=(), incident_id=None))
    assert linked(read(website, "/")) == linked(read(website, "/group?cluster=prod-eu&consumer=orders-svc")) == []


def test_the_error_of_a_failing_reporter_links_to_its_runbook_everywhere() -> None:
    website = make_website(reporters=("prometheus", "cloudwatch"))
    website.log.save_reporter(ReporterState("cloudwatch", None, "failing", "AccessDenied", 0, None))
    for path in ("/", "/reporters", "/reporters/cloudwatch"):
        website.context.intake.accept(make_event(status_text="OK", partitions=(), incident_id=None))
        assert linked(read(website, path)) == ["KarrotCloudWatchRefusing"], path
    website.log.save_reporter(ReporterState("cloudwatch", None, "ok", "AccessDenied", 0, 1))
    assert linked(read(website, "/reporters/cloudwatch")) == []


def test_the_page_of_rejects_links_to_its_runbook() -> None:
    website = make_website()
    website.client.post("/burrow", data=b"not an event")
    assert linked(read(website, "/rejects")) == ["KarrotRejectingEvents"]


def test_runbooks_are_read_only_at_the_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runbooks, "runbooks_dir", lambda: templates_dir() / "nowhere")
    assert make_website().client.get("/healthz").status_code == 200
