import json
import re
from contextlib import suppress
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrot.pipeline.offsets.members import UnreadableMetadata, _Reader, parse_key, parse_value
from support.kafka import offset_records as encoded
from support.kafka.offset_records import assignment, group_key, group_value

_CASES = json.loads(Path(__file__, "../../../data/burrow/offsets_cases.json").resolve().read_text())["upstream_cases"]
_VERSIONS = range(5)
_ASSIGNED = {"orders": [0, 2, 5], "payments": [7], "idle": []}
_FLAT = [("orders", 0), ("orders", 2), ("orders", 5), ("payments", 7)]


def _group(version: int, generation: int, protocol: str | None, leader: str | None, *members: Any) -> dict[str, Any]:
    said = {"version": version, "protocol_type": "consumer", "generation": generation, "protocol": protocol}
    return {**said, "leader": leader, "members": [*members]}


def _member(version: int, member_id: str | None, instance_id: str | None, *others: Any) -> dict[str, Any]:
    said = dict(zip(("client_id", "client_host", "assigned"), others, strict=True))
    return {"member_id": member_id, **({"instance_id": instance_id} if version >= 3 else {}), **said}


def _two_members(version: int) -> tuple[bytes, dict[str, Any]]:
    """Return a record and its expected content."""
    first = encoded.Member("m-1", "client-1", "/10.0.0.1", "static-1", assignment(_ASSIGNED, user_data=b"any"))
    second = encoded.Member("m-2", "client-2", "/10.0.0.2", None, b"", b"\0\1subscription")
    value = group_value(version, [first, second], generation=9, tagged={7: b"later"})
    said = (
        _member(version, "m-1", "static-1", "client-1", "/10.0.0.1", _FLAT),
        _member(version, "m-2", None, "client-2", "/10.0.0.2", []),
    )
    return value, _group(version, 9, "range", "m-1", *said)


@pytest.mark.parametrize("version", _VERSIONS)
def test_a_complete_group_is_read_and_a_group_cut_at_any_byte_is_not(version: int) -> None:
    value, said = _two_members(version)
    assert parse_value(value) == said
    assert parse_value(value + b"more") == said
    for at in range(len(value)):
        with pytest.raises(UnreadableMetadata, match=r"^truncated_[a-z_]+$"):
            parse_value(value[:at])


def test_an_assignment_cut_at_any_byte_is_unreadable_unless_it_is_empty() -> None:
    whole = assignment(_ASSIGNED, user_data=b"any")
    assert parse_value(group_value(3, [encoded.Member(assigned=whole)]))["members"][0]["assigned"] == _FLAT
    assert parse_value(group_value(3, [encoded.Member(assigned=whole + b"more")]))["members"][0]["assigned"] == _FLAT
    assert parse_value(group_value(3, [encoded.Member(assigned=None)]))["members"][0]["assigned"] == []
    for at in range(1, len(whole)):
        with pytest.raises(UnreadableMetadata, match=r"^truncated_assignment$"):
            parse_value(group_value(3, [encoded.Member(assigned=whole[:at])]))


def test_other_protocols_have_members_without_partitions() -> None:
    value = group_value(3, [encoded.Member(assigned=b"\xff\xffany")], protocol_type="connect")
    assert [member["assigned"] for member in parse_value(value)["members"]] == [[]]


@pytest.mark.parametrize("version", _VERSIONS)
def test_an_empty_group_has_no_protocol_no_leader_and_no_members(version: int) -> None:
    value = group_value(version, protocol=None, leader=None, generation=4)
    assert parse_value(value) == _group(version, 4, None, None)


