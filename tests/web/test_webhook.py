import base64
import io
import json
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import CapturingLogger, capture_logs

from karrot.event import GroupKey, Kind, Source
from karrot.eventlog.base import LogUnavailableError, OverloadedError, StoredEvent, UnconfirmedError
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.runbooks_and_remedies import CODES
from karrot.web import Credentials, webhook
from karrot.web.webhook import LARGE_BODY
from support.burrow.recorded_bodies import expected_events, recorded_body
from support.examples import examples
from support.manual_clock import ManualClock
from support.web import website as websites
from support.web.credentials import make_credentials
from support.web.http_talk import over_sockets
from support.web.website import Website

ERR_STOP = recorded_body("karrot_v1.9.5_err_stop.json")


def make_website(**overrides: Any) -> Website:
    """Make a website behind Karrot's HTTP server. A test with many requests uses `websites.make_website`."""
    return over_sockets(websites.make_website(**overrides))


def rejected(website: Website) -> dict[str, float]:
    return {
        dict(counter.labels)["code"]: counter.value
        for counter in website.log.counters()
        if counter.name == "karrot_events_rejected_total"
    }


def basic(user: bytes, password: bytes) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(user + b":" + password).decode()}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/burrow", "/burrow/"])
def test_an_event_is_accepted_once_it_is_stored(method: str, path: str) -> None:
    website = make_website()
    response = website.client.open(path, method=method, data=ERR_STOP)
    assert (response.status_code, response.json) == (202, {"status": "accepted"})
    assert response.content_type == "application/json"
    (stored,) = website.log.read(0)
    assert getattr(stored, "body", None) == ERR_STOP


@pytest.mark.parametrize("name", sorted(expected_events()))
def test_every_recorded_body_gets_the_answer_in_its_index(name: str) -> None:
    website = make_website()
    response = website.client.post("/burrow", data=recorded_body(name))
    kind = expected_events()[name].get("kind")
    if "shape" in expected_events()[name]:
        assert response.status_code == 400
        assert response.json is not None
        assert response.json["code"] == "unsupported_template"
        assert '{"Event": {{ jsonencoder . }}}' in response.json["detail"]
    else:
        assert response.status_code == 202, kind


def test_the_content_type_is_ignored() -> None:
    response = make_website().client.post("/burrow", data=ERR_STOP, content_type="text/x-burrow")
    assert response.status_code == 202


@pytest.mark.parametrize(
    ("named", "source"),
    [("kafka", Source.KAFKA), ("rest", Source.WEBHOOK), ("", Source.WEBHOOK)],
    ids=["kafka", "rest", "an empty source"],
)
def test_a_sender_can_name_kafka_and_nothing_else_as_the_source(named: str, source: Source) -> None:
    website = make_website()
    assert website.client.post("/burrow", data=ERR_STOP, headers={"Karrot-Source": named}).status_code == 202
    (stored,) = website.log.read(0)
    assert isinstance(stored, StoredEvent)
    assert stored.event.source is source
    assert bool(website.log.heard()) == (source is Source.WEBHOOK)  # the dead-man metric is about Burrow alone
    counted = {each.name for each in website.log.counters()}
    assert ("karrot_webhook_events_total" in counted) == (source is Source.WEBHOOK)


def test_a_sender_without_the_credentials_cannot_name_a_source() -> None:
    website = make_website(credentials=SECRETS)
    assert website.client.post("/burrow", data=ERR_STOP, headers={"Karrot-Source": "kafka"}).status_code == 401
    assert not website.log.read(0)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PATCH"])
def test_other_methods_get_an_explanation_of_the_url(method: str) -> None:
    response = make_website().client.open("/burrow", method=method)
    assert response.status_code == 405
    assert {"POST", "PUT", "DELETE"} <= set(response.headers["Allow"].split(", "))
    if method != "HEAD":
        assert response.json is not None
        assert response.json["code"] == "method_not_allowed"
        assert "Burrow posts its verdicts here." in response.json["detail"]


class Unread(io.BytesIO):
    """A body that must not be read."""

    def read(self, *_args: Any) -> bytes:
        raise AssertionError("the body was read")

    readinto = readline = read  # type: ignore[assignment]


def post_unread(website: Website, headers: dict[str, str], length: int | str | None = 10) -> Any:
    environ = {"wsgi.input": Unread()} | ({} if length is None else {"CONTENT_LENGTH": str(length)})
    return website.client.post("/burrow", environ_overrides=environ, headers=headers)


