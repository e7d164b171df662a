"""Sends verdicts as lines to a stream, as POSTs to Karrot's ``/burrow``, or as the ``kafka`` reporter's messages."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from typing import Final, TextIO
from urllib.parse import urlsplit

import msgspec

from karrot.event import SOURCE_HEADER, Source
from karrot.eventlog.base import StoredEvent
from karrot.http_client import ACCEPTED, Answer, HttpClient, Limits, RequestFailed
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
    """A receiver did not accept the verdicts of a batch. The message gives the reason without the address."""


Deliver = Callable[[Iterable[StoredEvent]], Sequence[RefusedVerdict]]
"""Sends the verdicts of a batch, and returns the verdicts that the receiver refused.

A verdict has the same id each time it is sent, and a body in Burrow's format. Raises `NotAccepted`. The caller then
sends the whole batch again later.
"""


def chunks(several: Iterable[StoredEvent], most: int) -> Iterator[list[StoredEvent]]:
    left = iter(several)
    while some := [*islice(left, most)]:
        yield some


_CONNECTIONS: Final = 8
_AT_ONCE: Final = 1_000
_MESSAGES_AT_ONCE: Final = 5_000
_WAITS_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
_BAD_BODY: Final = frozenset({400, 413, 422})
"""HTTP statuses of a body that Karrot always refuses. Other statuses depend on the address, token or Karrot's state."""

_RETRIES: Final = 8


def to_stream(stream: TextIO) -> Deliver:
    """Return a function that writes each body as a line, and flushes the stream after the last line."""

    def deliver(several: Iterable[StoredEvent]) -> Sequence[RefusedVerdict]:
        stream.writelines(f"{each.body.decode()}\n" for each in several)
        stream.flush()
        return ()

    return deliver


def to_karrot(url: str, token: str | None, *, lists_all: bool, retries: int = _RETRIES) -> Deliver:
    """Return a function that posts each notification to Karrot, with several connections.

    Karrot stores accepted notifications. If Karrot is unreachable or refuses the token, the next start sends the whole
    batch again from the checkpoint. If Karrot refuses a body, the other notifications are still sent. Karrot expects
    all partitions in an event of the source ``kafka``, and only bad partitions in an event of Burrow. Raises
    `ValueError` if ``url`` is not an address.
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
            raise NotAccepted(f"Karrot at {shown} does not answer: {reason}") from error
        if answer.status in ACCEPTED:
            return None
        if answer.status not in _BAD_BODY:
            raise NotAccepted(f"Karrot at {shown} answered HTTP {answer.status}")
        return RefusedVerdict.of(each, "Karrot", _code(answer))

    def deliver(several: Iterable[StoredEvent]) -> Sequence[RefusedVerdict]:
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            answers = (each for some in chunks(several, _AT_ONCE) for each in pool.map(send, some))
            return [each for each in answers if each is not None]

    return deliver


def _code(answer: Answer) -> str:
    """Return the error code in Karrot's answer. If a proxy answered, return the HTTP status."""
    try:
        return str(json.loads(answer.body)["code"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.status}"


def to_topic(
    open_topic: Callable[[], TopicWriter],
    waits_s: Sequence[float] = _WAITS_S,
    pause: Callable[[float], object] = time.sleep,
) -> Deliver:
    """Return a function that writes each verdict to a topic, in the form of the ``kafka`` reporter.

    ``open_topic`` connects to Kafka. A failed message is retried several times, each time with a new client. Kafka can
    refuse a message as too large.
    """

    def send(owed: Sequence[StoredEvent]) -> list[RefusedVerdict]:
        refused, why = list[RefusedVerdict](), ""
        for wait_s in (0.0, *waits_s):
            pause(wait_s)
            try:
                with closing(open_topic()) as topic:
                    outcomes = topic.send([message_of(each) for each in owed])
            except NoTopic as error:
                why = str(error)
                continue
            again = list[StoredEvent]()
            for each, outcome in zip(owed, outcomes, strict=True):
                if isinstance(outcome, Failed) and outcome.is_final:
                    refused.append(RefusedVerdict.of(each, "Kafka", outcome.reason))
                elif isinstance(outcome, Failed):
                    again.append(each)
                    why = outcome.text
            if not again:
                return refused
            owed = again
        raise NotAccepted(f"Kafka does not take the verdicts: {why}")

    return lambda several: [each for some in chunks(several, _MESSAGES_AT_ONCE) for each in send(some)]
