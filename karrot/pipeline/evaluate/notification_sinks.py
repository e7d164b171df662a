"""Sends notifications: as lines to a stream, or as POSTs to Karrot's ``/burrow``."""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TextIO
from urllib.parse import urlsplit

import urllib3

from karrot.event import SOURCE_HEADER, Source
from karrot.http.pool import open_pool
from karrot.pipeline.evaluate.verdict_delivery import (
    Deliver,
    NotAccepted,
    RefusedVerdict,
    ToSend,
    VerdictDelivery,
    chunks,
)

_TIMEOUT_S: Final = 10.0
_CONNECTIONS: Final = 8
_AT_ONCE: Final = 1_000
_ACCEPTED: Final = range(200, 300)
_BAD_BODY: Final = frozenset({400, 413, 422})
"""Answers that say that Karrot will never take this body. Others are about the address, the token or Karrot's state."""

_RETRIES: Final = urllib3.Retry(
    total=8,
    redirect=False,
    status_forcelist=(429, 500, 502, 503, 504),
    allowed_methods=None,
    backoff_factor=0.2,
    raise_on_status=False,
)


def to_stream(stream: TextIO) -> Deliver:
    """Return a function that writes each body as a line, and then flushes the stream."""

    def deliver(several: Iterable[ToSend]) -> VerdictDelivery:
        taken = 0
        for each in several:
            stream.write(f"{each.stored.body.decode()}\n")
            taken += 1
        stream.flush()
        return VerdictDelivery(taken)

    return deliver


@dataclass(frozen=True, slots=True)
class ToKarrot:
    """Posts each notification to Karrot, with several connections.

    Karrot's log keeps what it accepted. If Karrot cannot be reached or refuses the token, the notifications stay in the
    checkpoint, and the next start sends all notifications of the batch again. If Karrot refuses a body, the others are
    sent all the same.
    """

    http: urllib3.PoolManager
    url: str
    headers: dict[str, str]
    retries: urllib3.Retry = _RETRIES

    @classmethod
    def at(cls, url: str, token: str | None, *, lists_all: bool) -> "ToKarrot":
        """The sink for the address of Karrot. Raises `ValueError` if ``url`` is not an address.

        Karrot expects all partitions in an event of the source ``kafka``, and only bad ones in an event of Burrow.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("--to karrot= must be an address, such as karrot=http://karrot:5000")
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if lists_all:
            headers[SOURCE_HEADER] = Source.KAFKA.value
        http = open_pool(url, timeout_s=_TIMEOUT_S, connections=_CONNECTIONS)
        return cls(http, f"{url.rstrip('/').removesuffix('/burrow')}/burrow", headers)

    def __call__(self, several: Iterable[ToSend]) -> VerdictDelivery:
        """Send all. Karrot can refuse some of them. Raises `NotAccepted`."""
        count, refused = 0, list[RefusedVerdict]()
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            for some in chunks(several, _AT_ONCE):
                refused += (each for each in pool.map(self._send, some) if each is not None)
                count += len(some)
        return VerdictDelivery(count - len(refused), refused)

    def _send(self, each: ToSend) -> RefusedVerdict | None:
        try:
            answer = self.http.request(
                "POST", self.url, body=each.stored.body, headers=self.headers, retries=self.retries
            )
        except urllib3.exceptions.HTTPError as error:
            raise NotAccepted(f"Karrot does not answer: {type(error).__name__}") from error
        if answer.status in _ACCEPTED:
            return None
        if answer.status not in _BAD_BODY:
            raise NotAccepted(f"Karrot answered HTTP {answer.status}")
        return RefusedVerdict.of(each, "Karrot", _code(answer))


def _code(answer: urllib3.BaseHTTPResponse) -> str:
    """The code in Karrot's answer, or the status, if a proxy answered."""
    try:
        return str(json.loads(answer.data)["code"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.status}"
