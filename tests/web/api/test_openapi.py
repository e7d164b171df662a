import re
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate

from karrot.runbooks_and_remedies import CODES
from karrot.telemetry import EVENTS_REJECTED
from karrot.web.api.routes import _EVENTS_LIMIT, _GROUPS_LIMIT, _MOST_LIMIT, _REJECTS_LIMIT, STATUSES
from karrot.web.webhook import METHODS
from support.burrow.lag_events import make_event
from support.burrow.recorded_bodies import recorded_body
from support.web.website import make_website


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    answer: dict[str, Any] = make_website().client.get("/openapi.json").get_json()
    return answer


def resolved(described: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = described["components"]["responses"].get(answer.get("$ref", "").rpartition("/")[2], answer)
    return found


def problems_of(described: dict[str, Any], operation: dict[str, Any]) -> set[tuple[str, str]]:
    """Return the status and the code of every problem that the operation describes."""
    answers = ((status, resolved(described, answer)) for status, answer in operation["responses"].items())
    return {
        (status, code)
        for status, answer in answers
        if "application/problem+json" in answer["content"]
        for code in answer["description"].split(", ")
    }


def test_the_description_is_valid_openapi(described: dict[str, Any]) -> None:
    assert (described["openapi"], described["info"]["version"]) == ("3.1.0", "2.0.0")
    validate(described)


def test_every_route_is_described_and_no_other(described: dict[str, Any]) -> None:
    app = make_website().client.application
    routes = {
        (re.sub(r"<(\w+)>", r"{\1}", rule.rule), method.lower())
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    told = {(path, method) for path, operations in described["paths"].items() for method in operations}
    events = {("/burrow", method.lower()) for method in METHODS}  # which Karrot's server takes before Flask
    assert told == {route for route in routes if route[0] != "/burrow"} | events


def test_every_operation_has_its_own_name(described: dict[str, Any]) -> None:
    names = [
        operation["operationId"] for operations in described["paths"].values() for operation in operations.values()
    ]
    assert len(names) == len(set(names))


def test_every_code_is_described_at_an_operation_or_in_general_with_its_status(described: dict[str, Any]) -> None:
    problems = set[tuple[str, str]]()
    for operations in described["paths"].values():
        for operation in operations.values():
            found = problems_of(described, operation)
            assert found == {(status, code) for status, code in found if CODES[code].status == int(status)}
            problems |= found
    assert CODES.keys() - {code for _, code in problems} == {"bad_request", "method_not_allowed"}
    for operation in described["paths"]["/burrow"].values():
        elsewhere = {"bad_request", "not_found", "method_not_allowed"}
        assert {code for _, code in problems_of(described, operation)} == {*EVENTS_REJECTED.known} - elsewhere


def test_the_parameters_have_the_limits_and_words_of_the_code(described: dict[str, Any]) -> None:
    limits = {
        path: parameter["schema"]
        for path, operations in described["paths"].items()
        for parameter in operations.get("get", {}).get("parameters", ())
        if parameter.get("name") == "limit"
    }
    assert limits == {
        path: {"type": "integer", "minimum": 1, "maximum": _MOST_LIMIT, "default": default}
        for path, default in (
            ("/api/v1/groups", _GROUPS_LIMIT),
            ("/api/v1/group", _EVENTS_LIMIT),
            ("/api/v1/rejects", _REJECTS_LIMIT),
        )
    }
    (status,) = (
        parameter
        for parameter in described["paths"]["/api/v1/groups"]["get"]["parameters"]
        if parameter["name"] == "status"
    )
    assert status["schema"]["enum"] == [*STATUSES, ""]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/groups", 200),
        ("/api/v1/group?cluster=prod-eu&consumer=orders-svc", 200),
        ("/api/v1/group?cluster=prod-eu&consumer=nobody", 404),
        ("/api/v1/groups?limit=0", 400),
        ("/api/v1/reporters", 200),
        ("/api/v1/rejects", 200),
        ("/api/v1/rejects?limit=0", 400),
        ("/readyz", 200),
        ("/healthz", 200),
        ("/heartbeat", 200),
        ("/config", 200),
        ("/reporters", 200),
        ("/openapi.json", 200),
    ],
)
def test_answers_match_their_description(described: dict[str, Any], path: str, status: int) -> None:
    website = make_website()
    website.client.post("/burrow", data=recorded_body("karrot_v1.9.5_err_stop.json"))
    website.client.post("/burrow", data=b"not an event")
    website.context.intake.accept(make_event(consumer="unknown", total_lag=None, max_lag=None, incident_id=None))
    response = website.client.get(path)
    assert response.status_code == status
    answer = resolved(described, described["paths"][path.partition("?")[0]]["get"]["responses"][str(status)])
    schema = answer["content"][response.mimetype]["schema"]
    OAS31Validator(schema | {"components": described["components"]}).validate(response.get_json())
