"""The JSON Schemas in docs/schemas accept every line and record that Karrot writes, and refuse others."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from jsonschema import Draft202012Validator

from karrot.burrow.payload import parse_webhook, to_wire
from karrot.event import UINT64_MAX, AgeKind, LagAge, LagEvent, TopicPartition
from karrot.event_json_line import EventLine, PartitionLine, decode, encode
from karrot.eventlog.base import StoredEvent
from karrot.eventlog.next_group_state import summarize
from karrot.reporters.kafka.reporter import message_of
from support.burrow.lag_events import event_strategy, make_event
from support.burrow.recorded_bodies import expected_events, recorded_body

ROOT = Path(__file__).resolve().parents[1]
RECORDED_LINES = ROOT / "tests" / "data" / "v2.0.0a1" / "archive-lines.jsonl"
SCHEMAS = {
    of: json.loads((ROOT / "docs" / "schemas" / f"{of}.json").read_text(encoding="utf-8"))
    for of in ("archive-line", "kafka-key", "kafka-value")
}
LINE, KEY, VALUE = map(Draft202012Validator, SCHEMAS.values())
COUNTS = {"seq", "partition_count", "bad_partitions"}
ADDED_LATER = {"lag_seconds_kind", "lag_seconds_topic", "lag_seconds_partition"}


def stored(event: LagEvent, body: bytes | None = None) -> StoredEvent:
    summary = summarize(event, 1_746_950_405_120)
    return StoredEvent("9f3c1b7a5d2e4f60", 7, 1, summary, to_wire(event) if body is None else body, event)


def check_all(event: StoredEvent) -> None:
    """Check the lines and the record of an event."""
    line, without_body, (key, value) = encode(event), encode(event, body=False), message_of(event)
    LINE.validate(json.loads(line))
    LINE.validate(json.loads(without_body))
    KEY.validate(json.loads(key))
    VALUE.validate(json.loads(value))


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_each_schema_is_valid_json_schema(schema: dict[str, Any]) -> None:
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$schema"]
    Draft202012Validator.check_schema(schema)


def types_alone(schema: Any) -> Any:
    """Return a schema without what the code does not have: texts and ranges. A default is not in a schema."""
    if isinstance(schema, list):
        return [types_alone(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    left_out = {"$schema", "title", "default", "minimum", "maximum", "required"}
    left_out |= {"description"} if isinstance(schema.get("description"), str) else set()
    return {key: types_alone(each) for key, each in schema.items() if key not in left_out}


def test_the_schema_of_a_line_has_the_keys_and_types_of_the_code() -> None:
    of_code = msgspec.json.schema(EventLine)["$defs"]
    line = of_code.pop("EventLine")
    assert types_alone(SCHEMAS["archive-line"]) == types_alone({**line, "$defs": of_code})
    assert SCHEMAS["archive-line"]["required"] == ["v", *line["required"]]
    assert SCHEMAS["archive-line"]["$defs"]["PartitionLine"]["required"] == of_code["PartitionLine"]["required"]


def test_the_schema_of_a_line_has_the_ranges_of_the_parser() -> None:
    for of in (SCHEMAS["archive-line"], SCHEMAS["archive-line"]["$defs"]["PartitionLine"]):
        for name, schema in of["properties"].items():
            [*numbers] = [each for each in schema.get("anyOf", [schema]) if each.get("type") == "integer"]
            for number in numbers:
                assert number.get("maximum") == (UINT64_MAX if name.endswith("lag") else None)
                assert ("minimum" in number) == (name.endswith("lag") or name in COUNTS)


def test_the_value_of_a_record_is_the_line_with_its_body() -> None:
    line, value = SCHEMAS["archive-line"], SCHEMAS["kafka-value"]
    body = {"description": "the received body, byte for byte", "type": "string"}
    assert value == {**line, "title": value["title"], "properties": {**line["properties"], "body": body}}


def test_recorded_lines_are_valid() -> None:
    lines = RECORDED_LINES.read_bytes().splitlines()
    assert len(lines) == 3
    for line in lines:
        decode(line)
        LINE.validate(json.loads(line))


@pytest.mark.parametrize("name", sorted(name for name in expected_events() if name.startswith("karrot_")))
def test_lines_and_records_of_recorded_bodies_are_valid(name: str) -> None:
    body = recorded_body(name)
    check_all(stored(parse_webhook(body, observed_at_ms=1_746_950_405_000), body))


@given(event_strategy())
def test_lines_and_records_of_any_event_are_valid(event: LagEvent) -> None:
    check_all(stored(event))


@pytest.mark.parametrize("kind", list(AgeKind))
def test_each_kind_of_lag_in_seconds_is_valid(kind: AgeKind) -> None:
    event, age = make_event(), LagAge(123.5, kind, TopicPartition("orders.v1", 3))
    check_all(replace(stored(event), summary=summarize(event, 0, age)))


def said(**changed: Any) -> dict[str, Any]:
    """Return a valid line with changed keys. A key with the value ``...`` is removed."""
    line = json.loads(encode(stored(make_event()))) | changed
    return {key: value for key, value in line.items() if value is not ...}


@pytest.mark.parametrize("key", sorted({*EventLine.__struct_fields__} - ADDED_LATER))
def test_a_line_without_a_key_of_the_first_version_is_refused(key: str) -> None:
    assert not LINE.is_valid(said(**{key: ...}))


@pytest.mark.parametrize("key", PartitionLine.__struct_fields__)
def test_a_partition_without_a_key_is_refused(key: str) -> None:
    [partition] = said()["partitions"]
    del partition[key]
    assert not LINE.is_valid(said(partitions=[partition]))


def test_an_older_line_without_the_keys_that_were_added_later_is_valid() -> None:
    LINE.validate(said(**dict.fromkeys(ADDED_LATER, ...)))


def test_a_later_line_with_a_new_key_is_valid() -> None:
    LINE.validate(said(added_in_a_later_version=1))


@pytest.mark.parametrize(
    "changed",
    [
        {"v": 2},
        {"seq": "7"},
        {"source": "email"},
        {"kind": None},
        {"total_lag": -1},
        {"total_lag": 2**64},
        {"lag_seconds": "12"},
        {"partitions": None},
        {"max_partition": {}},
        {"lag_seconds_kind": "about"},
    ],
    ids=str,
)
def test_a_line_with_a_wrong_value_is_refused(changed: dict[str, Any]) -> None:
    assert LINE.is_valid(said())
    assert not LINE.is_valid(said(**changed))


def test_a_record_has_a_body_and_a_key_of_two_texts() -> None:
    assert not VALUE.is_valid(said(body=None))
    assert not KEY.is_valid(["prod-eu"])
    assert not KEY.is_valid(["prod-eu", "orders-svc", "more"])
    assert not KEY.is_valid("prod-eu")
