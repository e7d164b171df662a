"""The API gives no 5xx and only answers of its own description, for requests that it allows and forbids."""

from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from support.burrow.lag_events import make_event
from support.burrow.recorded_bodies import recorded_body
from support.web.website import make_website

EXAMPLES = 30
CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]

_website = make_website()
_website.client.post("/burrow", data=recorded_body("karrot_v1.9.5_err_stop.json"))
_website.context.intake.accept(make_event(consumer="unknown", total_lag=None, max_lag=None, incident_id=None))
schema = schemathesis.openapi.from_wsgi("/openapi.json", _website.client.application)


@schema.parametrize()
@settings(
    max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
def test_every_answer_matches_the_description(case: schemathesis.Case[Any]) -> None:
    case.call_and_validate(checks=CHECKS)
