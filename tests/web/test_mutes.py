import json
from datetime import datetime, timedelta
from glob import escape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from openapi_schema_validator import OAS31Validator

from karrot import mutes
from karrot.event import GroupKey
from karrot.eventlog.base import LogUnavailableError
from support.burrow.lag_events import make_event
from support.eventlog.mutes import make_mute
from support.web.credentials import make_credentials
from support.web.website import Website, make_website

WISH = {"cluster": "prod-eu", "pattern": "orders-*", "reason": "a planned migration", "for": "2h"}
GROUP = {"cluster": "prod-eu", "consumer": "orders-svc"}


@pytest.fixture
def website() -> Website:
    website = make_website()
    for consumer in ("orders-svc", "orders-new", "billing"):
        website.context.intake.accept(make_event(consumer=consumer, status_text="ERR"))
    return website


def post(website: Website, wish: Any = None, **headers: str) -> Any:
    return website.client.post("/api/v1/mutes", data=json.dumps(WISH if wish is None else wish), headers=headers)


def form(website: Website, fields: dict[str, str], consumer: str = "orders-svc", **headers: str) -> Any:
    query = GROUP | {"consumer": consumer}
    return website.client.post("/mute", query_string=query, data=fields, headers={"Accept": "text/html", **headers})


def muted(website: Website) -> dict[str, str | None]:
    groups = website.client.get("/api/v1/groups").get_json()["groups"]
    return {each["consumer"]: each["muted"] and each["muted"]["reason"] for each in groups}


def test_a_mute_begins_is_shown_at_its_groups_and_ends(website: Website) -> None:
    begun = post(website).get_json()
    (mute,) = begun["mutes"]
    assert begun["groups"] == 2
    assert {name: mute[name] for name in ("cluster", "pattern", "reason")} == {
        name: WISH[name] for name in ("cluster", "pattern", "reason")
    }
    assert datetime.fromisoformat(mute["until"]) - datetime.fromisoformat(mute["since"]) == timedelta(hours=2)
    assert website.client.get("/api/v1/mutes").get_json() == {"mutes": [mute], "groups": None}
    assert muted(website) == {"orders-svc": WISH["reason"], "orders-new": WISH["reason"], "billing": None}
    assert website.client.get("/api/v1/group", query_string=GROUP).get_json()["muted"] == mute
    ended = website.client.delete("/api/v1/mutes", query_string={"id": mute["id"]})
    assert ended.get_json()["mutes"] == [mute]
    assert set(muted(website).values()) == {None}
    again = website.client.delete("/api/v1/mutes", query_string={"id": mute["id"]})
    assert (again.status_code, again.get_json()["code"]) == (404, "not_found")


def test_a_mute_ends_by_the_clock(website: Website) -> None:
    post(website, WISH | {"for": "30s"})
    website.clock.advance(29_999)
    assert muted(website)["orders-svc"]
    website.clock.advance(1)
    assert not muted(website)["orders-svc"]


def test_a_pattern_without_a_live_group_is_taken_and_names_none(website: Website) -> None:
    assert post(website, WISH | {"pattern": "later-?"}).get_json()["groups"] == 0
    assert mutes.muted(website.log, [GroupKey("prod-eu", "later-1")], website.clock.wall_ms())


@pytest.mark.parametrize(
    ("wrong", "path", "sentence"),
    [
        ({"cluster": ""}, "cluster", "cluster must have 1 to 500 characters."),
        ({"pattern": " "}, "pattern", "pattern must have 1 to 500 characters."),
        ({"pattern": "x" * 501}, "pattern", "pattern must have 1 to 500 characters."),
        ({"pattern": "orders-[ab"}, "pattern", "pattern has a [ without a ]: write [[] for the character [."),
        ({"pattern": "[]"}, "pattern", "pattern has a [ without a ]: write [[] for the character [."),
        ({"reason": " \t"}, "reason", "reason must have 1 to 500 characters."),
        ({"for": ""}, "for", "for is '': it must be seconds, or a number with s, m, h or d, from 1s to 30d."),
        ({"for": "-2h"}, "for", "for is '-2h': it must be seconds, or a number with s, m, h or d, from 1s to 30d."),
        ({"for": "0"}, "for", "for is '0': it must be seconds, or a number with s, m, h or d, from 1s to 30d."),
        ({"for": "31d"}, "for", "for is '31d': it must be seconds, or a number with s, m, h or d, from 1s to 30d."),
    ],
)
def test_a_wrong_wish_is_refused_with_a_sentence(
    website: Website, wrong: dict[str, str], path: str, sentence: str
) -> None:
    answer = post(website, WISH | wrong)
    told = answer.get_json()
    assert (answer.status_code, told["code"], told["path"], told["detail"]) == (400, "invalid_field", path, sentence)
    assert mutes.read(website.log) == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"for": 2}', b"\xff", b'"' + b"x" * 100])
def test_a_body_that_is_no_wish_is_refused(website: Website, body: bytes) -> None:
    answer = website.client.post("/api/v1/mutes", data=body)
    assert (answer.status_code, answer.get_json()["code"]) == (400, "invalid_field")
    assert answer.get_json()["detail"].startswith("The body must be a JSON object of strings, up to 16 KiB")


@pytest.mark.parametrize("pattern", ["[[]", "a[!]]b", "[a-c]*", "]", "[[]x[]]"])
def test_a_pattern_may_have_brackets(website: Website, pattern: str) -> None:
    assert post(website, WISH | {"pattern": pattern}).status_code == 200


