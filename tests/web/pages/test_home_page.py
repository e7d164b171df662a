"""What the pages say about scrapes, refusals, bounds and recoveries, and which groups the list shows."""

import re
from typing import Any

import pytest

from karrot.event import AgeKind, LagAge, Source, TopicPartition
from karrot.eventlog.base import Cursor, ReporterState
from karrot.signals import Signals
from karrot.web.pages import group_list
from support.burrow.lag_events import make_event, make_partition
from support.burrow.recorded_bodies import recorded_body
from support.web.website import Website, make_website


def read(website: Website, path: str = "/", **query: Any) -> str:
    response = website.client.get(path, query_string=query or None, headers={"Accept": "text/html"})
    assert response.status_code == 200, response.text
    return response.text


def words(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", "", text).split())


def listed(text: str) -> list[str]:
    return re.findall(r'aria-label="(?:Star|Unstar) ([^"]*)"', text)


def post(website: Website, consumer: str = "orders", **facts: Any) -> None:
    event = make_event(consumer=consumer, **{"observed_at_ms": website.clock.wall} | facts)
    website.context.intake.accept(event)


def test_the_home_page_and_the_reporters_page_say_when_prometheus_scraped_last() -> None:
    website = make_website()
    post(website)
    assert "prometheus not scraped yet" in words(read(website))
    website.client.get("/metrics", headers={"User-Agent": "Prometheus/3.0"})
    website.clock.advance(9000)
    assert "prometheus scraped 9 s ago" in words(read(website))
    assert "scraped 9 s ago" in read(website, "/reporters")
    assert "scraped 9 s ago" in read(website, "/reporters/prometheus")


def test_a_karrot_that_was_never_scraped_warns_after_five_minutes() -> None:
    website = make_website()
    website.clock.advance(300_001)
    post(website)
    website.client.get("/metrics", headers={"User-Agent": "karrot"})  # a command of Karrot
    page = read(website)
    assert "prometheus never scraped" in words(page)
    assert re.search(r'class="shape warn"[^\n]*prometheus</bdi></a> never scraped', page)
    website.client.get("/metrics")
    assert "never scraped" not in read(website, "/reporters")


def test_another_worker_knows_the_time_of_the_last_scrape() -> None:
    one = make_website()
    other = make_website(log=one.log, clock=one.clock)
    one.client.get("/metrics")
    one.clock.advance(400_000)
    post(other)
    page = read(other)
    assert "prometheus scraped 6 min 40 s ago" in words(page)
    assert re.search(r'class="shape warn"[^\n]*prometheus</bdi></a> scraped', page)


def test_the_menu_has_the_refused_requests_and_their_number_only_if_there_are_some() -> None:
    website = make_website()
    post(website)

    def menu() -> str:
        return words(read(website, "/reporters").partition('<nav id="menu"')[2].partition("</nav>")[0]).partition(">")[
            2
        ]

    assert menu().split() == ["Groups", "Reporters", "Runbooks"]
    website.client.post("/burrow", data=recorded_body("default_post_v1.9.5_warn.json"))
    website.clock.advance(6000)
    assert menu().split() == ["Groups", "Reporters", "Runbooks", "Refused", "1"]
    website.clock.advance(86_400_000)
    assert menu().split() == ["Groups", "Reporters", "Runbooks", "Refused"]
    foot = read(website, "/reporters").partition("<footer>")[2]
    assert [link for link in ("/metrics", "/openapi.json", "/rejects") if f'href="{link}"' not in foot] == []


def test_a_search_finds_topics_owners_and_clients_without_a_script() -> None:
    website = make_website()
    one = make_partition(topic="Shop.orders", owner="consumer-7 on /10.1.2.3", client_id="indexer-1")
    post(website, "a", partitions=(one,), max_lag=one)
    post(website, "b", partitions=(), max_lag=make_partition(topic="other"))
    for text in ("shop.", "10.1.2.3", "INDEXER"):
        assert listed(read(website, q=text)) == ["a"]
    assert listed(read(website, q="other")) == ["b"]
    api: Any = website.client.get("/api/v1/groups", query_string={"q": "shop."}).json
    assert api["groups"] == []


def test_more_than_500_groups_are_found_by_their_worst_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_list, "_DETAILED_GROUPS", 1)
    website = make_website()
    for name in "ab":
        one = make_partition(topic=f"topic-{name}", owner=f"owner-{name}")
        post(website, name, partitions=(one,), max_lag=one)
    assert listed(read(website, q="topic-a")) == ["a"]
    assert listed(read(website, q="owner-a")) == []


def test_the_address_of_the_page_keeps_stars_and_can_show_only_the_starred_groups() -> None:
    website = make_website()
    for name in ("a", "b", "c"):
        post(website, name, status_text="OK", incident_id=None)
    page = read(website)
    assert "Starred" not in page
    href = re.search(r'class="star" href="([^"]*)"[^>]*aria-label="Star b"', page)
    assert href is not None
    starred = read(website, href[1].replace("&amp;", "&"))
    assert 'aria-label="Unstar b"' in starred
    assert "Starred <b>1</b>" in starred
    assert listed(starred) == ["a", "b", "c"]
    only = read(website, star=["prod-eu/b", "prod-eu/c"], only="starred")
    assert listed(only) == ["b", "c"]
    assert "All 2 groups are OK" in words(only)
    assert 'href="/?only=starred&amp;star=prod-eu/c"' in only.replace("%2F", "/")