def test_text_that_is_not_utf_8_is_replaced() -> None:
    value = group_value(0, [encoded.Member(assigned=assignment({b"menu\xc3": [1]}))])  # type: ignore[dict-item]
    assert parse_value(value)["members"][0]["assigned"] == [("menu�", 1)]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (pack(">h", 5) + group_value(4)[2:], "unknown_version"),
        (pack(">h", -1) + group_value(4)[2:], "unknown_version"),
        (pack(">hh", 3, -2), "negative_length"),
        (group_value(1)[:-4] + pack(">i", -2), "negative_length"),
        (group_value(1, [encoded.Member(assigned=pack(">hi", 0, -2))]), "negative_length"),
        (group_value(1, [encoded.Member(assigned=pack(">hihi", 0, 1, 0, -2))]), "negative_length"),
        (group_value(1, [encoded.Member(assigned=pack(">hih", 0, 1, -1))]), "null_topic"),
        (group_value(1, [encoded.Member(assigned=pack(">h", -1))]), "negative_version"),
        (pack(">h", 4) + b"\xff" * 9, "long_varint"),
        (group_value(1)[:-4] + pack(">i", 2**31 - 1), "truncated_member_id"),
    ],
    ids=[
        "version 5",
        "version -1",
        "a protocol type of negative length",
        "a negative number of members",
        "a negative number of topics",
        "a negative number of partitions",
        "a topic without a name",
        "an assignment of version -1",
        "a varint of nine bytes",
        "more members than the record has",
    ],
)
def test_a_record_that_no_broker_writes_is_refused_with_a_reason(value: bytes, why: str) -> None:
    with pytest.raises(UnreadableMetadata) as raised:
        parse_value(value)
    assert str(raised.value) == why


@pytest.mark.parametrize(
    ("key", "why"),
    [
        pytest.param(b"", "truncated_version", id="an empty key"),
        pytest.param(pack(">h", 1), "unknown_version", id="the key of an offset commit"),
        pytest.param(group_key("orders")[:-1], "truncated_group", id="a key without its last byte"),
        pytest.param(group_key(None), "null_group", id="a group that is null"),
        pytest.param(pack(">hh", 2, -2), "negative_length", id="a group of negative length"),
    ],
)
def test_a_key_without_a_group_is_refused_with_a_reason(key: bytes, why: str) -> None:
    with pytest.raises(UnreadableMetadata) as raised:
        parse_key(key)
    assert str(raised.value) == why


_text = st.none() | st.text(max_size=20)
_assigned = st.dictionaries(st.text(max_size=9), st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4), max_size=3)


@given(
    st.sampled_from(_VERSIONS),
    st.text(max_size=9),
    _text,
    _text,
    st.integers(-(2**31), 2**31 - 1),
    st.lists(st.tuples(_text, _text, _text, _text, _assigned), max_size=3),
    st.dictionaries(st.integers(0, 2**32), st.binary(max_size=300), max_size=3),
)
def test_any_group_is_equal_after_a_round_trip(  # noqa: PLR0917
    version: int,
    protocol_type: str,
    protocol: str | None,
    leader: str | None,
    generation: int,
    members: list[tuple[str | None, str | None, str | None, str | None, dict[str, list[int]]]],
    tagged: dict[int, bytes],
) -> None:
    written = [
        encoded.Member(member_id, client_id, host, instance_id, assignment(told))
        for member_id, client_id, host, instance_id, told in members
    ]
    more = {"protocol": protocol, "leader": leader, "generation": generation, "tagged": tagged}
    read = parse_value(group_value(version, written, protocol_type=protocol_type, **more))  # type: ignore[arg-type]
    found = read.pop("members")
    assert (*read.values(),) == (version, protocol_type, generation, protocol, leader)
    for one, (member_id, client_id, host, instance_id, told) in zip(found, members, strict=True):
        flat = [(topic, number) for topic, numbers in told.items() for number in numbers]
        assigned = flat if protocol_type == "consumer" else []
        assert one == _member(version, member_id, instance_id, client_id, host, assigned)


@given(st.binary(max_size=200), st.sampled_from(_VERSIONS))
def test_any_bytes_give_a_group_or_a_reason(raw: bytes, version: int) -> None:
    for value in (raw, pack(">h", version) + raw):
        with suppress(UnreadableMetadata):
            parse_value(value)


# ---- Burrow's own cases ----