SECRETS = make_credentials(
    username="burrow", password="pässword", password_previous="old", token="tok", token_previous="old-tok"
)


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(basic(b"burrow", "pässword".encode()), id="a password"),
        pytest.param(basic(b"burrow", b"old"), id="the previous password"),
        pytest.param({"Authorization": "Bearer tok"}, id="a token"),
        pytest.param({"Authorization": "bearer old-tok"}, id="the previous token"),
        pytest.param({"Authorization": "Bearer  tok "}, id="a token after two spaces"),
        pytest.param({"Authorization": "basic  " + base64.b64encode(b"burrow:old").decode()}, id="two spaces in Basic"),
    ],
)
def test_current_and_previous_secrets_open_the_webhook(headers: dict[str, str]) -> None:
    website = make_website(credentials=SECRETS)
    assert website.client.post("/burrow", data=ERR_STOP, headers=headers).status_code == 202


@pytest.mark.parametrize(
    "authorization",
    [
        pytest.param(None, id="no header"),
        pytest.param("", id="an empty header"),
        pytest.param("Basic", id="Basic without credentials"),
        pytest.param("Basic !!!", id="Basic with text that is not base64"),
        pytest.param("Basic " + base64.b64encode(b"burrow:wrong").decode(), id="a wrong password"),
        pytest.param("Basic " + base64.b64encode(b"other:old").decode(), id="another username"),
        pytest.param("Basic " + base64.b64encode(b"tok").decode(), id="a token as Basic credentials"),
        pytest.param("Bearer burrow:old", id="a username and a password as a token"),
        pytest.param("Basic !" + base64.b64encode(b"burrow:old").decode(), id="the credentials after another letter"),
        pytest.param("Basic " + base64.b64encode(b"\xff\xfe:\x00").decode(), id="a username that is not UTF-8"),
        pytest.param("Bearer", id="Bearer without a token"),
        pytest.param("Bearer wrong", id="a wrong token"),
        pytest.param("Bearer t\xf6k", id="a token that is not ASCII"),
        pytest.param("Digest username=burrow", id="Digest"),
    ],
)
def test_any_other_credentials_give_401_before_the_body_is_read(authorization: str | None) -> None:
    website = make_website(credentials=SECRETS)
    response = post_unread(website, {} if authorization is None else {"Authorization": authorization})
    assert response.status_code == 401
    assert response.json["code"] == "unauthorized"
    assert response.headers.getlist("WWW-Authenticate") == [
        'Basic realm="karrot", charset="UTF-8"',
        'Bearer realm="karrot"',
    ]
    assert rejected(website) == {"unauthorized": 1}
    assert website.log.size().events == 0


@pytest.mark.parametrize(
    ("credentials", "schemes"),
    [(make_credentials(password="p"), ["Basic"]), (make_credentials(token="t"), ["Bearer"])],
    ids=["a password", "a token"],
)
def test_a_refusal_asks_only_for_credentials_that_are_set(credentials: Credentials, schemes: list[str]) -> None:
    response = post_unread(make_website(credentials=credentials), {})
    assert [each.partition(" ")[0] for each in response.headers.getlist("WWW-Authenticate")] == schemes


@pytest.mark.parametrize(
    ("headers", "length", "code"),
    [
        pytest.param({"Content-Encoding": "gzip"}, 10, "unsupported_media_type", id="gzip"),
        pytest.param({"Transfer-Encoding": "chunked"}, None, "length_required", id="chunks"),
        pytest.param({"Transfer-Encoding": "gzip"}, 10, "length_required", id="a transfer encoding of gzip"),
        pytest.param({}, None, "length_required", id="no length"),
        pytest.param({}, 8 * 1024 * 1024 + 1, "too_large", id="a length just above 8 MiB"),
    ],
)
def test_limits_are_checked_before_the_body_is_read(
    headers: dict[str, str], length: int | str | None, code: str
) -> None:
    website = make_website()
    response = post_unread(website, headers, length)
    assert (response.status_code, response.json["code"]) == (CODES[code].status, code)
    assert response.content_type == "application/problem+json"
    assert rejected(website) == {code: 1}


@pytest.mark.parametrize(("over", "status"), [(0, 202), (1, 413)], ids=["the limit", "1 byte more"])
def test_a_body_may_have_as_many_bytes_as_the_setting_says(over: int, status: int) -> None:
    website = make_website(max_body=len(ERR_STOP))
    assert website.client.post("/burrow", data=ERR_STOP + b" " * over).status_code == status


