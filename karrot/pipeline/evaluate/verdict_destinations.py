"""Sends verdicts as POSTs to Karrot's ``/burrow``, or as the ``kafka`` reporter's messages."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final
from urllib.parse import urlsplit

import msgspec

from karrot.event import SOURCE_HEADER, Source
from karrot.eventlog.base import StoredEvent
from karrot.http_client import ACCEPTED, SERVER_FAULTS, Answer, HttpClient, Limits, RequestFailed
from karrot.reporters.kafka.reporter import Failed, NoTopic, TopicWriter, message_of
from karrot.text import redacted

KEPT_BYTES: Final = 65_536
"""The maximum number of bytes kept of a refused verdict."""


class RefusedVerdict(msgspec.Struct, frozen=True):
    """A verdict that the ``receiver`` refused because of its content. ``body`` has at most `KEPT_BYTES` bytes.

    ``key`` is the id of the event. ``code`` is the receiver's error code, such as ``too_large``.
    """

    key: str
    receiver: str
    consumer: str
    code: str
    body: str

    @classmethod
    def of(cls, sent: StoredEvent, receiver: str, code: str) -> "RefusedVerdict":
        body = sent.body[:KEPT_BYTES].decode("utf-8", "replace")
        return cls(sent.event_id, receiver, sent.event.consumer, code, body)


class NotAccepted(RuntimeError):  # noqa: N818 (names what happened)
    """A receiver accepted only the verdicts before the number ``seq``. The message gives the reason without secrets.

    If ``is_away``, the receiver may accept the others later. Otherwise a person or a restart must help.
    """

    def __init__(self, reason: str, seq: int, *, is_away: bool = True) -> None:
        super().__init__(reason)
        self.seq, self.is_away = seq, is_away


Deliver = Callable[[Iterable[StoredEvent]], Iterable[RefusedVerdict]]
"""Sends verdicts in order while the caller iterates, and yields the verdicts that the receiver refused.

A verdict has the same id each time it is sent, and a body in Burrow's format. Raises `NotAccepted`. The caller then
sends the other verdicts again later.
"""


def _chunks(several: Iterable[StoredEvent]) -> Iterator[list[StoredEvent]]:
    """Yield chunks with one verdict of a group each, because the verdicts of a chunk can arrive in any order."""
    some = dict[str, StoredEvent]()
    for each in several:
        if len(some) == _AT_ONCE or each.event.consumer in some:
            yield [*some.values()]
            some.clear()
        some[each.event.consumer] = each
    if some:
        yield [*some.values()]


_CONNECTIONS: Final = 8
_AT_ONCE: Final = 5_000
_BAD_BODY: Final = frozenset({400, 413, 422})
"""HTTP statuses of a body that Karrot always refuses. Other statuses depend on the address, token or Karrot's state."""


def to_karrot(url: str, token: str | None, *, lists_all: bool, retries: int = 2) -> Deliver:
    """Return a function that posts each notification to Karrot, with several connections.

    If Karrot refuses a body, the other notifications are still sent. Karrot expects all partitions in an event of the
    source ``kafka``, and only bad partitions in an event of Burrow. Raises `ValueError` if ``url`` is not an address.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("--to karrot= must be an address, such as karrot=http://karrot:5000")
    address = f"{url.rstrip('/').removesuffix('/burrow')}/burrow"
    karrot = HttpClient(address, Limits(timeout_s=10.0, backoff_s=0.2, connections=_CONNECTIONS), token=token)
    shown = redacted(address)
    headers = {SOURCE_HEADER: Source.KAFKA.value} if lists_all else {}

    def send(each: StoredEvent) -> RefusedVerdict | None:
        try:
            answer = karrot.post("", each.body, headers, retries=retries)
        except RequestFailed as error:
            reason = type(error.__cause__ or error).__name__
            raise NotAccepted(f"Karrot at {shown} does not answer: {reason}", each.seq) from error
        if answer.status in ACCEPTED:
            return None
        if answer.status not in _BAD_BODY:
            is_away = answer.status in (429, *SERVER_FAULTS)
            raise NotAccepted(f"Karrot at {shown} answered HTTP {answer.status}", each.seq, is_away=is_away)
        return RefusedVerdict.of(each, "Karrot", _code(answer))

    def deliver(several: Iterable[StoredEvent]) -> Iterator[RefusedVerdict]:
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            for some in _chunks(several):
                yield from filter(None, pool.map(send, some))

    return deliver


def _code(answer: Answer) -> str:
    """Return the error code in Karrot's answer. If a proxy answered, return the HTTP status."""
    try:
        return str(json.loads(answer.body)["code"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.status}"


def to_topic(open_topic: Callable[[], TopicWriter]) -> Deliver:
    """Return a function that writes each verdict to a topic, in the form of the ``kafka`` reporter.

    ``open_topic`` connects to Kafka, with a new client for each call. Kafka can refuse a message as too large.
    """

    def send(owed: Sequence[StoredEvent]) -> Iterator[RefusedVerdict]:
        try:
            with closing(open_topic()) as topic:
                outcomes = topic.send([message_of(each) for each in owed])
        except NoTopic as error:
            raise NotAccepted(f"Kafka does not take the verdicts: {error}", owed[0].seq) from error
        for each, outcome in zip(owed, outcomes, strict=True):
            if isinstance(outcome, Failed) and not outcome.is_final:
                raise NotAccepted(f"Kafka does not take the verdicts: {outcome.text}", each.seq)
            if isinstance(outcome, Failed):
                yield RefusedVerdict.of(each, "Kafka", outcome.reason)

    return lambda several: (each for some in _chunks(several) for each in send(some))
