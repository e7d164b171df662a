"""Converts between Burrow's JSON (v1.0.0 to v1.9.5) and `LagEvent`. No other module knows both forms.

Sources: ``core/protocol/evaluator.go``, ``core/protocol/storage.go``, ``core/internal/notifier/helpers.go`` and
``core/internal/httpserver/structs.go``. `PartitionLag` and `OffsetSample` decode their own JSON, and the structs here
the objects around it. Fields have Burrow's order. Unknown keys are ignored. Fields with a default may be missing,
because older releases do not send them. ``None`` means ``null`` or missing.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from itertools import accumulate
from operator import attrgetter
from typing import Annotated, Final, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, field
from msgspec.structs import force_setattr

from karrot.event import UINT64_MAX, LagEvent, PartitionLag, Source, UInt64

Code = Literal[
    "empty_body", "not_utf8", "invalid_json", "not_an_object", "unsupported_template", "invalid_field", "invalid_text"
]


class MalformedPayload(ValueError):  # noqa: N818 (the name describes the body, not an error of Karrot)
    """The body does not have the form that Burrow sends.

    ``code`` is stable: the answer, the metric label and the log use the same code. ``path`` is the JSON path of the
    wrong field, if one field is wrong. The error's text is a message for people and has a limited length.
    """

    def __init__(self, code: Code, sentence: str, path: str | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.path = path


def wrong(path: str, what: str) -> MalformedPayload:
    """Make the error for one wrong field, whose JSON path is ``path``."""
    return MalformedPayload("invalid_field", f"The field {path} is wrong: {what}.", path)


Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Verdict(Struct, frozen=True, kw_only=True):
    """The evaluation of one group: ``Result`` in a webhook, ``status`` in a REST reply."""

    cluster: str | None = None
    group: str | None = None
    status: str
    complete: float | None = None
    partitions: tuple[PartitionLag, ...] | None = None
    partition_count: Count | None = None
    maxlag: PartitionLag | None = None
    totallag: UInt64 | None


class NotificationJson(Struct, frozen=True, kw_only=True, rename="pascal"):
    """The output of ``{{ jsonencoder . }}``. ``Start`` is not decoded, so a body with an invalid start is accepted."""

    cluster: str
    group: str
    id: str | None = field(default=None, name="ID")
    start: Raw = Raw(b"null")
    extras: dict[str, str] | None = None
    result: Verdict


class WebhookJson(Struct, frozen=True):
    event: NotificationJson = field(name="Event")


class RestReply(Struct, frozen=True):
    """The whole body of a reply to REST v3 ``/status`` or ``/lag``."""

    error: bool = False
    message: str = ""
    status: Verdict | None = None


class Bound(NamedTuple):
    """Limits a body's strings (in bytes) or lists (in entries) at ``path``. ``found`` returns them from an event."""

    path: str
    most: int
    found: Callable[[LagEvent], Iterable[Collection[object]]]
    unit: str = "bytes"


def _of_partition(name: str, most: int, attribute: str = "") -> Bound:
    of = attrgetter(attribute or name)

    def found(event: LagEvent) -> set[str]:  # the partitions of a large event have few different strings
        return {*map(of, event.partitions), *map(of, filter(None, (event.max_lag,)))}

    return Bound(f"$.Event.Result.partitions[...].{name}", most, found)


LONGEST_EXTRA: Final = 4096
GROUP: Final = Bound("$.Event.Group", 1024, lambda event: (event.consumer,))
BOUNDS: Final = (
    Bound("$.Event.Cluster", 255, lambda event: (event.cluster,)),
    GROUP,
    Bound("$.Event.ID", 255, lambda event: (event.incident_id or "",)),
    Bound("$.Event.Extras", 64, lambda event: (event.extras,), "entries"),
    Bound("$.Event.Extras[key]", 255, lambda event: (key for key, _ in event.extras)),
    Bound("$.Event.Extras[...]", LONGEST_EXTRA, lambda event: (value for _, value in event.extras)),
    Bound("$.Event.Result.status", 64, lambda event: (event.status_text,)),
    Bound("$.Event.Result.partitions", 100_000, lambda event: (event.partitions,), "entries"),
    _of_partition("topic", 249),
    _of_partition("status", 64, "status_text"),
    _of_partition("owner", 1024),
    _of_partition("client_id", 1024),
)
"""Every bound. ``Result.maxlag`` has the bounds of a partition. docs/reference/bounds.md has the reasons."""


