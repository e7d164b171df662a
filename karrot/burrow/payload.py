"""Converts the JSON that Burrow sends to a `LagEvent` and back. No other module knows both forms."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeVar

import msgspec

from karrot.burrow import wire
from karrot.burrow.wire import MalformedPayload, wrong
from karrot.event import NO_PROBLEM, FirstUnread, LagEvent, OffsetSample, PartitionLag, Source


class Bound(NamedTuple):
    """The most bytes of a text, or ``entries`` of a list, at ``path`` of a body. ``found`` finds them in an event."""

    path: str
    most: int
    found: Callable[[LagEvent], Iterable[Collection[object]]]
    unit: str = "bytes"


def _of_partition(field: str, most: int, text_of: Callable[[PartitionLag], str]) -> Bound:
    def found(event: LagEvent) -> set[str]:  # the partitions of a large event have few different texts
        return set(map(text_of, event.partitions if event.max_lag is None else (*event.partitions, event.max_lag)))

    return Bound(f"$.Event.Result.partitions[...].{field}", most, found)


GROUP: Final = Bound("$.Event.Group", 1024, lambda event: (event.consumer,))
BOUNDS: Final = (
    Bound("$.Event.Cluster", 255, lambda event: (event.cluster,)),
    GROUP,
    Bound("$.Event.ID", 255, lambda event: (event.incident_id or "",)),
    Bound("$.Event.Extras", 64, lambda event: (event.extras,), "entries"),
    Bound("$.Event.Extras[key]", 255, lambda event: (key for key, _ in event.extras)),
    Bound("$.Event.Extras[...]", 4096, lambda event: (value for _, value in event.extras)),
    Bound("$.Event.Result.status", 64, lambda event: (event.status_text,)),
    Bound("$.Event.Result.partitions", 100_000, lambda event: (event.partitions,), "entries"),
    _of_partition("topic", 249, lambda each: each.topic),
    _of_partition("status", 64, lambda each: each.status_text),
    _of_partition("owner", 1024, lambda each: each.owner),
    _of_partition("client_id", 1024, lambda each: each.client_id),
)
"""Every bound. ``Result.maxlag`` has the bounds of a partition. docs/reference/bounds.md says why."""


def require_within(event: LagEvent) -> None:
    for path, most, found, unit in BOUNDS:
        for each in found(event):
            if len(each) * 4 > most:  # no character has more than 4 bytes
                size = len(each.encode(errors="surrogatepass") if isinstance(each, str) else each)
                if size > most:
                    raise wrong(path, f"it has {size} {unit}, and the limit is {most}")


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


MAX_DEPTH = 32
"""Burrow's deepest body has 6 levels."""

Body = TypeVar("Body")

_WEBHOOK = msgspec.json.Decoder(wire.WebhookJson)
_OUTLINE = msgspec.json.Decoder(wire.OutlineJson)
_REST_REPLY = msgspec.json.Decoder(wire.RestReply)
_STRING = msgspec.json.Decoder(str)
_ANY_JSON = msgspec.json.Decoder(msgspec.Raw)

_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_ALL_BUT_MARKS = bytes(set(range(256)) - set(b'[]{}"'))
_LONE_SURROGATE = re.compile(
    rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])"  # a high surrogate without its low one
    rb"|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]"  # a low surrogate without its high one
)
_MISSING = re.compile(r"missing required field `(\w+)`")

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_NO_START = msgspec.Raw(b'"0001-01-01T00:00:00Z"')
_QUOTED = 100
"""The most characters that an error message quotes from a received text."""


class Outline(NamedTuple):
    """An event without its listed partitions, and the number of these partitions that are worse than OK."""

    event: LagEvent
    bad_partitions: int


def parse_webhook(body: bytes, *, observed_at_ms: int, source: Source = Source.WEBHOOK) -> LagEvent:
    """Parse a posted body, within the bounds. Raises `MalformedPayload`, and no other exception."""
    try:
        event = parse_stored(body, observed_at_ms=observed_at_ms, source=source)
    except MalformedPayload as error:
        raise explained(body, error) from error.__cause__
    require_within(event)
    return event


def parse_stored(body: bytes, *, observed_at_ms: int, source: Source) -> LagEvent:
    """Parse a stored webhook body, from any source. Raises `MalformedPayload`."""
    notification = decode(body, _WEBHOOK).event
    return _event(
        notification.result,
        "$.Event.Result",
        cluster=notification.cluster,
        consumer=notification.group,
        observed_at_ms=observed_at_ms,
        source=source,
        incident_id=notification.id or None,
        incident_start=_incident_start(notification.start),
        extras=tuple(notification.extras.items()) if notification.extras else (),
    )