_REASONS = {
    "subscription_bytes": "truncated_subscription",
    "assignment_bytes": "truncated_assignment",
    "consumer_protocol_version": "negative_version",
    "assignment_topic_count": "truncated_assignment",
    "topic_name": "truncated_assignment",
    "assignment_partition_count": "truncated_assignment",
    "assignment_partition_id": "truncated_assignment",
}


def _value(case: dict[str, Any]) -> bytes:
    """Return the case's bytes as a complete value, with the parts added that its function does not need."""
    function, raw = case["function"], bytes.fromhex(case.get("input_hex") or case["value_hex"])
    if function == "decodeMetadataValueHeader":
        return pack(">h", 1) + raw + (b"" if case["expected"]["error_at"] else pack(">i", 0))
    if version := re.match(r"decodeMetadataMember\(version=(\d)\)", function):
        head = group_value(int(version[1]))
        return head[:-4] + pack(">i", 1) + raw
    if function == "decodeMemberAssignmentV0":
        return group_value(1, [encoded.Member(assigned=pack(">h", 0) + raw)])
    return pack(">h", 1) + raw if function.startswith("decodeAndSendGroupMetadata") else raw


def _parse(case: dict[str, Any]) -> dict[str, Any]:
    if "key_hex" in case:
        parse_key(pack(">h", 2) + bytes.fromhex(case["key_hex"]))
    return parse_value(_value(case))


def _said(group: dict[str, Any]) -> dict[str, Any]:
    told = {**group, **(group["members"][0] if group["members"] else {})}
    assigned: dict[str, list[int]] = {}
    for topic, partition in told.get("assigned", ()):
        assigned.setdefault(topic, []).append(partition)
    return {**told, "group_instance_id": told.get("instance_id") or "", "assignment": assigned}


_OF_GROUPS = re.compile("decodeMetadata|decodeMemberAssignment|decodeGroupMetadata|decodeAndSendGroup")
_KNOWN = {"protocol_type", "generation", "protocol", "leader", "member_id", "group_instance_id", "client_id"}


@pytest.mark.parametrize(
    "case", [case for case in _CASES if _OF_GROUPS.match(case["function"])], ids=lambda case: case["name"]
)
def test_burrows_own_cases_of_groups_are_read_as_in_burrow(case: dict[str, Any]) -> None:
    expected = case["expected"]
    error = expected.get("error_at", "" if expected.get("request") else "any")
    if error:
        with pytest.raises(UnreadableMetadata) as raised:
            _parse(case)
        if error != "any":
            assert str(raised.value) == _REASONS.get(error, f"truncated_{error}")
        return
    said = _said(_parse(case))
    if request := expected.get("request"):
        assert (request["owner"], request["client_id"]) == (said["client_host"], said["client_id"])
        assert said["assignment"] == {request["topic"]: [request["partition"]]}
        assert parse_key(pack(">h", 2) + bytes.fromhex(case["key_hex"])) == request["group"]
    else:
        kept = {name: told for name, told in expected.items() if name in {*_KNOWN, "client_host", "assignment"}}
        assert kept.items() <= said.items()


@pytest.mark.parametrize(
    "case", [case for case in _CASES if case["function"].startswith("read")], ids=lambda case: case["name"]
)
def test_burrows_own_cases_of_strings_are_read_as_in_burrow(case: dict[str, Any]) -> None:
    reader = _Reader(bytes.fromhex(case["input_hex"]), is_compact="Compact" in case["function"])
    if case["expected"].get("error"):
        with pytest.raises(UnreadableMetadata, match="truncated_text"):
            reader.text("text")
    else:
        assert (reader.text("text") or "") == case["expected"]["value"]


def test_all_cases_of_burrow_are_tested() -> None:
    of_commits = re.compile("decodeOffset|decodeKeyAndOffset|decodeAndSendOffset|processConsumerOffsets")
    kinds = [_OF_GROUPS.match(one["function"]) or of_commits.match(one["function"]) for one in _CASES]
    assert (len(_CASES), kinds.count(None)) == (69, 6)
