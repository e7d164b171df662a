"""Makes the OpenAPI 3.1 document of all routes. The schemas come from the classes that define the answers."""

from typing import Any

import msgspec

from karrot.api.bodies import EventLogStatus, GroupDetail, GroupPage, Heartbeat, Readiness, Rejects, Reporters
from karrot.known_problems import CODES
from karrot.telemetry import EVENTS_REJECTED
from karrot.web.api.group_query import EVENTS_LIMIT, GROUPS_LIMIT, MOST_LIMIT, REJECTS_LIMIT, STATUSES
from karrot.web.problems import ProblemBody

_ANSWERS = (GroupPage, GroupDetail, Reporters, EventLogStatus, Rejects, Readiness, Heartbeat, ProblemBody)
_REF = "#/components/schemas/{name}"
_READER: list[dict[str, list[str]]] = [{"apiToken": []}, {"apiTokenAsPassword": []}, {}]
_JSON = "application/json"

Node = dict[str, Any]


def document(version: str) -> Node:
    """The complete document."""
    _, schemas = msgspec.json.schema_components(_ANSWERS, ref_template=_REF)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Karrot",
            "version": version,
            "summary": "Takes Burrow's verdicts on Kafka consumer groups and passes them on.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            "/burrow": _burrow(),
            "/metrics": {"get": _metrics()},
            **_health(),
            **_api(),
            **_legacy(),
            **_pages(),
        },
        "components": {"schemas": schemas, "securitySchemes": _security_schemes()},
    }


def _burrow() -> Node:
    operation = {
        "summary": "Take one event. Its meaning depends only on its content, not on the method.",
        "security": [{"burrowBasic": []}, {"burrowBearer": []}, {}],
        "requestBody": {
            "required": True,
            "description": 'What the template {"Event": {{ jsonencoder . }}} makes from a notification of Burrow 1.x.',
            "content": {_JSON: {"schema": _object({"Event": {"type": "object"}}, "Event")}},
        },
        "responses": {
            "202": _answer("The event is stored durably", _object({"status": {"const": "accepted"}}, "status")),
            **_problems(*EVENTS_REJECTED.known),
        },
    }
    return {method: operation | {"operationId": f"receive_{method}"} for method in ("post", "put", "delete")}


def _metrics() -> Node:
    names = _query("name[]", {"type": "array", "items": {"type": "string"}}, "Only these metrics")
    body = {"schema": {"type": "string"}}
    return {
        "operationId": "metrics",
        "summary": "The metrics for Prometheus. Authentication is needed if KARROT_METRICS_AUTH is set.",
        "security": _READER,
        "parameters": [names],
        "responses": {
            "200": {
                "description": "Text format or OpenMetrics, by the Accept header",
                "content": {"text/plain": body, "application/openmetrics-text": body},
            },
            **_problems("unauthorized", "log_unavailable"),
        },
    }


def _health() -> Node:
    readiness = _ref("Readiness")
    return {
        "/healthz": {"get": _open("alive", "The process answers", _object({"status": {"const": "alive"}}, "status"))},
        "/readyz": {
            "get": _open("ready", "Whether Karrot can store events, and the state of each component", readiness)
            | {
                "responses": {
                    "200": _answer("Ready", readiness),
                    "503": _answer("The event log is not writable", readiness),
                }
            }
        },
        "/heartbeat": {"get": _open("heartbeat", "The same answer as in the first Karrot", _ref("Heartbeat"))},
    }


def _api() -> Node:
    filters = [
        _query("cluster", _TEXT, "Only this cluster"),
        _query("status", {"type": "string", "enum": [*STATUSES, ""]}, "Only this status"),
        _query("q", _TEXT, "Only groups whose name or cluster contains this text, in upper or lower case"),
    ]
    pages = [_limit(GROUPS_LIMIT, "Groups per page"), _query("after", _TEXT, "The `next` of the previous page")]
    return {
        "/api/v1/groups": {
            "get": _read("list_groups", "Groups in the order of cluster and name", _ref("GroupPage"), "invalid_field")
            | {"parameters": filters + pages}
        },
        "/api/v1/group": {
            "get": _read(
                "show_group", "One group with its partitions and recent events", _ref("GroupDetail"),
                "invalid_field", "not_found",
            )
            | {"parameters": [*_KEY, _limit(EVENTS_LIMIT, "Recent events")]}
        },
        "/api/v1/reporters": {
            "get": _read("list_reporters", "The progress of each reporter, and which replica leads", _ref("Reporters"))
        },
        "/api/v1/event-log": {
            "get": _read("show_event_log", "The event log, its replicas and its database", _ref("EventLogStatus"))
        },
        "/api/v1/rejects": {
            "get": _read("list_rejects", "The newest bodies that /burrow refused", _ref("Rejects"), "invalid_field")
            | {"parameters": [_limit(REJECTS_LIMIT, "Number of bodies")]}
        },
        "/openapi.json": {"get": _read("openapi", "This document", {"type": "object"})},
    }  # fmt: skip