def test_too_many_mutes_are_refused(website: Website) -> None:
    for number in range(mutes.MOST):
        mutes.begin(website.log, make_mute(website.clock, id=str(number)))
    answer = post(website)
    assert (answer.status_code, answer.get_json()["code"]) == (409, "too_many_mutes")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Origin": "http://localhost"}, 200),
        ({"Origin": "https://karrot.example"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://localhost.evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example", "Accept-Language": "en"}, 403),
    ],
)
def test_a_page_of_another_site_can_change_nothing(headers: dict[str, str], status: int) -> None:
    website = make_website(
        external_url="https://karrot.example/karrot", credentials=make_credentials(api_token="secret")
    )
    website.context.intake.accept(make_event())
    as_password = {"Authorization": "Basic eDpzZWNyZXQ="}  # what a browser adds to every request
    known = make_mute(website.clock)
    mutes.begin(website.log, known)
    answers = [
        post(website, **as_password, **headers),
        form(website, {"reason": "r", "for": "1h"}, **as_password, **headers),
        website.client.delete("/api/v1/mutes", query_string={"id": known.id}, headers=as_password | headers),
    ]
    changed = status == 200
    assert [each.status_code for each in answers] == [status, 303 if changed else 403, status]
    assert (len(mutes.read(website.log)), known in mutes.read(website.log)) == ((2, False) if changed else (1, True))
    if not changed:
        assert answers[0].get_json()["code"] == "cross_site"


def test_mutes_need_the_api_token() -> None:
    website = make_website(credentials=make_credentials(api_token="secret"))
    answers = [
        post(website),
        form(website, {"reason": "r", "for": "1h"}),
        website.client.get("/api/v1/mutes"),
        website.client.delete("/api/v1/mutes?id=1"),
    ]
    assert [each.status_code for each in answers] == [401] * 4
    assert mutes.read(website.log) == []


def test_the_form_mutes_exactly_its_group_and_shows_it(website: Website) -> None:
    strange = "a*[b]?"
    website.context.intake.accept(make_event(consumer=strange))
    page = website.client.get("/group", query_string=GROUP | {"consumer": strange}).text
    assert 'method="post"' in page
    answer = form(website, {"reason": "<b>us</b>", "for": "1h"}, consumer=strange)
    assert answer.status_code == 303
    where = urlsplit(answer.location)
    assert {name: parse_qs(where.query)[name] for name in GROUP} == {"cluster": ["prod-eu"], "consumer": [strange]}
    now_ms = website.clock.wall_ms()
    assert mutes.muted(website.log, [GroupKey("prod-eu", strange)], now_ms)
    assert not mutes.muted(website.log, [GroupKey("prod-eu", "axb?")], now_ms)
    shown = website.client.get(answer.location).text  # at once, although the page before it is cached
    assert "Muted until" in shown
    assert "&lt;b&gt;us&lt;/b&gt;" in shown
    (mute,) = mutes.read(website.log)
    ended = form(website, {"end": mute.id}, consumer=strange)
    assert "Muted until" not in website.client.get(ended.location).text
    assert form(website, {"end": mute.id}, consumer=strange).status_code == 404


@pytest.mark.parametrize("name", ["*[?" * 341, " ", ""], ids=["long", "blank", "empty"])
def test_a_group_with_any_name_can_be_muted_alone(website: Website, name: str) -> None:
    website.context.intake.accept(make_event(consumer=name))
    assert form(website, {"reason": "us", "for": "1h"}, consumer=name).status_code == 303
    assert list(mutes.muted(website.log, [GroupKey("prod-eu", name), GroupKey("prod-eu", "y")], 0)) == [
        GroupKey("prod-eu", name)
    ]
    assert post(website, WISH | {"pattern": escape(name)}).get_json()["groups"] == 1


def test_the_form_keeps_no_long_name_of_a_group_that_does_not_exist(website: Website) -> None:
    answer = form(website, {"reason": "us", "for": "1h"}, consumer="x" * 501)
    assert (answer.status_code, mutes.read(website.log)) == (400, [])


def test_a_wrong_form_is_answered_by_a_page(website: Website) -> None:
    answer = form(website, {"reason": "", "for": "1h"})
    assert (answer.status_code, answer.mimetype) == (400, "text/html")
    assert "reason must have 1 to 500 characters." in answer.text


def test_the_list_of_groups_keeps_muted_groups_with_reason_and_end(website: Website) -> None:
    post(website)
    page = website.client.get("/").text
    assert page.count("<small>muted until <time") == 2
    assert page.count(f"</time>: {WISH['reason']}</small>") == 2
    assert "billing" in page
    post(website, WISH | {"pattern": "billing"})
    worst = website.client.get("/", query_string={"q": "billing"}).text.partition("<article")[2]
    assert "Muted until <time" in worst.partition("</article>")[0]


def test_the_pages_and_the_api_of_groups_answer_while_the_mutes_cannot_be_read(
    website: Website, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recall(_owner: str, _name: str) -> bytes:
        raise LogUnavailableError("away")

    post(website)
    monkeypatch.setattr(website.log, "recall", recall)
    assert website.client.get("/", query_string={"q": "orders"}).status_code == 200
    assert website.client.get("/group", query_string=GROUP).status_code == 200
    assert set(muted(website).values()) == {None}
    assert website.client.get("/api/v1/mutes").status_code == 503


def test_the_answers_match_their_description(website: Website) -> None:
    described = website.client.get("/openapi.json").get_json()
    operations = described["paths"]["/api/v1/mutes"]
    begun = post(website)
    known = begun.get_json()["mutes"][0]["id"]
    answers = {
        "post": begun,
        "get": website.client.get("/api/v1/mutes"),
        "delete": website.client.delete("/api/v1/mutes", query_string={"id": known}),
    }
    for method, answer in answers.items():
        schema = operations[method]["responses"]["200"]["content"]["application/json"]["schema"]
        OAS31Validator(schema | {"components": described["components"]}).validate(answer.get_json())
