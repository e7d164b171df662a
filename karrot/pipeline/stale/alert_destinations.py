"""Sends the lines of alerts to a stream or a webhook."""

from collections.abc import Callable
from typing import TextIO
from urllib.parse import urlsplit

from karrot.http_client import ACCEPTED, HttpClient, RequestFailed


class Undelivered(Exception):  # noqa: N818 (names what happened)
    """A line could not be delivered, and waits for the next batch. The message gives the reason without the address."""


def to_stream(stream: TextIO) -> Callable[[str], None]:
    def deliver(line: str) -> None:
        stream.write(f"{line}\n")
        stream.flush()

    return deliver


def to_webhook(url: str) -> Callable[[str], None]:
    """Return a function that sends a line as the JSON body of a POST. Raises `ValueError` if ``url`` is not an address.

    The function raises `Undelivered` if the answer is not 2xx, and does not follow redirects. No message contains the
    address, because the address may be a secret.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("--to webhook= must be an http:// or https:// address")
    client = HttpClient(url)

    def deliver(line: str) -> None:
        try:
            answer = client.post("", line.encode())
        except RequestFailed as error:
            raise Undelivered(type(error.__cause__ or error).__name__) from error
        if answer.status not in ACCEPTED:
            raise Undelivered(f"HTTP {answer.status}")

    return deliver
