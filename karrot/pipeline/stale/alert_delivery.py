"""Delivers alert lines to a text stream, or one by one to a webhook."""

from collections.abc import Callable
from typing import TextIO
from urllib.parse import urlsplit

import urllib3

_TIMEOUT_S = 5.0
_ACCEPTED = range(200, 300)


class Undelivered(Exception):  # noqa: N818 (names what happened)
    """A line that could not be delivered; it is kept for another time. The text is a reason without the address."""


def to_stream(stream: TextIO) -> Callable[[str], None]:
    """Deliver lines to a stream, each at once."""

    def deliver(line: str) -> None:
        stream.write(f"{line}\n")
        stream.flush()

    return deliver


def to_webhook(url: str) -> Callable[[str], None]:
    """Deliver lines by POST, each as a body of JSON; the address may be a secret. Raises `ValueError` for none.

    What delivers raises `Undelivered` unless the answer is 2xx; redirects are not followed.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("--webhook is no http:// or https:// address")
    http = urllib3.PoolManager(timeout=_TIMEOUT_S, headers={"Content-Type": "application/json"})

    def deliver(line: str) -> None:
        try:
            answer = http.request("POST", url, body=line.encode(), retries=False, redirect=False)
        except urllib3.exceptions.HTTPError as error:
            raise Undelivered(type(error).__name__) from error
        if answer.status not in _ACCEPTED:
            raise Undelivered(f"HTTP {answer.status}")

    return deliver
