"""Says why `/burrow` refuses a body that is not the output of Karrot's template."""

import re
from collections.abc import Mapping

import msgspec

from karrot.burrow.wire import MalformedPayload

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BEGINS_AS_OURS = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"Event"')
_EVENT = {"Cluster", "Group", "Result"}
_KINDS = (
    (_EVENT, 'It is the event without the key "Event" around it.'),
    ({"status", "totallag"}, "It has only the Result of the event: the template encodes .Result instead of the dot."),
    ({"api_key", "events"}, "It is like the output of Burrow's default-http-post.tmpl, without most of the verdict."),
    ({"api_key", "ids"}, "It is like the output of Burrow's default-http-delete.tmpl, without most of the verdict."),
    ({"attachments"}, "It is like the output of Burrow's Slack template, without most of the verdict."),
)


def explained(body: bytes, refused: MalformedPayload) -> MalformedPayload:
    """The same refusal if Karrot's template can have written the body. Otherwise one that says what the body is."""
    if not body.strip():
        return MalformedPayload("empty_body", "The body is empty.")
    if refused.code != "invalid_field" and (refused.code != "invalid_json" or _BEGINS_AS_OURS.match(body)):
        return refused
    keys = _object(body) if refused.code == "invalid_field" else {}
    inner = _object(next(iter(keys.values())) if len(keys) == 1 else keys.get("Event", b""))
    if "Event" in keys and inner.keys() >= _EVENT:
        return refused
    told = next((told for marks, told in _KINDS if keys.keys() >= marks or inner.keys() >= marks), str(refused))
    if body.startswith(b"\xef\xbb\xbf"):
        told = "It begins with a byte order mark: save the template file without one."
    told = f'This is not the output of {{"Event": {{{{ jsonencoder . }}}}}}. {told}'
    return MalformedPayload("unsupported_template", told, refused.path)


def _object(raw: bytes | msgspec.Raw) -> Mapping[str, msgspec.Raw]:
    try:
        return _OBJECT.decode(raw)
    except msgspec.DecodeError:
        return {}