def test_an_empty_body_is_refused_and_kept_so_that_the_pages_can_show_it() -> None:
    website = make_website()
    response = website.client.post("/burrow", environ_overrides={"CONTENT_LENGTH": "0"})
    assert response.json is not None
    assert (response.status_code, response.json["code"]) == (400, "empty_body")
    [reject] = website.log.rejects()
    assert (reject.code, reject.detail, reject.body) == ("empty_body", "The body is empty.", b"")


def test_the_content_encoding_identity_is_accepted() -> None:
    response = make_website().client.post("/burrow", data=ERR_STOP, headers={"Content-Encoding": "Identity"})
    assert response.status_code == 202


def test_large_bodies_are_read_in_turn_and_refused_after_a_wait() -> None:
    website = make_website(large_body_wait=0.01)
    large = ERR_STOP.ljust(LARGE_BODY + 1)
    with website.context.large_bodies:
        response = website.client.post("/burrow", data=large)
        assert response.status_code == 503
        assert response.headers["Retry-After"] == "1"
        assert response.json is not None
        assert response.json["code"] == "overloaded"
        assert website.client.post("/burrow", data=ERR_STOP.ljust(LARGE_BODY)).status_code == 202
    assert website.client.post("/burrow", data=large).status_code == 202


def test_a_large_body_waits_for_the_one_before() -> None:
    class Place:
        waited: float | None = None

        def acquire(self, *, timeout: float) -> bool:
            self.waited = timeout
            return True

        def release(self) -> None:
            pass

    place = Place()
    website = make_website(large_body_wait=1.5, large_bodies=place)
    assert website.client.post("/burrow", data=ERR_STOP.ljust(LARGE_BODY + 1)).status_code == 202
    assert place.waited == 1.5


def test_a_refused_large_body_makes_room_for_the_next_one() -> None:
    website = make_website(large_body_wait=0.01)
    for body, status in ((b"x" * (LARGE_BODY + 1), 400), (ERR_STOP + b" " * LARGE_BODY, 202)):
        assert website.client.post("/burrow", data=body).status_code == status


@pytest.mark.parametrize(
    ("error", "code", "detail"),
    [
        (LogUnavailableError("cannot connect to db.internal:5432"), "log_unavailable", CODES["log_unavailable"].remedy),
        (OverloadedError("no turn came"), "overloaded", "no turn came"),
        (UnconfirmedError("db.internal does not answer"), "unconfirmed", CODES["unconfirmed"].remedy),
    ],
)
def test_an_event_that_cannot_be_stored_gets_503_without_names_of_ours_and_no_log_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: str, detail: str
) -> None:
    class Failing(MemoryEventLog):
        def begin(self, *_args: Any, **_kwargs: Any) -> NoReturn:
            raise error

    website = make_website()
    failing = make_website(log=Failing(website.clock))
    monkeypatch.setattr(webhook, "_log", log := CapturingLogger())  # thousands of lines would fill a disk
    response = failing.client.post("/burrow", data=ERR_STOP)
    assert response.status_code == 503
    assert response.headers["Retry-After"] == "1"
    assert response.json == {
        "type": f"urn:problem-type:karrot:{code}",
        "title": CODES[code].title,
        "status": 503,
        "detail": detail,
        "code": code,
    }
    assert rejected(failing) == {code: 1}
    assert log.calls == []


def test_an_internal_error_is_counted_and_its_body_kept() -> None:
    class Faulty(MemoryEventLog):
        def begin(self, *_args: Any, **_kwargs: Any) -> NoReturn:
            raise ZeroDivisionError("an unexpected error")

    faulty = make_website(log=Faulty(ManualClock()))
    response = faulty.client.post("/burrow", data=ERR_STOP)
    assert response.status_code == 500
    assert response.json is not None
    assert response.json["code"] == "internal_error"
    assert rejected(faulty) == {"internal_error": 1}
    (kept,) = faulty.log.rejects()
    assert (kept.detail, kept.body) == ("ZeroDivisionError: an unexpected error", ERR_STOP[:4096])


def test_a_refused_body_is_counted_once_and_logged_with_its_path() -> None:
    website = make_website()
    body = json.loads(ERR_STOP)
    body["Event"]["Result"]["totallag"] = "many"
    response = website.client.post("/burrow", json=body)
    assert response.status_code == 400
    assert response.json is not None
    assert response.json["code"] == "invalid_field"
    assert response.json["path"] == "$.Event.Result.totallag"
    assert rejected(website) == {"invalid_field": 1}
    assert len(website.log.rejects()) == 1


