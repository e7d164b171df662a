from typing import Any, NoReturn

import pytest
from structlog.testing import capture_logs

from karrot.eventlog.base import GroupState, LogUnavailableError
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.runbooks_and_remedies import CODES
from support.burrow.recorded_bodies import recorded_body
from support.manual_clock import ManualClock
from support.web.credentials import make_credentials
from support.web.website import make_website

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


class Unreadable(MemoryEventLog):
    error: Exception = RuntimeError("secret internals")

    def live(self) -> list[GroupState]:
        raise self.error


def test_every_code_has_a_status_a_title_and_a_remedy() -> None:
    for code, known in CODES.items():
        assert code == code.lower().replace("-", "_")
        assert 400 <= known.status < 600
        assert known.title
        assert not known.title.endswith(".")
        assert known.remedy.endswith((".", "/."))


@pytest.mark.parametrize("path", ["/nothing", "/burrow/x", "/api/v2", "/static/nothing.css"])
def test_an_unknown_path_gives_a_problem_and_never_a_redirect(path: str) -> None:
    client = make_website().client
    for method in ("GET", "POST"):
        response = client.open(path, method=method)
        assert response.status_code in (404, 405)
        assert response.content_type == "application/problem+json"
        assert response.json is not None
        assert response.json["type"] == "urn:problem-type:karrot:" + response.json["code"]
        assert response.json["status"] == response.status_code
        assert response.json["detail"]


def test_a_double_slash_gives_no_redirect_either() -> None:
    client = make_website().client
    event = recorded_body("karrot_v1.9.5_warn.json")
    assert client.post("/", data=event, environ_overrides={"PATH_INFO": "//burrow"}).status_code == 202
    assert client.get("/", environ_overrides={"PATH_INFO": "/api//v1/groups"}).status_code == 404


def test_a_browser_gets_a_small_page_instead() -> None:
    response = make_website().client.get("/<script>", headers=HTML)
    assert response.status_code == 404
    assert response.content_type == "text/html; charset=utf-8"
    assert response.headers["Vary"] == "Accept"
    assert CODES["not_found"].title in response.text


def test_the_page_names_the_wrong_parameter_in_plain_words() -> None:
    page = make_website().client.get("/?page=x", headers=HTML)
    assert page.status_code == 400
    assert "page must be a whole number from 1 to 999999." in page.text
    assert "Wrong field: <code>page</code>" in page.text
    assert "Use the links and the forms of the page instead." in page.text
    assert "Burrow" not in page.text
    assert "`" not in page.text


def test_the_api_and_the_webhook_answer_browsers_like_programs() -> None:
    client = make_website().client
    for path in ("/api/v1/nothing", "/api/v1/group", "/burrow"):
        assert client.get(path, headers=HTML).content_type == "application/problem+json"


@pytest.mark.parametrize("path", ["/", "/healthz", "/api/v1/groups", "/metrics", "/reporters"])
def test_a_wrong_method_gets_the_allowed_ones(path: str) -> None:
    response = make_website().client.post(path)
    assert response.status_code == 405
    assert response.headers["Allow"] == "GET, HEAD, OPTIONS"
    assert response.json is not None
    assert response.json["code"] == "method_not_allowed"


@pytest.mark.parametrize("headers", [{}, HTML], ids=["the API", "a page"])
def test_an_unexpected_error_is_logged_once_and_shows_no_details(headers: dict[str, str]) -> None:
    client = make_website(log=Unreadable(ManualClock())).client
    with capture_logs() as logs:
        response = client.get("/api/v1/groups" if not headers else "/", headers=headers)
    assert response.status_code == 500
    assert "secret internals" not in response.text
    assert "Traceback" not in response.text
    (entry,) = logs
    assert (entry["event"], entry["code"], entry["log_level"]) == ("request failed", "internal_error", "error")
    assert entry["exc_info"] is True


def test_an_unreadable_log_gives_503() -> None:
    log = Unreadable(ManualClock())
    log.error = LogUnavailableError("the disk is gone")
    response = make_website(log=log).client.get("/api/v1/groups")
    assert response.status_code == 503
    assert response.headers["Retry-After"] == "1"
    assert response.json is not None
    assert response.json["detail"] == "the disk is gone"


def test_only_who_may_read_is_told_why_the_log_cannot_be_read() -> None:
    class Away(MemoryEventLog):
        def live(self, *_args: Any, **_kwargs: Any) -> NoReturn:
            raise LogUnavailableError("cannot connect to db.internal:5432")

        latest = reporters = live

    website = make_website(log=Away(ManualClock()), credentials=make_credentials(api_token="api-token"))
    for path in ("/readyz", "/metrics", "/", "/api/v1/groups"):
        assert "db.internal" not in website.client.get(path).text
    told = website.client.get("/api/v1/groups", headers={"Authorization": "Bearer api-token"})
    assert (told.status_code, told.get_json()["detail"]) == (503, "cannot connect to db.internal:5432")


@pytest.mark.parametrize("path", ["/", "/burrow", "/metrics", "/api/v1/groups", "/nothing", "/healthz"])
def test_every_answer_has_the_security_headers(path: str) -> None:
    headers = make_website().client.get(path).headers
    assert headers["Content-Security-Policy"].startswith("default-src 'self';")
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/metrics", "/api/v1/groups", "/reporters"])
def test_head_answers_like_get_without_a_body(path: str) -> None:
    response = make_website().client.head(path)
    assert response.status_code == 200
    assert response.data == b""