def require_within(event: LagEvent) -> None:
    for path, most, found, unit in BOUNDS:
        for each in found(event):
            if len(each) * 4 > most:  # no character has more than 4 bytes
                size = len(each.encode(errors="surrogatepass") if isinstance(each, str) else each)
                if size > most:
                    raise wrong(path, f"it has {size} {unit}, and the limit is {most}")


_OBJECT = msgspec.json.Decoder(dict[str, Raw])
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
    """Return ``refused`` if Karrot's template can have written the body, or an error that says what the body is."""
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


def _object(raw: bytes | Raw) -> Mapping[str, Raw]:
    try:
        return _OBJECT.decode(raw)
    except msgspec.DecodeError:
        return {}


MAX_DEPTH = 32
"""The most levels of brackets in a body. Burrow's deepest body has 6."""
_SMALL = 4096
"""In a body with fewer bytes than this, counting the brackets is faster than following them."""

Body = TypeVar("Body")

_WEBHOOK = msgspec.json.Decoder(WebhookJson)
_REST_REPLY = msgspec.json.Decoder(RestReply)
_STRING = msgspec.json.Decoder(str)
_ANY_JSON = msgspec.json.Decoder(Raw)

_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as signed bytes, 1 and -1
_ALL_BUT_MARKS = bytes(set(range(256)) - set(b'[]{}"'))
_LONE_SURROGATE = re.compile(
    rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])"  # a high surrogate without a low one
    rb"|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]"  # a low surrogate without a high one
)
_WHOLE_SHARE = re.compile(rb'("complete":[01])\.0(?=[,}])')
_MISSING = re.compile(r"missing required field `(\w+)`")

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_NO_START = Raw(b'"0001-01-01T00:00:00Z"')
_ABOVE = f"Expected `int` <= {UINT64_MAX}"
_QUOTED = 100
"""An error message quotes at most this many characters of a received string."""


def parse_webhook(body: bytes, *, observed_at_ms: int, source: Source = Source.WEBHOOK) -> LagEvent:
    """Parse a posted body and check its `BOUNDS`. Raises `MalformedPayload`, and no other exception."""
    try:
        event = parse_stored(body, observed_at_ms=observed_at_ms, source=source)
    except MalformedPayload as error:
        raise explained(body, error) from error.__cause__
    require_within(event)
    return event


def parse_stored(body: bytes, *, observed_at_ms: int, source: Source) -> LagEvent:
    """Parse a stored webhook body, from any source. Raises `MalformedPayload`."""
    notification = decode(body, _WEBHOOK).event
    _check(notification.result, "$.Event.Result")
    event = _event(notification.result, notification.cluster, notification.group, observed_at_ms, source)
    return event._replace(
        incident_id=notification.id or None,
        incident_start=_incident_start(notification.start),
        extras=tuple(notification.extras.items()) if notification.extras else (),
    )


def parse_rest(body: bytes, *, observed_at_ms: int) -> LagEvent:
    """Parse a reply to ``/status`` or ``/lag``. A 404 becomes the status NOTFOUND. Raises `MalformedPayload`."""
    reply = decode(body, _REST_REPLY)
    if reply.error:
        raise wrong("$.error", f"Burrow reports an error: {reply.message[:_QUOTED]!r}")
    verdict = reply.status
    if verdict is None:
        raise wrong("$.status", "it is missing")
    if verdict.cluster is None or verdict.group is None:
        raise wrong("$.status.cluster" if verdict.cluster is None else "$.status.group", "it is missing")
    _check(verdict, "$.status")
    return _event(verdict, verdict.cluster, verdict.group, observed_at_ms, Source.REST)


def _check(said: Verdict, path: str) -> None:
    """Refuse lags above `UINT64_MAX`, and replace null names by ``""``. msgspec can do neither."""
    if (said.totallag or 0) > UINT64_MAX:
        raise wrong(f"{path}.totallag", _ABOVE)
    listed = said.partitions or ()
    for index, one in enumerate(listed if said.maxlag is None else (*listed, said.maxlag)):
        start, end = one.start, one.end
        if (
            (one.current_lag or 0) > UINT64_MAX
            or (start is not None and (start.lag or 0) > UINT64_MAX)
            or (end is not None and (end.lag or 0) > UINT64_MAX)
        ):
            lags = {"current_lag": one.current_lag, "start.lag": start and start.lag, "end.lag": end and end.lag}
            name = next(name for name, lag in lags.items() if (lag or 0) > UINT64_MAX)
            raise wrong(f"{path}.{f'partitions[{index}]' if index < len(listed) else 'maxlag'}.{name}", _ABOVE)
        if one.owner is None or one.client_id is None:
            force_setattr(one, "owner", one.owner or "")
            force_setattr(one, "client_id", one.client_id or "")


