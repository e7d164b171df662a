"""Decodes bytes to typed JSON, or raises one exception that says what is wrong with them."""

import re
from typing import Literal, TypeVar

import msgspec

MAX_DEPTH = 32
"""Burrow's deepest body has 6 levels."""

Code = Literal["invalid_json", "not_an_object", "unsupported_template", "invalid_field", "invalid_text"]
Body = TypeVar("Body")

_ANY_JSON = msgspec.json.Decoder(msgspec.Raw)
_ANY_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])

_SHIPPED_TEMPLATES = (
    ("default-http-post.tmpl", {"api_key", "events"}),
    ("default-http-delete.tmpl", {"api_key", "ids"}),
    ("Slack template", {"attachments"}),
)

_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_ALL_BUT_MARKS = bytes(set(range(256)) - set(b'[]{}"'))
_LONE_SURROGATE = re.compile(
    rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])"  # a high one without its low one
    rb"|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]"  # a low one without its high one
)
_MISSING = re.compile(r"missing required field `(\w+)`")


class MalformedPayload(ValueError):  # noqa: N818 (names what the sender did, not a failure of ours)
    """A body that is none of Burrow's.

    ``code`` is stable: the answer to the client, the metric label and the word in the log. ``path`` is the JSON path of
    the field that is wrong, if it is one. The text is a sentence for people and of bounded length.
    """

    def __init__(self, code: Code, sentence: str, path: str | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.path = path


def decode(body: bytes, decoder: msgspec.json.Decoder[Body]) -> Body:
    """Decode a body, or raise `MalformedPayload` with the first thing that is wrong with it."""
    if not body.isascii():
        _require_utf8(body)
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _is_too_deep(body):
        raise MalformedPayload("invalid_json", f"Over {MAX_DEPTH} levels of JSON, or brackets that do not match.")
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise _explained(body, error) from error


def _require_utf8(body: bytes) -> None:
    # msgspec looks only at the texts it keeps.
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise MalformedPayload("invalid_text", f"The body is not UTF-8 (byte {error.start}).") from error


def _is_too_deep(body: bytes) -> bool:
    """Look at the brackets alone: each round takes the innermost pair of every branch, so one level."""
    marks = body.replace(rb"\\", b"").replace(rb"\"", b"").translate(_ONE_KIND, _ALL_BUT_MARKS)
    brackets = b"".join(marks.replace(b'""', b"").split(b'"')[::2])
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _explained(body: bytes, error: msgspec.DecodeError) -> MalformedPayload:
    """Why a body was not decoded. The decoder stops at the first fault; faulty JSON is said before a faulty field."""
    try:
        _ANY_JSON.decode(body)
    except msgspec.DecodeError as syntax:
        return _not_json(body, syntax)
    try:
        keys = _ANY_OBJECT.decode(body).keys()
    except msgspec.ValidationError:
        return MalformedPayload("not_an_object", "The body is JSON but not an object.")
    for template, marks in _SHIPPED_TEMPLATES:
        if marks <= keys and "Event" not in keys:
            return MalformedPayload(
                "unsupported_template",
                f"This body is written by Burrow's {template}, which leaves out most of the verdict. In burrow.toml, "
                "set template-open and template-close of this notifier to a file that contains "
                '{"Event": {{ jsonencoder . }}} (`karrot burrow-config` prints the section and the file).',
            )
    return _wrong_by(error)


def _not_json(body: bytes, syntax: msgspec.DecodeError) -> MalformedPayload:
    if _LONE_SURROGATE.search(body.replace(rb"\\", b"__")):
        return MalformedPayload("invalid_text", "A text of the body has half of a surrogate pair (\\ud800 to \\udfff).")
    return MalformedPayload("invalid_json", f"The body is not JSON: {syntax}.")


def _wrong_by(error: msgspec.DecodeError) -> MalformedPayload:
    what, _, at = str(error).partition(" - at `")
    path = at.removesuffix("`") or "$"
    missing = _MISSING.search(what)
    return wrong(f"{path}.{missing[1]}" if missing else path, what)


def wrong(path: str, what: str) -> MalformedPayload:
    """The refusal of one field, named by its JSON path."""
    return MalformedPayload("invalid_field", f"The field {path} is wrong: {what}.", path)