def _legacy() -> Node:
    names = _object({"reporters": {"type": "array", "items": {"type": "string"}}}, "reporters")
    one = _object({"reporters": {"type": "array", "items": {"type": "object"}, "maxItems": 1}}, "reporters")
    settings = {"type": "object", "additionalProperties": {"type": "string"}}
    config = _object({"status": {"const": "success"}, "config": settings}, "status", "config")
    return {
        "/config": {"get": _read("config", "The settings in effect, with redacted secrets", config)},
        "/reporters": {"get": _or_page(_read("reporter_names", "The reporters that are switched on", names))},
        "/reporters/{name}": {
            "get": _or_page(_read("reporter", "One reporter and its last event, or an empty list if unknown", one))
            | {"parameters": [_NAME]}
        },
    }


def _pages() -> Node:
    asset = {
        "operationId": "asset",
        "summary": "Stylesheet, script and icon of the pages",
        "security": [],
        "parameters": [_NAME],
        "responses": {"200": {"description": "A file that may be cached for ever", "content": {"*/*": {}}}}
        | _problems("not_found"),
    }
    return {
        "/": _page("index", "Every group, worst first", "invalid_field"),
        "/group": _page("group_page", "One group", "invalid_field", "not_found", parameters=_KEY),
        "/rejects": _page("rejects_page", "The bodies that /burrow refused, newest first", "log_unavailable"),
        "/runbooks": _page("runbooks_page", "Every alert with its runbook"),
        "/runbooks/{name}": _page(
            "runbook_page",
            "The runbook of one alert. A .md after the alert's name is ignored.",
            "not_found",
            parameters=[_NAME],
        ),
        "/static/{name}": {"get": asset},
    }


def _security_schemes() -> Node:
    return {
        "burrowBasic": {"type": "http", "scheme": "basic", "description": "KARROT_BURROW_USERNAME and _PASSWORD"},
        "burrowBearer": {"type": "http", "scheme": "bearer", "description": "KARROT_BURROW_TOKEN"},
        "apiToken": {"type": "http", "scheme": "bearer", "description": "KARROT_API_TOKEN"},
        "apiTokenAsPassword": {
            "type": "http",
            "scheme": "basic",
            "description": "For browsers: KARROT_API_TOKEN as the password, with any user name",
        },
    }


def _open(operation: str, summary: str, schema: Node) -> Node:
    return {
        "operationId": operation,
        "summary": summary,
        "security": [],
        "responses": {"200": _answer("The answer", schema)},
    }


def _read(operation: str, summary: str, schema: Node, *codes: str) -> Node:
    answers = {"200": _answer("The answer", schema), **_problems("unauthorized", "log_unavailable", *codes)}
    return {"operationId": operation, "summary": summary, "security": _READER, "responses": answers}


def _page(operation: str, summary: str, *codes: str, **parameters: list[Node]) -> Node:
    shown = {"200": {"description": "A page", "content": {"text/html": {"schema": _TEXT}}}}
    about = {"operationId": operation, "summary": summary, "security": _READER}
    return {"get": about | parameters | {"responses": shown | _problems("unauthorized", *codes)}}


def _or_page(operation: Node) -> Node:
    """Add the HTML page to an operation's answers, for clients that ask for HTML."""
    operation["responses"]["200"]["content"]["text/html"] = {"schema": {"type": "string"}}
    return operation


def _problems(*codes: str) -> Node:
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(CODES[code].status, []).append(code)
    return {
        str(status): {
            "description": ", ".join(same),
            "content": {"application/problem+json": {"schema": _ref("ProblemBody")}},
        }
        for status, same in sorted(by_status.items())
    }


def _answer(description: str, schema: Node) -> Node:
    return {"description": description, "content": {_JSON: {"schema": schema}}}


def _object(properties: Node, *required: str) -> Node:
    return {"type": "object", "properties": properties, "required": list(required)}


def _query(name: str, schema: Node, description: str, *, required: bool = False) -> Node:
    return {"name": name, "in": "query", "required": required, "schema": schema, "description": description}


def _limit(default: int, description: str) -> Node:
    schema = {"type": "integer", "minimum": 1, "maximum": MOST_LIMIT, "default": default}
    return _query("limit", schema, description)


def _ref(name: str) -> Node:
    return {"$ref": _REF.format(name=name)}


_TEXT: Node = {"type": "string"}
_NAME: Node = {"name": "name", "in": "path", "required": True, "schema": _TEXT}
_KEY = [
    _query("cluster", _TEXT, "The cluster's name", required=True),
    _query("consumer", _TEXT, "The group's name", required=True),
]
