"""Parses the head of a request: its request line and its headers. httptools decides what is valid HTTP."""

from urllib.parse import unquote_to_bytes

import httptools

HEAD_LIMIT = 64 << 10
"""The maximum size of a head in bytes."""

_LINE_LIMIT = 4094
_FIELDS_LIMIT = 100
_END_OF_LINE = b"\r\n"


class RefusedHead(Exception):  # noqa: N818 - it ends a request, not the program
    """The head of a request is not valid HTTP, or is too long. ``status`` is the status of the answer."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class RequestHead:
    """The request line and the headers of a request.

    ``path`` is decoded as WSGI wants it: each character stands for one byte. The names in ``headers`` have small
    letters. Headers of the same name are one value with commas. ``version`` is ``1.0`` or ``1.1``. ``length`` is
    ``None`` without a Content-Length.
    """

    __slots__ = ("fields", "headers", "keeps_alive", "method", "path", "query", "target", "version")

    def __init__(self, raw: bytes) -> None:
        """Parse a complete head, with the empty line at its end. Raises `RefusedHead`."""
        self.fields = 0
        self.headers: dict[str, str] = {}
        self.target = ""
        self.version = ""
        parser = httptools.HttpRequestParser(self)
        try:
            parser.feed_data(raw)
        except httptools.HttpParserUpgrade:
            pass  # HTTP/1.1 lets a server ignore the header Upgrade
        except httptools.HttpParserError as error:
            raise RefusedHead(400, f"The request is not HTTP: {error}") from None
        self.version = parser.get_http_version()
        self.method = parser.get_method().decode("ascii")
        self.keeps_alive = self.version == "1.1" and "close" not in self.headers.get("connection", "").lower()
        self.path, self.query = _path_and_query(self.target)
        self._check(raw)

    @property
    def length(self) -> int | None:
        """The announced size of the body in bytes."""
        announced = self.headers.get("content-length")
        return None if announced is None else int(announced)

    @property
    def announces_a_body(self) -> bool:
        """Whether bytes of a body follow the head."""
        return bool(self.length) or "transfer-encoding" in self.headers

    @property
    def waits_for_continue(self) -> bool:
        """Whether the client sends the body only after ``100 Continue``."""
        return self.headers.get("expect", "").lower() == "100-continue"

    def on_url(self, url: bytes) -> None:
        """Take the target from httptools."""
        self.target = url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header from httptools."""
        self.fields += 1
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        self.headers[key] = f"{self.headers[key]},{text}" if key in self.headers else text

    def _check(self, raw: bytes) -> None:
        if self.version not in ("1.0", "1.1"):
            raise RefusedHead(400, f"Karrot does not speak HTTP/{self.version}.")
        if raw.find(_END_OF_LINE) > _LINE_LIMIT:
            raise RefusedHead(414, f"The request line is longer than {_LINE_LIMIT} bytes.")
        if self.fields > _FIELDS_LIMIT:
            raise RefusedHead(431, f"The request has more than {_FIELDS_LIMIT} headers.")
        if "," in self.headers.get("host", ""):
            raise RefusedHead(400, "The request has more than one Host.")


def _path_and_query(target: str) -> tuple[str, str]:
    """The decoded path and the query. A proxy can send a whole URL as the target."""
    if not target.startswith("/"):
        _scheme, separator, rest = target.partition("://")
        target = f"/{rest.partition('/')[2]}" if separator else f"/{target}"
    path, _, query = target.partition("#")[0].partition("?")
    return (unquote_to_bytes(path).decode("latin-1") if "%" in path else path), query
