from karrot.eventlog.base import Cursor, ReporterState
from karrot.eventlog.sqlite.store import MemoryEventLog
from support.manual_clock import ManualClock
from support.web.credentials import make_credentials
from support.web.website import make_website


class Full(MemoryEventLog):
    def writable(self) -> str | None:
        return "the disk is full"


def test_the_process_is_alive_even_if_its_log_fails() -> None:
    response = make_website(log=Full(ManualClock())).client.get("/healthz")
    assert (response.status_code, response.json) == (200, {"status": "alive"})


def test_the_heartbeat_has_the_form_of_the_first_karrot() -> None:
    response = make_website().client.get("/heartbeat")
    assert (response.status_code, response.json) == (
        200,
        {"status": "success", "msg": "Burrow-reporter is healthy", "time": "2027-01-15T08:00:00Z"},
    )


def test_readiness_names_each_component_and_a_failing_destination_does_not_matter() -> None:
    website = make_website(reporters=("prometheus", "cloudwatch"))
    cursor = Cursor(website.log.log_id, 0)
    website.log.save_reporter(ReporterState("cloudwatch", cursor, "failing", "AccessDenied for arn:aws:iam::1"))
    response = website.client.get("/readyz")
    assert (response.status_code, response.json) == (
        200,
        {
            "status": "ready",
            "components": {
                "log": {"state": "ok"},
                "reporter prometheus": {"state": "idle"},
                "reporter cloudwatch": {"state": "failing"},
            },
        },
    )


def test_a_log_that_cannot_be_written_is_not_ready() -> None:
    response = make_website(log=Full(ManualClock())).client.get("/readyz")
    assert response.status_code == 503
    assert response.json is not None
    assert response.json["status"] == "not ready"
    assert response.json["components"]["log"] == {"state": "failing", "detail": "the disk is full"}


def test_only_who_may_read_is_told_why_the_log_cannot_be_written() -> None:
    website = make_website(log=Full(ManualClock()), credentials=make_credentials(api_token="api-token"))
    for headers, told in (({}, {}), ({"Authorization": "Bearer api-token"}, {"detail": "the disk is full"})):
        response = website.client.get("/readyz", headers=headers)
        assert response.status_code == 503
        assert response.get_json()["components"]["log"] == {"state": "failing"} | told


def test_the_leaders_other_tasks_are_components_too() -> None:
    website = make_website(reporters=(), duties=("resync",))
    assert website.client.get("/readyz").json == {
        "status": "ready",
        "components": {"log": {"state": "ok"}, "resync": {"state": "idle"}},
    }
    website.log.save_reporter(ReporterState("resync", None, "failing", "http://burrow:8000: no connection"))
    response = website.client.get("/readyz")
    assert (response.status_code, response.get_json()["components"]["resync"]) == (200, {"state": "failing"})