def parse_outline(body: bytes, *, observed_at_ms: int, source: Source) -> Outline:
    """Parse a stored webhook body without its listed partitions. Raises `MalformedPayload`."""
    notification = decode(body, _OUTLINE).event
    verdict = notification.result
    event = LagEvent(
        cluster=notification.cluster,
        consumer=notification.group,
        status_text=verdict.status,
        total_lag=verdict.totallag,
        observed_at_ms=observed_at_ms,
        source=source,
        incident_id=notification.id or None,
        max_lag=None if verdict.maxlag is None else _partition(verdict.maxlag, "$.Event.Result.maxlag"),
    )
    return Outline(event, sum(each.status not in NO_PROBLEM for each in verdict.partitions or ()))


def total_lag_of(body: bytes) -> int | None:
    """The total lag in a stored webhook body. Raises `MalformedPayload`."""
    return decode(body, _OUTLINE).event.result.totallag


def parse_rest(body: bytes, *, observed_at_ms: int) -> LagEvent:
    """Parse a reply to ``/status`` or ``/lag``; a 404 becomes NOTFOUND. Raises `MalformedPayload`."""
    reply = decode(body, _REST_REPLY)
    if reply.error:
        raise wrong("$.error", f"Burrow reports an error: {reply.message[:_QUOTED]!r}")
    verdict = reply.status
    if verdict is None:
        raise wrong("$.status", "it is missing")
    return _event(
        verdict,
        "$.status",
        cluster=_present(verdict.cluster, "$.status.cluster"),
        consumer=_present(verdict.group, "$.status.group"),
        observed_at_ms=observed_at_ms,
        source=Source.REST,
    )


def to_wire(event: LagEvent) -> bytes:
    """The body that Burrow v1.9.5 would post. `parse_stored` is the inverse. A start in the year 1 means no start."""
    return msgspec.json.encode(
        wire.WebhookJson(
            wire.NotificationJson(
                cluster=event.cluster,
                group=event.consumer,
                id=event.incident_id or "",
                start=_NO_START if event.incident_start is None else _start(event.incident_start),
                extras=dict(event.extras),
                result=_verdict_on_wire(event),
            )
        )
    )


def result_to_wire(event: LagEvent) -> bytes:
    """The JSON of the verdict alone: ``Result`` of a webhook, ``status`` of REST ``/status`` and ``/lag``."""
    return msgspec.json.encode(_verdict_on_wire(event))


def _present(text: str | None, path: str) -> str:
    if text is None:
        raise wrong(path, "it is missing")
    return text


# --- wire to event ---


def _event(
    said: wire.Verdict,
    path: str,
    *,
    cluster: str,
    consumer: str,
    observed_at_ms: int,
    source: Source,
    incident_id: str | None = None,
    incident_start: datetime | None = None,
    extras: tuple[tuple[str, str], ...] = (),
) -> LagEvent:
    listed = said.partitions or ()
    return LagEvent(
        cluster=cluster,
        consumer=consumer,
        status_text=said.status,
        total_lag=_uint64(said.totallag, path, ".totallag"),
        observed_at_ms=observed_at_ms,
        source=source,
        incident_id=incident_id,
        incident_start=incident_start,
        complete=said.complete,
        partition_count=said.partition_count,
        max_lag=None if said.maxlag is None else _partition(said.maxlag, f"{path}.maxlag"),
        partitions=tuple([_partition(one, f"{path}.partitions[{index}]") for index, one in enumerate(listed)]),
        extras=extras,
    )


def _partition(said: wire.PartitionJson, path: str) -> PartitionLag:
    return PartitionLag(
        said.topic,
        said.partition,
        said.status,
        _uint64(said.current_lag, path, ".current_lag"),
        None if said.start is None else _sample(said.start, path, ".start.lag"),
        None if said.end is None else _sample(said.end, path, ".end.lag"),
        said.owner or "",
        said.client_id or "",
        said.complete,
        None if said.log_end is msgspec.UNSET else said.log_end,
        None if said.log_start is msgspec.UNSET else said.log_start,
        None if said.first_unread is msgspec.UNSET else FirstUnread(*said.first_unread),
        None if said.moved_at is msgspec.UNSET else said.moved_at,
    )


def _sample(said: wire.CommitJson, path: str, lag: str) -> OffsetSample:
    log_end = None if said.log_end is msgspec.UNSET else said.log_end
    return OffsetSample(said.offset, said.timestamp, _uint64(said.lag, path, lag), said.observed_at, log_end)


def _uint64(value: int | None, path: str, field: str) -> int | None:
    if value is not None and value > wire.UINT64_MAX:
        raise wrong(path + field, f"Expected `int` <= {wire.UINT64_MAX}")
    return value