def test_a_close_is_recognized_by_its_content_for_any_method() -> None:
    website = make_website()
    website.client.post("/burrow", data=recorded_body("karrot_v1.9.5_close.json"))
    (state,) = website.log.live()
    assert state.summary.kind is Kind.CLOSE


JSON_ATOMS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
JSON_VALUES = st.recursive(JSON_ATOMS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)
ALMOST_EVENTS = st.builds(
    lambda change, value: _changed(json.loads(ERR_STOP), change, value),
    st.lists(st.sampled_from(["Event", "Result", "maxlag", "start", "partitions", "totallag", "Group", "offset"])),
    JSON_VALUES,
)


def _changed(body: dict[str, Any], path: list[str], value: Any) -> bytes:
    place: Any = body
    for key in path:
        if isinstance(place, dict) and isinstance(place.get(key), dict):
            place = place[key]
    if isinstance(place, dict) and path:
        place[path[-1]] = value
    return json.dumps(body).encode()


@pytest.fixture(scope="module")
def shared() -> Website:
    return websites.make_website()


@pytest.fixture(scope="module")
def guarded() -> Website:
    return websites.make_website(credentials=SECRETS)


@given(body=st.binary(min_size=1) | JSON_VALUES.map(lambda value: json.dumps(value).encode()) | ALMOST_EVENTS)
@examples(150)
def test_no_body_causes_an_internal_error(shared: Website, body: bytes) -> None:
    response = shared.client.post("/burrow", data=body)
    assert response.status_code in (202, 400)
    if response.status_code == 400:
        assert response.json is not None
        assert response.json["code"] in CODES
        assert len(response.data) < 4096


@given(group=st.text(), cluster=st.text(min_size=1))
@examples(100)
def test_an_accepted_event_can_be_shown_everywhere(shared: Website, group: str, cluster: str) -> None:
    website = shared
    website.forget()
    body = json.loads(ERR_STOP)
    body["Event"] |= {"Group": group, "Cluster": cluster}
    body["Event"]["Result"] |= {"group": group, "cluster": cluster}
    response = website.client.post("/burrow", json=body)
    if response.status_code != 202:
        return
    assert website.log.group(GroupKey(cluster, group)) is not None
    query = {"cluster": cluster, "consumer": group}
    for path in ("/", "/group", "/api/v1/group", "/api/v1/groups", "/metrics"):
        shown = website.client.get(path, query_string=query if "group" in path else None)
        assert shown.status_code == 200, path


@given(authorization=st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0")))
@examples(100)
def test_no_header_causes_an_internal_error(guarded: Website, authorization: str) -> None:
    response = post_unread(guarded, {"Authorization": authorization})
    assert response.status_code == 401


@pytest.mark.parametrize(
    ("recording", "kind"),
    [
        ("karrot_v1.9.5_open_ok_t1.json", "observation"),
        ("karrot_v1.9.5_err_stop.json", "incident"),
        ("karrot_v1.9.5_close.json", "close"),
    ],
)
def test_events_are_counted_by_kind_so_that_a_missing_ok_is_noticed(recording: str, kind: str) -> None:
    website = make_website()
    website.client.post("/burrow", data=recorded_body(recording))
    counted = {counter.labels: counter.value for counter in website.log.counters() if "webhook_events" in counter.name}
    assert counted == {(("kind", kind),): 1}


def test_posts_to_a_wrong_path_are_counted_and_logged() -> None:
    website = websites.make_website()
    with capture_logs() as logs:
        for path in ("/burow", "/"):
            website.client.post(path, data=ERR_STOP)
        website.client.get("/burow")
    assert rejected(website) == {"not_found": 1, "method_not_allowed": 1}
    assert [(each["path"], each["problem"]) for each in logs] == [("/burow", "not_found"), ("/", "method_not_allowed")]


@pytest.mark.parametrize(("path", "code"), [("/burow", "not_found"), ("/burrow", "unauthorized")])
def test_a_client_that_is_always_refused_does_not_fill_the_log(path: str, code: str) -> None:
    website = websites.make_website(credentials=make_credentials(burrow_token="secret"))

    def logged(posts: int) -> list[int]:
        with capture_logs() as logs:
            for _ in range(posts):
                website.client.post(path, data=ERR_STOP)
        return [each["skipped"] for each in logs]

    assert logged(500) == [0] * 10
    website.clock.advance(60_000)
    assert logged(2) == [490, 0]
    assert rejected(website) == {code: 502}
    with capture_logs() as logs:
        website.client.post("/burrow", data=b"{", headers={"Authorization": "Bearer secret"})
    assert [each["code"] for each in logs] == ["unsupported_template"]
