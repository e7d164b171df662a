"""Finds out when an arriving request is complete. It parses only what is needed, and does no I/O.

The result decides only when the server hands over a request. gunicorn parses the same bytes again and validates them.
"""

import re
from typing import NamedTuple
from urllib.parse import unquote

HEAD_LIMIT = 64 << 10
"""The maximum size of the headers in bytes. Longer headers are refused."""

_END = b"\r\n\r\n"
_FIELDS = re.compile(rb"\r\n(content-length|authorization|expect)[ \t]*:([^\r\n]*)", re.IGNORECASE)


class RequestHead(NamedTuple):
    """The request line and the headers that the server uses. ``length`` is ``None`` without a valid Content-Length.

    ``path`` is decoded and has no slash at its end.
    """

    method: str
    path: str
    length: int | None
    authorization: str
    waits_for_continue: bool


class ArrivingRequest:
    """The bytes of one request that have arrived so far."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._body_starts = 0
        self.head: RequestHead | None = None

    def __len__(self) -> int:
        return len(self._bytes)

    def feed(self, data: bytes) -> None:
        """Add the next bytes."""
        searched = max(0, len(self._bytes) - len(_END) + 1)
        self._bytes += data
        if self.head is None and (end := self._bytes.find(_END, searched)) >= 0:
            self._body_starts = end + len(_END)
            self.head = _head(bytes(self._bytes[:end]))

    @property
    def head_is_endless(self) -> bool:
        """Whether the headers are longer than `HEAD_LIMIT`."""
        return self.head is None and len(self._bytes) > HEAD_LIMIT

    @property
    def body_is_whole(self) -> bool:
        """Whether the body has arrived completely, by its Content-Length."""
        return self.head is not None and len(self._bytes) - self._body_starts >= (self.head.length or 0)

    @property
    def nothing_follows(self) -> bool:
        """Whether a body of known length has arrived completely, with no bytes after it."""
        return self.head is not None and len(self._bytes) - self._body_starts == self.head.length

    def go_on(self) -> None:
        """Remove the ``Expect`` header. The client already got a 100 Continue, and gunicorn must not send another."""
        head, body = self._bytes[: self._body_starts - len(_END)], self._bytes[self._body_starts :]
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"expect:")]
        self._bytes = bytearray(b"\r\n".join(lines) + _END + body)
        self._body_starts = len(self._bytes) - len(body)

    def take(self) -> bytes:
        """All bytes that arrived."""
        return bytes(self._bytes)


def _head(raw: bytes) -> RequestHead:
    method, _, rest = raw.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    fields = {name.lower(): value.strip().decode("latin-1") for name, value in _FIELDS.findall(raw)}
    length = fields.get(b"content-length", "")
    return RequestHead(
        method=method,
        path=_path(rest.partition(" ")[0]),
        length=int(length) if length.isascii() and length.isdigit() and len(length) < 16 else None,  # noqa: PLR2004
        authorization=fields.get(b"authorization", ""),
        waits_for_continue=b"expect" in fields,
    )


def _path(target: str) -> str:
    """The path as the application routes it. A proxy can send a whole URL as the target."""
    scheme, separator, rest = target.partition("://")
    path = f"/{rest.partition('/')[2]}" if separator and scheme.isalpha() else target
    return "/" + unquote(path.partition("?")[0]).strip("/")