def _incident_start(raw: msgspec.Raw) -> datetime | None:
    """Burrow's RFC 3339 time in UTC, cut to microseconds. ``None`` for Go's zero time and for an invalid time."""
    try:
        text = _STRING.decode(raw)
        start = datetime.fromisoformat(text).astimezone(UTC) if _RFC3339.fullmatch(text) else None
    except (msgspec.DecodeError, ValueError, OverflowError):
        return None
    return None if start is None or start.year == 1 else start


# --- event to wire ---


def decode(body: bytes, decoder: msgspec.json.Decoder[Body]) -> Body:
    """Decode a body. Raises `MalformedPayload` with the first error in it."""
    if not body.isascii():
        _require_utf8(body)
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _is_too_deep(body):
        raise MalformedPayload(
            "invalid_json", f"The JSON has more than {MAX_DEPTH} levels, or its brackets do not match."
        )
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise _explained(body, error) from error


def _require_utf8(body: bytes) -> None:
    # msgspec checks only the texts that it keeps.
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise MalformedPayload("not_utf8", f"The body is not UTF-8 (byte {error.start}).") from error


def _is_too_deep(body: bytes) -> bool:
    """Whether brackets remain after removing `MAX_DEPTH` levels. Each round removes the innermost pairs: one level."""
    marks = body.replace(rb"\\", b"").replace(rb"\"", b"").translate(_ONE_KIND, _ALL_BUT_MARKS)
    brackets = b"".join(marks.replace(b'""', b"").split(b'"')[::2])
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _explained(body: bytes, error: msgspec.DecodeError) -> MalformedPayload:
    """Why a body could not be decoded. Invalid JSON is reported before a wrong field."""
    try:
        _ANY_JSON.decode(body)
    except msgspec.DecodeError as syntax:
        return _not_json(body, syntax)
    if not body.lstrip().startswith(b"{"):
        return MalformedPayload("not_an_object", "The body is JSON but not an object.")
    return _wrong_by(error)


def _not_json(body: bytes, syntax: msgspec.DecodeError) -> MalformedPayload:
    if _LONE_SURROGATE.search(body.replace(rb"\\", b"__")):
        return MalformedPayload("invalid_text", "A text in the body has half of a surrogate pair (\\ud800 to \\udfff).")
    return MalformedPayload("invalid_json", f"The body is not JSON: {syntax}.")


def _wrong_by(error: msgspec.DecodeError) -> MalformedPayload:
    what, _, at = str(error).partition(" - at `")
    path = at.removesuffix("`") or "$"
    missing = _MISSING.search(what)
    return wrong(f"{path}.{missing[1]}" if missing else path, what)


def _verdict_on_wire(event: LagEvent) -> wire.Verdict:
    return wire.Verdict(
        cluster=event.cluster,
        group=event.consumer,
        status=event.status_text,
        complete=_go_number(event.complete),
        partitions=[_partition_on_wire(one) for one in event.partitions],
        partition_count=event.partition_count,
        maxlag=None if event.max_lag is None else _partition_on_wire(event.max_lag),
        totallag=event.total_lag,
    )


def _partition_on_wire(one: PartitionLag) -> wire.PartitionJson:
    return wire.PartitionJson(
        topic=one.topic,
        partition=one.partition,
        owner=one.owner,
        client_id=one.client_id,
        status=one.status_text,
        start=_commit_on_wire(one.start),
        end=_commit_on_wire(one.end),
        current_lag=one.current_lag,
        complete=_go_number(one.complete),
        log_end=msgspec.UNSET if one.log_end is None else one.log_end,
        log_start=msgspec.UNSET if one.log_start is None else one.log_start,
        first_unread=msgspec.UNSET if one.first_unread is None else one.first_unread,
        moved_at=msgspec.UNSET if one.moved_at_ms is None else one.moved_at_ms,
    )


def _commit_on_wire(sample: OffsetSample | None) -> wire.CommitJson | None:
    if sample is None:
        return None
    log_end = msgspec.UNSET if sample.log_end is None else sample.log_end
    return wire.CommitJson(sample.offset, sample.timestamp_ms, sample.observed_at_ms, sample.lag, log_end)


def _go_number(share: float | None) -> float | None:
    """A share as Go writes it: 1 instead of 1.0."""
    return int(share) if share in (0, 1) else share


def _start(start: datetime) -> msgspec.Raw:
    """A time as Go's ``time.RFC3339Nano`` writes it: without trailing zeros in the fraction."""
    text = start.astimezone(UTC).replace(tzinfo=None).isoformat()
    return msgspec.Raw(f'"{text.rstrip("0") if start.microsecond else text}Z"')