def _event(said: Verdict, cluster: str, consumer: str, observed_at_ms: int, source: Source) -> LagEvent:
    return LagEvent(
        cluster,
        consumer,
        said.status,
        said.totallag,
        observed_at_ms,
        source,
        complete=said.complete,
        partition_count=said.partition_count,
        max_lag=said.maxlag,
        partitions=said.partitions or (),
    )


def to_wire(event: LagEvent) -> bytes:
    """Encode an event as Burrow v1.9.5 posts it (inverse: `parse_stored`). ``Start`` in the year 1 means no start."""
    return _as_go_writes(
        WebhookJson(
            NotificationJson(
                cluster=event.cluster,
                group=event.consumer,
                id=event.incident_id or "",
                start=_NO_START if event.incident_start is None else _start(event.incident_start),
                extras=dict(event.extras),
                result=_verdict(event),
            )
        )
    )


def result_to_wire(event: LagEvent) -> bytes:
    """Encode only the verdict: ``Result`` of a webhook, ``status`` of REST ``/status`` and ``/lag``."""
    return _as_go_writes(_verdict(event))


def _verdict(event: LagEvent) -> Verdict:
    return Verdict(
        cluster=event.cluster,
        group=event.consumer,
        status=event.status_text,
        complete=event.complete,
        partitions=event.partitions,
        partition_count=event.partition_count,
        maxlag=event.max_lag,
        totallag=event.total_lag,
    )


def _as_go_writes(value: Struct) -> bytes:
    # Go writes 1 instead of 1.0. The pattern matches only a key, because JSON escapes quotes within a string.
    return _WHOLE_SHARE.sub(rb"\1", msgspec.json.encode(value))


def _start(start: datetime) -> Raw:
    """Format a time as Go's ``time.RFC3339Nano`` does: without trailing zeros in the fraction."""
    text = start.astimezone(UTC).replace(tzinfo=None).isoformat()
    return Raw(f'"{text.rstrip("0") if start.microsecond else text}Z"')


def _incident_start(raw: Raw) -> datetime | None:
    """Parse Burrow's RFC 3339 time to UTC, cut to microseconds. ``None`` for Go's zero time and an invalid time."""
    try:
        text = _STRING.decode(raw)
        start = datetime.fromisoformat(text).astimezone(UTC) if _RFC3339.fullmatch(text) else None
    except (msgspec.DecodeError, ValueError, OverflowError):
        return None
    return None if start is None or start.year == 1 else start


def decode(body: bytes, decoder: msgspec.json.Decoder[Body]) -> Body:
    """Decode a body. Raises `MalformedPayload` with the body's first error: invalid JSON precedes a wrong field."""
    if not body.isascii():
        try:
            body.decode()  # msgspec checks only the strings that it keeps
        except UnicodeDecodeError as error:
            raise MalformedPayload("not_utf8", f"The body is not UTF-8 (byte {error.start}).") from error
    if _is_too_deep(body):
        raise MalformedPayload("invalid_json", f"The JSON has more than {MAX_DEPTH} levels.")
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise _refusal(body, error) from error


def _refusal(body: bytes, error: msgspec.DecodeError) -> MalformedPayload:
    try:
        _ANY_JSON.decode(body)
    except msgspec.DecodeError as syntax:
        if _LONE_SURROGATE.search(body.replace(rb"\\", b"__")):
            return MalformedPayload(
                "invalid_text", "A text in the body has half of a surrogate pair (\\ud800 to \\udfff)."
            )
        return MalformedPayload("invalid_json", f"The body is not JSON: {syntax}.")
    if not body.lstrip().startswith(b"{"):
        return MalformedPayload("not_an_object", "The body is JSON but not an object.")
    what, _, at = str(error).partition(" - at `")
    path = at.removesuffix("`") or "$"
    missing = _MISSING.search(what)
    return wrong(f"{path}.{missing[1]}" if missing else path, what)


def _is_too_deep(body: bytes) -> bool:
    """Whether the body has more than `MAX_DEPTH` levels. The time grows with the number of brackets only."""
    if len(body) < _SMALL and body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return False
    if b"\\" in body:
        body = body.replace(rb"\\", b"").replace(rb"\"", b"")
    steps = body.translate(_STEPS, _ALL_BUT_MARKS).replace(b'""', b"")
    steps = b"".join(steps.split(b'"')[::2])
    return any(depth > MAX_DEPTH for depth in accumulate(memoryview(steps).cast("b")))
