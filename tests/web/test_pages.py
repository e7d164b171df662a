import gzip
import re
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karrot.event import FirstUnread, LagEvent, Source
from karrot.eventlog import watch_data_of_groups
from karrot.eventlog.base import ReporterState
from karrot.eventlog.watch_data_of_groups import GroupHealth, WatchedCluster
from karrot.history.answers_and_errors import HourlyHistory, Incident, SeriesPoint
from karrot.history.time_ranges import DayRange
from karrot.jinja_filters import marked
from karrot.render import templates_dir
from karrot.reporters.base import REPORT_NOTE, Fact, RefusedDatum, Report
from karrot.runbooks_and_remedies import CODES, WATCH
from karrot.text import instant
from karrot.web.pages.last_weeks import NotReadable
from karrot.web.pages.routes import PAGE_SIZE
from support.burrow.lag_events import make_event, make_partition
from support.burrow.recorded_bodies import recorded_body, recorded_posts
from support.eventlog.read_commits import cut_off_from_kafka
from support.web.credentials import make_credentials
from support.web.website import Website, make_website

GROUP = {"cluster": "prod-eu", "consumer": "orders-svc"}
HOSTILE = "<script>alert(1)</script>\"'&{{7*7}}\u202e\0"


class Page(HTMLParser):
    """A parser that collects elements, attributes and the text of table rows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.rows: list[str] = []
        self._in_row = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "tr":
            self._in_row = True
            self.rows.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_row = self._in_row and tag != "tr"

    def handle_data(self, data: str) -> None:
        if self._in_row:
            self.rows[-1] = " ".join(f"{self.rows[-1]} {data}".split())


def take(website: Website, *events: LagEvent) -> Website:
    for event in events:
        website.context.intake.accept(event)
    return website


def read(website: Website, path: str = "/", **query: Any) -> str:
    response = website.client.get(path, query_string=query, headers={"Accept": "text/html"})
    assert response.status_code == 200, response.text
    assert response.content_type == "text/html; charset=utf-8"
    return response.text


def rows(website: Website, **query: Any) -> list[str]:
    return Page(read(website, **query)).rows[1:]


def words(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", "", text).split())


def test_without_a_group_the_page_shows_the_configuration_to_paste_with_this_host() -> None:
    website = make_website()
    text = website.client.get("/", base_url="http://karrot.example:8080").text
    assert "[notifier.karrot]" in text
    assert "url-open = &#34;http://karrot.example:8080/burrow&#34;" in text
    assert "curl -i http://karrot.example:8080/burrow -d &#39;{&#34;Event&#34;" in text


def test_the_curl_line_posts_an_event_that_is_accepted() -> None:
    website = make_website()
    sample = re.search(r"-d &#39;(.*)&#39;", read(website))
    assert sample is not None
    body = sample[1].replace("&#34;", '"')
    assert website.client.post("/burrow", data=body.encode()).status_code == 202
    assert rows(website) == ["OK first-group test try 42 – – – 0 s ago"]  # noqa: RUF001


def test_an_external_url_wins_and_the_curl_line_shows_no_secret() -> None:
    website = make_website(
        external_url="https://karrot.example/", credentials=make_credentials(username="burrow", password="canary")
    )
    text = read(website)
    assert "curl -i -u &#34;$KARROT_BURROW_USERNAME:$KARROT_BURROW_PASSWORD&#34; https://karrot.example/burrow" in text
    assert "canary" not in text


def test_every_link_has_the_url_prefix_whether_the_proxy_strips_it_or_not() -> None:
    website = take(make_website(external_url="https://tools.example/karrot/"), make_event())
    text = read(website)
    assert read(website, "/karrot/") == read(website, "/karrot") == text
    links = re.findall(r'(?:href|src|action)="([^"]*)"', text)
    assert len(links) > 10
    assert [link for link in links if not link.startswith(("/karrot/", "#"))] == []
    assert website.client.get("/karrot/healthz").json == website.client.get("/healthz").json == {"status": "alive"}
    assert website.client.get("/karrots").status_code == 404
    assert website.client.post("/karrot/burrow", data=recorded_body("karrot_v1.9.5_err_stop.json")).status_code == 202
    assert website.client.post("/karrot/burrow", data=b"{}").status_code == 400


def test_a_prefix_from_a_client_is_ignored() -> None:
    website = take(make_website(), make_event())
    said = website.client.get("/", headers={"X-Forwarded-Prefix": "/evil", "Script-Name": "/evil"}).text
    assert "evil" not in said
    assert said == read(website)


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("", id="an empty host"),
        "a b",
        "'; rm -rf /",
        "<script>",
        '"',
        pytest.param("x" * 3000, id="3000 letters"),
        "[::1]:5000",
        "\xff",
    ],
)
def test_a_hostile_host_header_does_no_harm(host: str) -> None:
    response = make_website().client.get("/", headers={"Host": host, "Accept": "text/html"})
    assert response.status_code in (200, 400)
    assert "<script>" not in response.text
    assert "rm -rf" not in response.text
    if response.status_code == 200:
        assert "[notifier.karrot]" in response.text


def test_groups_are_listed_worst_first() -> None:
    website = take(
        make_website(),
        make_event(consumer="well", status_text="OK", total_lag=10**9, incident_id=None),
        make_event(consumer="slow", status_text="WARN", total_lag=5),
        make_event(consumer="slower", status_text="WARN", total_lag=70_000),
        make_event(consumer="odd", status_text="ODD", total_lag=1),
        make_event(consumer="unknown", status_text="WARN", total_lag=None),
        make_event(consumer="stuck", status_text="ERR", total_lag=0),
    )
    assert [row.split()[:2] for row in rows(website)] == [
        ["ERR", "stuck"],
        ["WARN", "slower"],
        ["WARN", "slow"],
        ["WARN", "unknown"],
        ["ODD", "odd"],
        ["OK", "well"],
    ]


def test_a_row_has_the_values_that_an_operator_needs() -> None:
    website = make_website()
    website.clock.wall = 1_746_950_422_304
    website.client.post("/burrow", data=recorded_body("karrot_v1.9.5_err_stop.json"))
    website.clock.advance(130_000)
    (row,) = rows(website)
    assert row.startswith("ERR orders-svc prod-eu 48,263 ")
    assert row.endswith("1 of 12 stopped 4 min 20 s 2 min 10 s ago")
    assert "1 of 1 group is not OK" in read(website)
    assert "Burrow of prod-eu heard 2 min 10 s ago" in words(read(website))


def test_a_silent_burrow_is_shown_while_others_still_post() -> None:
    website = make_website()
    website.client.post("/burrow", data=recorded_body("karrot_v1.9.5_err_stop.json"))
    website.clock.advance(400_000)
    take(website, make_event(cluster="other"))
    assert "prod-eu silent for 6 min 40 s" in words(read(website))


def test_page_and_api_list_a_test_under_a_status_only_if_its_cluster_is_asked_for() -> None:
    website = make_website()
    for cluster, consumer in (("try", "a-test"), ("prod", "a-group")):
        website.context.intake.accept(make_event(cluster=cluster, consumer=consumer, status_text="ERR"))
    for query, shown in (
        ({"status": "ERR"}, ["a-group"]),
        ({"status": "ERR", "q": "a-"}, ["a-group"]),
        ({"status": "ERR", "cluster": "try"}, ["a-test"]),
        ({}, ["a-group", "a-test"]),
    ):
        page = website.client.get("/", query_string=query).text
        api = website.client.get("/api/v1/groups", query_string=query).json
        assert api is not None
        assert sorted(each["consumer"] for each in api["groups"]) == shown
        assert [name for name in ("a-group", "a-test") if f">{name}<" in page] == shown


def test_a_burrow_that_is_cut_off_from_kafka_is_shown_although_it_still_posts() -> None:
    website = make_website()
    cut_off_from_kafka(website.log, website.clock)
    take(website, make_event(status_text="OK"), make_event(cluster="other"))
    text = read(website)
    assert "Burrow reads no commits (prod-eu). Its lags are old." in text
    assert "Burrow of prod-eu heard 0 s ago, reads no commits" in words(text)
    assert "Burrow of other heard 0 s ago Burrow of prod-eu" in words(text)
    for cluster, is_said in (("prod-eu", True), ("other", False)):
        of_group = read(website, "/group", cluster=cluster, consumer="orders-svc")
        assert ("Burrow has lost Kafka, so the status and the lag are old" in of_group) is is_said


def test_a_burrow_is_not_missed_while_another_program_judges_its_cluster() -> None:
    website = make_website(expected_clusters=("prod-eu",))
    website.client.post("/burrow", data=recorded_body("karrot_v1.9.5_err_stop.json"))
    website.clock.advance(400_000)
    assert "Burrow of" in read(website)
    take(website, make_event(cluster="prod-eu", source=Source.KAFKA))
    text = read(website)
    assert "Burrow of" not in text
    assert "silent" not in text


def test_the_verdict_is_not_green_if_the_next_event_of_burrow_is_overdue() -> None:
    website = make_website()
    website.client.post("/burrow", data=recorded_body("karrot_v1.9.5_open_ok_t1.json"))
    assert 'class="verdict ok"' in read(website)
    website.clock.advance(website.context.stale_after_ms * 3 // 4)
    text = read(website)
    assert 'class="verdict warn"' in text
    assert "The only group is OK, but Burrow is late</h1>" in text


def test_the_verdict_is_never_green_between_the_half_and_the_end_of_the_time_of_a_silent_burrow() -> None:
    website = make_website()
    website.client.post("/burrow", data=recorded_body("karrot_v1.9.5_open_ok_t1.json"))
    website.clock.advance(8000)
    take(website, make_event(consumer="resynced", status_text="OK", source=Source.REST))
    website.clock.advance(150_000)
    said = set()
    for _ in range(160):
        website.clock.advance(1000)
        text = read(website)
        assert 'class="verdict ok"' not in text
        said |= set(re.findall("but Burrow is [a-z]+", text))
    assert said == {"but Burrow is late", "but Burrow is silent"}


@pytest.mark.parametrize("path", ["/", "/reporters"])
def test_a_page_is_not_live_while_watch_fails(path: str) -> None:
    website = make_website(duties=("watch",))
    take(website, make_event(status_text="OK", source=Source.KAFKA, observed_at_ms=website.clock.wall))
    assert 'data-doubt=""' in read(website, path)
    website.log.save_reporter(ReporterState("watch", None, state="failing", last_error="no broker answers"))
    website.clock.advance(6000)
    text = read(website, path)
    assert 'data-doubt="Watch fails"' in text
    assert ("The only group is OK, but watch fails</h1>" in text) is (path == "/")


def test_burrow_s_own_groups_are_shown_separately() -> None:
    own = make_partition(topic="__consumer_offsets")
    website = take(
        make_website(),
        make_event(consumer="orders", status_text="WARN"),
        make_event(consumer="billing", status_text="OK", incident_id=None),
        make_event(consumer="burrow-prod", status_text="OK", incident_id=None, max_lag=own),
    )
    text = read(website)
    assert "1 of 2 groups is not OK" in text
    assert "All <b>2</b>" in text
    assert "Burrow&#39;s own <b>1</b>" in text or "Burrow's own <b>1</b>" in text
    assert [row.split()[1] for row in rows(website)] == ["orders", "billing"]
    assert [row.split()[1] for row in rows(website, status="BURROW")] == ["burrow-prod"]
    assert [row.split()[1] for row in rows(website, q="burrow-")] == ["burrow-prod"]
    website.clock.advance(2000)
    take(website, make_event(consumer="orders", status_text="OK", incident_id=None, observed_at_ms=website.clock.wall))
    take(website, make_event(consumer="burrow-prod", max_lag=own, observed_at_ms=website.clock.wall))
    text = read(website)
    assert "Burrow itself is behind</h1>" in text
    assert "The Burrow of prod-eu itself is behind on" in text


def test_without_column_heads_the_form_has_the_order_and_screen_readers_the_table() -> None:
    website = take(make_website(), make_event())
    text = read(website, sort="-lag", status="ERR")
    assert '<option value="-lag" selected>By lag, reversed</option>' in text
    assert 'name="sort" value=' not in text
    assert '<option value="" selected>Worst first</option>' in read(website)
    roles = [value for name, value in Page(read(website)).attributes if name == "role"]
    assert roles.count("row") == 2
    assert (roles.count("columnheader"), roles.count("rowheader"), roles.count("cell")) == (10, 1, 9)


def test_the_page_of_a_silent_group_shows_its_last_values() -> None:
    website = make_website()
    for lag in (100, 20_000, 40_000):
        website.clock.advance(5000)
        take(website, make_event(total_lag=lag, observed_at_ms=website.clock.wall))
    fresh = read(website, "/group", cluster="prod-eu", consumer="orders-svc")
    website.clock.advance(200_000)
    take(website, make_event(consumer="other", observed_at_ms=website.clock.wall))
    old = read(website, "/group", cluster="prod-eu", consumer="orders-svc")
    assert "growing" in fresh
    assert "The newest event of this group is" not in fresh
    assert "The newest event of this group is 3 min 20 s old, from" in old
    assert "was growing" in old
    assert "was growing" in read(website)
    assert "Was to catch up in" in old
    assert " now<" not in old


def test_a_printed_page_has_its_time() -> None:
    website = take(make_website(), make_event())
    assert re.search(r'class="printed" data-live>As of\s+<time', read(website))


def test_the_page_filters_and_counts() -> None:
    other = make_partition(topic="paid", client_id="c")
    website = take(
        make_website(),
        make_event(cluster="eu", consumer="orders", status_text="ERR"),
        make_event(cluster="eu", consumer="payments", partitions=(), max_lag=other),
        make_event(cluster="us", consumer="orders", status_text="OK", incident_id=None),
    )
    assert [row.split()[1:3] for row in rows(website, q="RDERS", sort="group")] == [["orders", "eu"], ["orders", "us"]]
    assert [row.split()[1] for row in rows(website, cluster="eu", status="WARN")] == ["payments"]
    assert "No group matches." in read(website, q="nothing like it")
    assert website.client.get("/?status=BAD").status_code == 400


def test_the_templates_are_compiled_before_the_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    website = take(make_website(), make_event())
    monkeypatch.delattr("jinja2.Environment.compile")
    assert len(rows(website)) == 1


def test_a_long_list_is_split_into_pages() -> None:
    website = take(make_website(), *(make_event(consumer=f"g{n:04}", total_lag=n) for n in range(PAGE_SIZE + 5)))
    assert len(rows(website)) == PAGE_SIZE
    assert [row.split()[1] for row in rows(website, page=2)] == ["g0004", "g0003", "g0002", "g0001", "g0000"]
    assert 'href="/?page=2"' in read(website)
    assert "1 to 50 of 55" in read(website)
    assert "This page of the list does not exist." in read(website, page=3)
    for page in ("0", "-1", "x", "9" * 99):
        assert website.client.get("/", query_string={"page": page}).status_code == 400


def test_a_page_in_the_middle_of_a_long_list_links_to_both_ends() -> None:
    website = take(make_website(), *(make_event(consumer=f"g{n:04}", total_lag=n) for n in range(3 * PAGE_SIZE + 1)))

    def jumps(page: int) -> list[tuple[str, str]]:
        pager = read(website, sort="lag", page=page).partition('class="pager"')[2]
        return re.findall(r'href="/\?sort=lag([^"]*)">([A-Z]\w+)', pager.replace("&amp;", "&"))

    assert jumps(1) == [("&page=2", "After"), ("&page=4", "Last")]
    assert jumps(2) == [("&page=3", "After"), ("&page=4", "Last")]
    assert jumps(3) == [("", "First"), ("&page=4", "After")]
    assert jumps(4) == [("", "First")]


def test_a_group_has_its_own_page() -> None:
    website = make_website()
    for _, body in recorded_posts():
        website.client.post("/burrow", data=body)
    group = next(state for state in website.log.live() if state.key.consumer == "skewed-consumer-group")
    text = read(website, "/group", cluster=group.key.cluster, consumer=group.key.consumer)
    assert "skewed-consumer-group" in text
    assert "skewed-topic" in text
    headings = re.findall("<h2>([^<]*[^< ])", text)
    assert headings == ["Partitions", "The last incident", "Curves", "Events", "More numbers", "Mute this group"]


def of_a_day(every_s: int = 30, **overrides: Any) -> Website:
    """Make a group that was OK for a day, and then ERR for ten minutes. One lag in the middle of the day is large."""
    website = make_website(**overrides)
    for second in range(0, 86_400, every_s):
        is_bad, lag = second >= 85_800, 70_000 if 43_200 <= second < 43_200 + every_s else 10
        status, incident = ("ERR", "one") if is_bad else ("OK", None)
        event = make_event(status_text=status, incident_id=incident, incident_start=None, total_lag=lag)
        take(website, event._replace(observed_at_ms=website.clock.wall))
        website.clock.advance(1000 * every_s)
    return website


def test_the_url_has_the_range_of_the_curves_and_the_largest_lag_is_always_drawn() -> None:
    website = of_a_day()
    shown = {}
    for wanted, points in (("", 120), ("1h", 120), ("6h", 240), ("24h", 240)):
        text = read(website, "/group", cluster="prod-eu", consumer="orders-svc", range=wanted)
        drawn = text.partition('data-points="')[2].partition('"')[0].splitlines()
        assert abs(len(drawn) - points) <= 1
        assert re.findall(r'aria-current="true">(\d+ h)</a>', text) == [(wanted or "1h").replace("h", " h")]
        assert all(
            re.fullmatch(r"[\d.]+ 2027-01-1\d [\d:]{8} UTC: \w+, lag [\d,]+, behind by .+", one) for one in drawn
        )
        shown[wanted] = "lag 70,000" in text
        assert ("the worst event of every" in text) is (points == 240)
    assert shown == {"": False, "1h": False, "6h": False, "24h": True}
    answer = website.client.get("/group?cluster=prod-eu&consumer=orders-svc&range=2d")
    assert answer.status_code == 400
    assert "range must be one of 1h, 6h, 24h." in answer.text


def test_a_range_without_two_events_says_so() -> None:
    website = take(make_website(), make_event())
    assert "A curve needs two events in this range." in read(website, "/group", **GROUP)


def test_events_after_the_fifth_and_partitions_after_the_sixth_are_folded() -> None:
    many = tuple(make_partition(partition=n, status_text="STOP" if n == 9 else "OK") for n in range(20))
    website = make_website()
    for _ in range(8):
        take(website, make_event(source=Source.KAFKA, partitions=many, observed_at_ms=website.clock.wall))
        website.clock.advance(5000)
    text = read(website, "/group", cluster="prod-eu", consumer="orders-svc")
    for name, first, rest, heading in (("partitions", 6, 14, "Partitions"), ("events", 5, 3, "Events")):
        before, folded = (
            text.partition(f"<h2>{heading}</h2>")[2].partition("</section>")[0].split(f'<details id="{name}">')
        )
        assert [len(Page(each).rows) for each in (before, folded)] == [first + 1, rest + 1]
    assert re.search(r"<summary>\s*14 more partitions", text)
    assert "<details" not in read(take(make_website(), make_event(status_text="OK")), "/group", **GROUP)


def test_the_page_does_not_speak_of_the_pipeline_before_there_are_tables() -> None:
    text = read(take(make_website(), make_event()), "/group", **GROUP)
    for word in ("pipeline", "Spark", "30 days", "KARROT_TABLES_DIR"):
        assert word not in text


@pytest.mark.parametrize(
    ("external", "link"),
    [
        (None, "http://localhost/group?cluster=prod-eu&consumer=orders-svc"),
        ("https://tools.example/karrot/", "https://tools.example/karrot/group?cluster=prod-eu&consumer=orders-svc"),
    ],
)
def test_the_summary_for_a_chat_has_status_begin_lag_cause_and_link(external: str | None, link: str) -> None:
    website = make_website(external_url=external)
    stopped = make_partition(status_text="STOP", current_lag=12_345)
    event = make_event(status_text="ERR", total_lag=12_345, partitions=(stopped,), max_lag=stopped, incident_start=None)
    take(website, event._replace(observed_at_ms=website.clock.wall))
    website.clock.advance(130_000)
    text = read(website, "/group", **GROUP)
    summary = unescape(text.partition('aria-label="Summary">')[2].partition("</textarea>")[0]).splitlines()
    assert summary[0] == "ERR orders-svc on prod-eu since 2027-01-15 08:00:00 UTC (2 min 10 s)"
    assert summary[1].startswith("Lag 12,345, behind by ")
    assert summary[2].startswith("1 of 12 partitions stopped")
    assert summary[3:] == [link]


def test_the_partition_with_the_largest_lag_is_shown_even_if_it_is_ok() -> None:
    worst = make_partition(partition=7, status_text="OK", current_lag=99_999)
    website = take(make_website(), make_event(max_lag=worst))
    text = read(website, "/group", cluster="prod-eu", consumer="orders-svc")
    assert "99,999" in text
    assert "Burrow lists partitions worse than OK" not in read(
        take(make_website(), make_event(source=Source.KAFKA)), "/group", cluster="prod-eu", consumer="orders-svc"
    )


def test_thousands_of_partitions_are_cut_with_a_note() -> None:
    website = make_website()
    website.client.post("/burrow", data=recorded_body("karrot_v1.9.5_partitions_2000.json"))
    (state,) = website.log.live()
    text = read(website, "/group", cluster=state.key.cluster, consumer=state.key.consumer)
    assert "has 1,800 more." in text
    assert len(text) < 300_000


def test_an_unknown_group_has_a_page_that_reports_it() -> None:
    response = make_website().client.get("/group?cluster=a&consumer=b", headers={"Accept": "text/html"})
    assert response.status_code == 404
    assert "No live consumer group has this name, and no stored event names it" in response.text


def test_a_group_that_is_not_listed_any_more_is_answered_with_the_last_that_is_known_of_it() -> None:
    # The link of an alert must lead to something when Kafka or Burrow has been away for longer than groups stay.
    website = take(make_website(), make_event(status_text="ERR", total_lag=5000))
    website.clock.advance(720_000)
    page = website.client.get("/group?cluster=prod-eu&consumer=orders-svc", headers={"Accept": "text/html"})
    assert 'href="/runbooks/KarrotConsumerVanished?cluster=prod-eu&amp;consumer=orders-svc"' in page.text
    answer = website.client.get("/api/v1/group?cluster=prod-eu&consumer=orders-svc")
    for text in (page.text, answer.text):
        assert "The last event about it came 12 min ago: ERR with lag 5,000" in text
    take(website, make_event(status_text="NOTFOUND", incident_id=None, observed_at_ms=website.clock.wall_ms()))
    page = website.client.get("/group?cluster=prod-eu&consumer=orders-svc", headers={"Accept": "text/html"})
    assert "The group was deleted 0 s ago" in page.text


def test_a_watched_group_without_a_verdict_has_a_page_with_its_state_and_no_lag() -> None:
    website = make_website()
    for uncommitted, sentence in (
        (2, "Its members own 2 partitions without a committed offset."),
        (0, "no committed offset is visible"),
        (None, "Kafka did not tell the offsets"),
    ):
        health = GroupHealth("orders", "Stable", 3, 1, 0, None, None, 0, uncommitted)
        poll = WatchedCluster("prod", 1, 0.1, website.log.log_time_ms(), 300_000, (health,))
        watch_data_of_groups.keep(website.log, poll)
        text = read(website, "/group", cluster="prod", consumer="orders")
        assert sentence in text
        assert "Stable" in text
    response = website.client.get("/group?cluster=prod&consumer=other", headers={"Accept": "text/html"})
    assert response.status_code == 404


def test_the_first_verdict_of_watch_does_not_stand_for_the_groups_that_have_none_yet() -> None:
    website = take(make_website(duties=(WATCH,)), make_event(cluster="prod", consumer="orders", status_text="ERR"))
    states = {"orders": "Stable", "billing": "Stable", "search": "Empty", "gone": "Dead"}
    found = tuple(GroupHealth(name, state, 1, 1, 0, None, None) for name, state in states.items())
    poll = WatchedCluster("prod", 1, 0.1, website.log.log_time_ms(), 300_000, found)
    watch_data_of_groups.keep(website.log, poll)
    text = read(website)
    assert "1 of 1 group is not OK" in text
    assert "2 more groups have no verdict yet, so their lag is unknown" in text
    of_group = read(website, "/group", cluster="prod", consumer="orders")
    assert "<dt>State in Kafka</dt><dd>Stable</dd>" in of_group
    assert "<dt>Members</dt><dd>1</dd>" in of_group
    website.clock.advance(300_001)
    assert "no verdict yet" not in read(website)


def make_abandoned(consumer: str) -> LagEvent:
    one = make_partition(status_text="ABANDONED", current_lag=40)
    event = make_event(consumer=consumer, source=Source.KAFKA, status_text="OK", incident_id=None, max_lag=one)
    return event._replace(partitions=(one,), total_lag=40, partition_count=1)


def test_abandoned_groups_are_listed_apart_with_a_filter_of_their_own() -> None:
    well = make_event(consumer="fine", status_text="OK", incident_id=None, partitions=())
    website = take(make_website(), well, make_abandoned("job-1"), make_abandoned("job-2"))
    text = read(website)
    assert "The only group is OK" in text
    assert "2 more groups are abandoned" in text
    assert 'aria-label="The worst group"' not in text
    assert [row.split()[:2] for row in rows(website)] == [
        ["OK", "fine"],
        ["ABANDONED", "job-1"],
        ["ABANDONED", "job-2"],
    ]
    assert [row.split()[1] for row in rows(website, status="ABANDONED")] == ["job-1", "job-2"]
    assert "abandoned" not in read(take(make_website(), well))


def test_a_list_of_abandoned_groups_alone_has_no_worst_group() -> None:
    assert 'aria-label="The worst group"' not in read(take(make_website(), make_abandoned("job-1")))


def test_the_page_of_an_abandoned_group_says_why_it_causes_no_incident() -> None:
    text = read(take(make_website(), make_abandoned("job-1")), "/group", cluster="prod-eu", consumer="job-1")
    assert "The group has no members" in text
    assert "0 of 1</span>" in text


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("named", "The setting KARROT_ABANDONED_GROUPS names it."),
        ("brief", "It was active for less than KARROT_ABANDONED_AFTER."),
        ("idle", "Its topics have got nothing for KARROT_ABANDONED_AFTER, since its members left."),
    ],
)
def test_the_page_of_an_abandoned_group_says_by_which_rule_it_is_abandoned(reason: str, sentence: str) -> None:
    event = make_abandoned("job-1")._replace(extras=(("abandoned", reason),))
    text = read(take(make_website(), event), "/group", cluster="prod-eu", consumer="job-1")
    assert f'<ul class="evidence"><li>{sentence}</li></ul>' in text


def test_a_left_partition_comes_last_without_a_lag_and_is_not_bad() -> None:
    left = make_partition(topic="old", status_text="LEFT", current_lag=None, log_end=91_000, log_start=1_000)
    well = make_partition(topic="new", status_text="OK", current_lag=0)
    event = make_event(source=Source.KAFKA, status_text="OK", incident_id=None, total_lag=0, max_lag=well)
    website = take(make_website(), event._replace(partitions=(left, well), partition_count=1))
    text = read(website, "/group", cluster="prod-eu", consumer="orders-svc")
    assert [row.split()[:2] for row in Page(text).rows if "new" in row or "old" in row] == [
        ["OK", "new"],
        ["LEFT", "old"],
    ]
    assert "counts neither in the lag nor in the status" in text
    answer: Any = website.client.get("/api/v1/group?cluster=prod-eu&consumer=orders-svc").json
    assert [verdict["bad_partitions"] for verdict in answer["events"]] == [0]
    assert Page(text).rows[-1].split()[-2] == "0"


def test_a_partition_without_a_committed_offset_shows_an_upper_bound_and_no_lag() -> None:
    owned = make_partition(
        status_text="NEVER_COMMITTED", current_lag=None, start=None, end=None, log_end=91_000, log_start=1_000
    )
    event = make_event(source=Source.KAFKA, status_text="OK", incident_id=None, total_lag=None, max_lag=owned)
    website = take(make_website(), event._replace(partitions=(owned,)))
    text = read(website, "/group", cluster="prod-eu", consumer="orders-svc")
    [row] = [row for row in Page(text).rows if "NEVER_COMMITTED" in row]
    assert "at most 90,000" in row


def test_a_worst_partition_without_a_lag_is_said_to_be_unknown() -> None:
    owned = make_partition(status_text="NEVER_COMMITTED", current_lag=None, start=None, end=None)
    event = make_event(source=Source.KAFKA, total_lag=None, max_lag=owned, partitions=(owned,))
    text = read(take(make_website(), event), "/group", cluster="prod-eu", consumer="orders-svc")
    assert "<dt>Worst partition</dt><dd>unknown</dd>" in text


def test_partitions_without_a_usable_offset_are_among_the_bad_ones() -> None:
    beyond = make_partition(status_text="BEYOND_END", current_lag=None, log_end=20, log_start=0)
    event = make_event(source=Source.KAFKA, status_text="ERR", total_lag=None, max_lag=beyond, partition_count=3)
    text = read(
        take(make_website(), event._replace(partitions=(beyond,))), "/group", cluster="prod-eu", consumer="orders-svc"
    )
    assert "1 of 3</span> <small>1&nbsp;BEYOND_END</small>" in text


def test_a_partition_shows_what_a_read_of_its_first_unread_record_found() -> None:
    written = datetime(2026, 11, 28, 3, 50, 6, tzinfo=UTC)
    waits = make_partition(
        status_text="STALL", client_id="pod-7", first_unread=FirstUnread(8_412, int(written.timestamp() * 1000))
    )
    held = make_partition(partition=5, status_text="OPEN_TRANSACTION", first_unread=FirstUnread(8_500))
    read = make_partition(partition=6, status_text="OK", current_lag=0, first_unread=FirstUnread(508_101))
    event = make_event(source=Source.KAFKA, status_text="ERR", max_lag=waits, partitions=(waits, held, read))
    text = read_group(event)
    [row] = [row for row in Page(text).rows if "nothing to read" in row]
    assert " 6 0 nothing to read" in row
    assert "between the offsets 508,100 and 508,101" in text
    shown = " ".join(re.sub("<[^>]*>", "", text).split())
    assert "record 8,412, written 2026-11-28 03:50:06 UTC, waits; pod-7 owns the partition." in shown
    assert "an open transaction holds back all records from offset 8,500 on." in shown
    assert "describe-producers --topic orders.v1 --partition 5" in shown
    assert "1&nbsp;OPEN_TRANSACTION" in text


def test_a_lag_that_grew_after_a_read_is_not_called_an_open_transaction() -> None:
    grown = make_partition(status_text="STALL", current_lag=3, first_unread=FirstUnread(508_101))
    text = read_group(make_event(source=Source.KAFKA, status_text="ERR", max_lag=grown, partitions=(grown,)))
    assert "no record can be read before offset 508,101." in text
    assert "nothing to read" not in text
    assert "transaction holds back" not in text


def read_group(event: LagEvent) -> str:
    return read(take(make_website(), event), "/group", cluster="prod-eu", consumer="orders-svc")


def test_hostile_names_are_only_text() -> None:
    hostile = make_partition(topic=HOSTILE, owner=HOSTILE, client_id=HOSTILE, status_text=HOSTILE)
    website = take(
        make_website(),
        make_event(
            cluster=HOSTILE,
            consumer=HOSTILE,
            incident_id=HOSTILE,
            status_text="WARN",
            max_lag=hostile,
            partitions=(hostile,),
        ),
        make_event(status_text=HOSTILE),
    )
    for path, query in (("/", {}), ("/group", {"cluster": HOSTILE, "consumer": HOSTILE})):
        text = read(website, path, **query)
        page = Page(text)
        assert page.tags.count("script") == 2
        assert not [name for name, _ in page.attributes if name.startswith("on") or name == "style"]
        assert "49" not in re.sub(r"[\d,.:/-]{3,}", "", " ".join(page.rows))
        assert "\0" not in text
        assert "\u202e" not in text


@pytest.fixture(scope="module")
def shared() -> Website:
    return make_website()


@given(name=st.text(max_size=40))
@settings(max_examples=50, deadline=None)
def test_any_name_leads_from_the_list_to_its_group(shared: Website, name: str) -> None:
    website = shared
    website.forget()
    take(website, make_event(cluster=name, consumer=name))
    page = Page(read(website))
    links = {value or "" for key, value in page.attributes if key == "href" and (value or "").startswith("/group?")}
    assert [website.client.get(link).status_code for link in links] == [200]


def test_rejects_are_shown_with_the_reason_and_the_remedy() -> None:
    website = make_website()
    assert "Karrot keeps no refused request at present." in read(website, "/rejects")
    website.client.post("/burrow", data=HOSTILE.encode())
    page = read(website, "/rejects")
    assert HOSTILE not in page
    assert "&lt;script&gt;alert(1)" in page
    (row,) = Page(page).rows[1:]
    assert row.startswith("unsupported_template 2027-01-15 08:00:00 UTC")
    assert marked(CODES["unsupported_template"].remedy) in page


@pytest.mark.parametrize("path", ["/", "/reporters", "/rejects", "/nothing"])
def test_a_page_loads_no_external_and_no_inline_resources(path: str) -> None:
    website = take(make_website(), make_event())
    page = Page(website.client.get(path, headers={"Accept": "text/html"}).text)
    assert "style" not in page.tags
    for name, value in page.attributes:
        assert name != "style"
        assert not name.startswith("on")
        if name in ("href", "src", "action"):
            assert value is not None
            assert value.startswith(("/", "#")), value


def test_static_files_are_cached_forever_under_content_hashes() -> None:
    client = make_website().client
    text = client.get("/").text
    paths = set(re.findall(r'"(/static/[^"]+)"', text))
    assert {path.partition("?")[0].rpartition(".")[2] for path in paths} == {"css", "js", "svg"}
    for path in paths:
        name, _, version = path.removeprefix("/static/").partition("?v=")
        assert sha256((templates_dir() / "web" / "static" / name).read_bytes()).hexdigest().startswith(version)
        response = client.get(path)
        assert response.status_code == 200
        assert response.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert response.content_type.split(";")[0] in ("text/css", "text/javascript", "image/svg+xml")
        again = client.get(path, headers={"If-None-Match": response.headers["ETag"]})
        assert (again.status_code, again.data) == (304, b"")


def test_a_burrow_without_groups_does_not_look_like_a_new_karrot() -> None:
    website = take(make_website(), make_event())
    website.clock.advance(400_000)
    text = read(website)
    assert "No group is known: Burrow is silent" in text
    assert "Burrow has been silent for 6 min 40 s (prod-eu)" in text
    assert "[notifier.karrot]" not in text


def test_a_cluster_that_watch_polls_has_no_silent_burrow_also_before_its_first_verdict() -> None:
    website = make_website(duties=(WATCH,), expected_clusters=["prod-eu", "prod-us"])
    watch_data_of_groups.keep(website.log, WatchedCluster("prod-eu", 0, 0.0, 0, 0, ()))
    text = read(website)
    assert "Burrow never sent an event (prod-us)" in text
    take(website, make_event())
    website.clock.advance(400_000)
    text = read(website)
    assert "No group is known</h1>" in text
    assert "Burrow has been silent" not in text


def test_groups_that_are_no_consumer_groups_are_counted_above_the_list() -> None:
    website = take(make_website(duties=(WATCH,)), make_event(source=Source.KAFKA))
    poll = WatchedCluster("prod-eu", 1, 0.1, website.log.log_time_ms(), 300_000, (), others=2)
    watch_data_of_groups.keep(website.log, poll)
    assert "2 groups of prod-eu not watched yet (share groups or other kinds)" in re.sub(r"<[^>]+>", "", read(website))


def test_an_expected_cluster_that_was_never_heard_is_shown() -> None:
    website = take(make_website(expected_clusters=["prod-eu", "prod-us"]), make_event())
    assert "Burrow never sent an event (prod-us)" in read(website)


def test_problems_of_karrot_are_shown_above_the_groups() -> None:
    website = take(make_website(max_consumers=12), *(make_event(consumer=f"g{n}") for n in range(12)))
    for name in ("default_post_v1.9.5_warn.json", *["oneline_v1.9.5_warn.json"] * 10):
        website.client.post("/burrow", data=recorded_body(name))
    website.log.save_reporter(ReporterState("stdout", None, "failing", "Broken: <pipe>", website.clock.wall))
    text = read(website)
    for told in (
        "stdout is failing: Broken: &lt;pipe&gt;",
        "1 body was refused in the last 15 min: <code>unsupported_template</code>",
        "Burrow has sent only WARN and ERR",
        "Karrot has reached its limit of groups (13)",
    ):
        assert told in text
    website.clock.advance(200_000)
    website.clock.advance(800_000)
    take(website, make_event())
    assert "refused in the last" not in read(website)
    website.client.post("/burrow", data=b"{}")
    website.clock.jump(-86_400_000)  # it was a day ahead, and no body is from the future
    website.clock.advance(60_000)
    take(website, make_event())
    assert "refused in the last" not in read(website)


def test_the_list_sorts_by_a_column_in_the_url() -> None:
    website = take(
        make_website(),
        make_event(consumer="b", status_text="OK", total_lag=9, incident_id=None),
        make_event(consumer="a", total_lag=1),
    )
    assert [row.split()[1] for row in rows(website, sort="lag")] == ["b", "a"]
    assert [row.split()[1] for row in rows(website, sort="-lag")] == ["a", "b"]
    for column, direction in {"lag": "descending", "event": "ascending", "-event": "descending"}.items():
        assert f'aria-sort="{direction}"' in read(website, sort=column)
    assert website.client.get("/?sort=size").status_code == 400


def test_a_page_is_compressed_if_the_client_accepts_it() -> None:
    website = take(make_website(), *(make_event(consumer=f"group-{n}") for n in range(20)))
    plain = website.client.get("/", headers={"Accept": "text/html"})
    squeezed = website.client.get("/", headers={"Accept": "text/html", "Accept-Encoding": "gzip"})
    assert squeezed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(squeezed.data) == plain.data
    assert "Accept-Encoding" in squeezed.headers["Vary"]
    assert len(squeezed.data) * 4 < len(plain.data)


def test_the_page_of_a_group_shows_its_last_weeks_if_there_are_tables() -> None:
    end = datetime(2026, 11, 22, tzinfo=UTC)
    hours = tuple(SeriesPoint(end - timedelta(hours=n), (1000.0 * n, 60.0 * n, 1 + n % 3)) for n in range(72, 0, -1))
    began, ended = end - timedelta(hours=9), end - timedelta(hours=7)
    incident = Incident(None, "prod-eu", "orders-svc", began, ended, "close", "ERR", 77_000, 3, ("orders.v1",))
    past = HourlyHistory(end - timedelta(days=30), end, hours, (incident,))
    website = take(make_website(last_weeks=lambda _cluster, _consumer: past), make_event())
    text = read(website, "/group", cluster="prod-eu", consumer="orders-svc")
    assert "from the pipeline's tables" in text
    assert "ERR 2026-11-21 15:00:00 UTC 2 h close 77,000 orders.v1" in Page(text).rows


def test_the_page_of_a_group_names_the_days_with_unknown_incidents() -> None:
    end = datetime(2026, 11, 22, tzinfo=UTC)
    hours = tuple(SeriesPoint(end - timedelta(hours=n), (1000.0 * n, 60.0 * n, 1)) for n in range(72, 0, -1))
    missing = [
        DayRange(date(2026, 10, 23), date(2026, 11, 18)),
        *(DayRange(date(2026, 11, n), date(2026, 11, n)) for n in (20, 22)),
    ]

    def told(*days: DayRange) -> str:
        weeks = HourlyHistory(end - timedelta(days=30), end, hours, (), days)
        website = take(make_website(last_weeks=lambda _cluster, _consumer: weeks), make_event())
        return read(website, "/group", cluster="prod-eu", consumer="orders-svc")

    assert "Incidents are not known" not in told()
    assert "Incidents are not known on 2026-10-23 to 2026-11-18, 2026-11-20, 2026-11-22: on these days" in told(
        *missing
    )
    assert "2026-11-18, 2026-11-20 and some later days: on these days" in told(*missing, *missing)


def test_unreadable_tables_are_reported() -> None:
    website = take(
        make_website(last_weeks=lambda _cluster, _consumer: NotReadable("lag_minute is <damaged>")), make_event()
    )
    text = read(website, "/group", cluster="prod-eu", consumer="orders-svc")
    assert "Karrot could not read the tables: lag_minute is &lt;damaged&gt;" in text
    assert "The code of this problem" not in text


def test_a_problem_of_the_tables_with_a_code_has_its_remedy() -> None:
    problem = NotReadable("s3://lag is away", "tables_unavailable", "Check the network.")
    website = take(make_website(last_weeks=lambda _cluster, _consumer: problem), make_event())
    text = read(website, "/group", cluster="prod-eu", consumer="orders-svc")
    assert "Check the network. The code of this problem is <code>tables_unavailable</code>." in text
    assert "There is no history yet" not in text


def test_a_karrot_that_polls_kafka_waits_for_kafka_and_shows_why_it_fails() -> None:
    website = make_website(duties=("watch",))
    page = read(website)
    assert "<h1>Waiting for Kafka</h1>" in page
    assert "burrow.toml" not in page
    refused = "localhost:9092: Connection refused"
    website.log.save_reporter(ReporterState("watch", None, "failing", refused, website.clock.wall))
    page = read(website)
    assert refused in page
    assert "/runbooks/KarrotWatchSilent" in page

    take(website, make_event(source=Source.KAFKA))
    website.forget()
    page = read(website)
    assert "No group is known" in page
    assert "No group sent an event in the last 5 min" in page
    assert refused in page


def test_home_page_reporters_page_and_api_use_one_word_for_the_state_of_a_reporter() -> None:
    website = take(make_website(reporters=("prometheus", "stdout")), make_event())
    website.log.save_reporter(ReporterState("stdout", None, "ok", None, website.clock.wall))
    home = read(website)
    listed = Page(read(website, "/reporters")).rows[1:]
    answered: Any = website.client.get("/api/v1/reporters").json
    states = {each["name"]: each["state"] for each in answered["reporters"]}
    assert states == {"prometheus": "idle", "stdout": "ok"}
    assert "prometheus not scraped yet stdout ok" in words(home)
    assert [row.partition(" 1 ")[0] for row in listed] == ["not scraped yet prometheus – – – –", "ok stdout"]  # noqa: RUF001


def test_the_reporters_page_shows_full_errors_and_refused_data() -> None:
    website = make_website(reporters=("cloudwatch",))
    error = "AccessDenied: " + "x" * 400
    website.log.save_reporter(ReporterState("cloudwatch", None, "failing", error, website.clock.wall))
    refused = RefusedDatum("Lag {Cluster=a}", "too_old", "It was long ago.", instant(website.clock.wall))
    report = Report(instant(website.clock.wall), 0, (Fact("groups left out", "15.88 thousand"),), (), (refused,))
    website.log.remember("cloudwatch", REPORT_NOTE, msgspec.json.encode(report))
    for path in ("/reporters", "/reporters/cloudwatch"):
        assert read(website, path).lower().count("last send") == 1
    text = read(website, "/reporters")
    assert error in text
    assert "15.88 thousand" in text
    assert "Lag {Cluster=a}" in text
    assert "too_old" in text
    assert "/runbooks/KarrotReporterDropping" in text
