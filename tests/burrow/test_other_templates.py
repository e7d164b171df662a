"""A refused body is named by what wrote it, and only the output of Karrot's template can be a fault of Karrot."""

import json
from pathlib import Path

import pytest

from karrot.burrow.payload import MalformedPayload, parse_webhook
from karrot.runbooks_and_remedies import CODES
from support.burrow.recorded_bodies import recorded_body

OTHERS = json.loads((Path(__file__).parents[1] / "data" / "burrow" / "other_templates.json").read_text("utf-8"))
EVENT = json.loads(recorded_body("oneline_v1.9.5_warn.json"))["Event"]
NOT_OURS = 'This is not the output of {"Event": {{ jsonencoder . }}}. '
BUG = "report a bug"


def refusal(body: bytes | str) -> MalformedPayload:
    with pytest.raises(MalformedPayload) as caught:
        parse_webhook(body.encode() if isinstance(body, str) else body, observed_at_ms=0)
    return caught.value


@pytest.mark.parametrize("other", [pytest.param(each, id=each["name"]) for each in OTHERS])
def test_the_output_of_another_template_is_answered_with_karrots_template(other: dict[str, str]) -> None:
    code = refusal(other["body"]).code
    assert code == other["code"]
    assert "{{ jsonencoder . }}" in CODES[code].remedy
    assert "another program" in CODES[code].remedy
    assert BUG not in CODES[code].remedy


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(EVENT, 'It is the event without the key "Event" around it.', id="the event alone"),
        pytest.param({"event": EVENT}, 'It is the event without the key "Event" around it.', id="a key in lower case"),
        pytest.param(
            {"Event": EVENT["Result"]},
            "It has only the Result of the event: the template encodes .Result instead of the dot.",
            id="the Result in Event",
        ),
        pytest.param(
            EVENT["Result"],
            "It has only the Result of the event: the template encodes .Result instead of the dot.",
            id="the Result alone",
        ),
        pytest.param({}, "The field $.Event is wrong: Object missing required field `Event`.", id="an empty object"),
        pytest.param(
            {"Event": {"Cluster": "c", "Result": EVENT["Result"]}},
            "The field $.Event.Group is wrong: Object missing required field `Group`.",
            id="an event without Group",
        ),
    ],
)
def test_a_near_miss_of_the_template_is_named(body: object, said: str) -> None:
    refused = refusal(json.dumps(body))
    assert (refused.code, str(refused)) == ("unsupported_template", NOT_OURS + said)


def test_a_template_file_with_a_byte_order_mark_is_named() -> None:
    refused = refusal(b"\xef\xbb\xbf" + json.dumps({"Event": EVENT}).encode())
    assert str(refused) == f"{NOT_OURS}It begins with a byte order mark: save the template file without one."


@pytest.mark.parametrize("body", ["", " \r\n"])
def test_an_empty_body_has_its_own_code_and_remedy(body: str) -> None:
    refused = refusal(body)
    assert (refused.code, str(refused)) == ("empty_body", "The body is empty.")
    assert "set method-open and method-close to POST" in CODES["empty_body"].remedy


def test_text_in_another_encoding_has_its_own_code_and_no_group_to_rename() -> None:
    assert refusal("gruppe=größe".encode("latin-1")).code == "not_utf8"
    assert "Rename" not in CODES["not_utf8"].remedy + CODES["invalid_text"].remedy


@pytest.mark.parametrize("body", ['{"Event": }', '{ "Event": {"Cluster": "c"', '{"Event": {"Cluster": "c"}} x'])
def test_a_body_that_begins_like_karrots_template_is_damaged_and_not_of_another_template(body: str) -> None:
    assert refusal(body).code == "invalid_json"


def test_only_a_wrong_field_of_burrow_in_karrots_wrapper_can_be_a_bug() -> None:
    refused = refusal(json.dumps({"Event": EVENT | {"Extras": {"k": 1}}}))
    assert (refused.code, refused.path) == ("invalid_field", "$.Event.Extras[...]")
    assert [code for code, known in CODES.items() if BUG in known.remedy] == ["invalid_field"]
    assert CODES["invalid_field"].remedy.startswith("If the message names a limit, see docs/reference/bounds.md.")
