import json

import msgspec

from karrot.eventlog.base import Cursor, ReporterState
from karrot.reporters.base import Fact, RefusedDatum, Report, Sent
from karrot.text import instant
from support.burrow.recorded_bodies import recorded_body
from support.web.website import make_website

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
BODY = recorded_body("karrot_v1.9.5_err_stop.json")


def test_the_settings_are_shown_in_the_old_form() -> None:
    response = make_website().client.get("/config")
    assert response.json == {
        "status": "success",
        "config": {"KARROT_REPORTERS": "prometheus,stdout", "KARROT_API_TOKEN": "********"},
    }


def test_reporters_are_listed_by_name_with_or_without_a_slash() -> None:
    client = make_website().client
    for path in ("/reporters", "/reporters/"):
        response = client.get(path)
        assert (response.status_code, response.json) == (200, {"reporters": ["prometheus", "stdout"]})


def test_a_reporter_shows_its_last_event() -> None:
    website = make_website()
    website.client.post("/burrow", data=BODY)
    website.client.post("/burrow", data=recorded_body("karrot_v1.9.5_warn.json"))
    website.log.save_reporter(ReporterState("stdout", Cursor(website.log.log_id, 1), "ok"))
    had = {"last_event_timestamp": "Fri, 15 Jan 2027 08:00:00 GMT", "last_event": json.loads(BODY)["Event"]}
    assert website.client.get("/reporters/stdout").json == {"reporters": [{"stdout": had}]}
    (prometheus,) = website.client.get("/reporters/prometheus").get_json()["reporters"]
    assert prometheus["prometheus"]["last_event"]["Result"]["status"] == "WARN"


def test_a_reporter_without_an_event_shows_nulls_and_an_unknown_one_is_empty() -> None:
    client = make_website().client
    nothing = {"last_event_timestamp": None, "last_event": None}
    assert client.get("/reporters/stdout").json == {"reporters": [{"stdout": nothing}]}
    assert client.get("/reporters/carrier-pigeon").json == {"reporters": []}


def test_browsers_get_html_pages() -> None:
    website = make_website()
    website.client.post("/burrow", data=BODY)
    error = "<b>no</b> room"
    website.log.save_reporter(ReporterState("stdout", Cursor(website.log.log_id, 1), "failing", error, 1))
    for path in ("/reporters", "/reporters/stdout", "/reporters/prometheus"):
        response = website.client.get(path, headers=HTML)
        assert response.status_code == 200
        assert response.content_type == "text/html; charset=utf-8"
        assert "Accept" in response.headers["Vary"]
        assert error not in response.text
    assert "&lt;b&gt;no&lt;/b&gt; room" in website.client.get("/reporters", headers=HTML).text
    assert website.client.get("/reporters/carrier-pigeon", headers=HTML).status_code == 404


def test_a_reporter_s_page_shows_sent_and_refused_data_in_the_reporter_s_own_words() -> None:
    website = make_website(reporters=("cloudwatch",))
    report = Report(
        at=instant(1_800_000_000_000),
        sent_count=1,
        facts=(Fact("groups left out", "1"), Fact("groups left out", "for 0.30 USD a month")),
        sent=(Sent("Lag {ConsumerGroup=<b>}", 12_345.5, None, instant(1_800_000_000_000)),),
        refused=(
            RefusedDatum(
                "Lag {ConsumerGroup=x}", "rejected", "PutMetricData was answered 400", instant(1_800_000_000_000)
            ),
        ),
    )
    website.log.remember("cloudwatch", "report", msgspec.json.encode(report))
    page = website.client.get("/reporters/cloudwatch", headers=HTML).get_data(as_text=True)
    for text in ("for 0.30 USD a month", "Lag {ConsumerGroup=&lt;b&gt;}", "12,345.5", "was answered 400"):
        assert text in page
    assert page.count(">groups left out<") == 1