def test_a_star_names_one_group_also_if_names_have_slashes() -> None:
    website = make_website()
    groups = (("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"))
    for cluster, consumer in groups:
        post(website, consumer, cluster=cluster)
    for number in range(3):
        hrefs = re.findall(r'class="star" href="([^"]*)"', read(website))
        assert len(hrefs) == 3
        only = read(website, hrefs[number].replace("&amp;", "&") + "&only=starred")
        assert len(listed(only)) == 1
        assert "Starred <b>1</b>" in only


def test_a_group_that_has_just_recovered_shows_no_older_trend() -> None:
    website = make_website()
    for n in range(6):
        website.clock.advance(5000)
        post(website, total_lag=10_000 * n, status_text="WARN")
    assert "growing by" in read(website)
    website.clock.advance(5000)
    post(website, total_lag=45_000, status_text="OK", incident_id=None)
    for path in ("/", "/group?cluster=prod-eu&consumer=orders"):
        assert not re.search(r'class="trend', read(website, path))
    for lag in (30_000, 15_000, 0):
        website.clock.advance(5000)
        post(website, total_lag=lag, status_text="OK", incident_id=None)
    assert "shrinking by" in read(website)


@pytest.mark.parametrize(
    ("age", "shown"),
    [
        (LagAge(200.0, AgeKind.AT_LEAST, TopicPartition("t", 0)), "≥ 3 min 20 s"),
        (LagAge(200.0, AgeKind.EXTRAPOLATED, TopicPartition("t", 0)), "≈ 3 min 20 s"),
        (LagAge(0.0, AgeKind.AT_LEAST, TopicPartition("t", 0)), "–"),  # noqa: RUF001
    ],
    ids=["a lower bound", "an estimate", "at least nothing"],
)
def test_a_bound_and_an_estimate_are_marked_in_every_place(
    monkeypatch: pytest.MonkeyPatch, age: LagAge, shown: str
) -> None:
    of_log_ends = Signals.with_age
    monkeypatch.setattr(Signals, "with_age", lambda signals, _: of_log_ends(signals, age))
    website = make_website()
    for _ in range(3):
        website.clock.advance(5000)
        post(website)
    home, page = read(website), read(website, "/group", cluster="prod-eu", consumer="orders")
    assert f'data-label="Behind by"><span>{shown}' in re.sub(r"</?abbr[^>]*>|<span class=\"quiet\"[^>]*>", "", home)
    facts, events = page.partition("<h2>Curves")[0], page.partition("<h2>Events")[2]
    assert f"Behind by {shown} " in f"{words(facts.replace('</dt>', ' </dt>').replace('</dd>', ' </dd>'))} "
    assert words(events).count(shown) >= 3
    points = page.partition('data-points="')[2].partition('"')[0].splitlines()
    assert [each.endswith(f", behind by {shown}") for each in points] == [True] * 3
    assert f'aria-label="Behind by: {shown} now"' in page


def test_the_time_of_an_incident_does_not_go_back_if_the_group_becomes_silent() -> None:
    website = make_website()
    post(website)
    ages = []
    for _ in range(9):
        website.clock.advance(30_000)
        post(website, "other", source=Source.KAFKA)
        found = re.search(
            r'data-label="Incident for"><span data-age="(\d+)"', read(website, q="orders", cluster="prod-eu")
        )
        assert found is not None
        ages.append(int(found[1]))
    assert ages == sorted(set(ages))


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1:8080", "[::1]:8080"])
def test_behind_a_port_forward_burrow_toml_has_a_placeholder_and_the_curl_command_this_address(host: str) -> None:
    website = make_website()
    text = website.client.get("/", base_url=f"http://{host}").text
    assert "url-open = &#34;http://karrot:5000/burrow&#34;" in text
    assert "Replace http://karrot:5000/burrow with the address that Burrow reaches" in words(text)
    assert f"http://{host}/burrow" in text.partition("curl -i")[2]
    assert "Replace" not in make_website().client.get("/", base_url="http://karrot.prod:5000").text


def test_the_page_that_waits_for_burrow_says_that_karrot_can_poll_kafka() -> None:
    assert "Set KARROT_WATCH_BOOTSTRAP to the addresses of your brokers" in words(read(make_website()))
    assert "No Burrow?" not in read(make_website(duties=("watch",)))


def test_a_reporter_that_is_well_shows_no_waiting_events() -> None:
    website = make_website()
    post(website)
    place = Cursor(website.log.log_id, 0)
    website.log.save_reporter(ReporterState("stdout", place, "ok", None, None, website.clock.wall))
    assert "stdout ok" in words(read(website))
    assert "waiting" not in read(website).partition("<table")[0]
