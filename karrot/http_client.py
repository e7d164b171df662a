"""Sends Karrot's HTTP requests: to Burrow, to Karrot, to Prometheus, and to the webhooks of other programs.

- A proxy comes from ``HTTP_PROXY``, ``HTTPS_PROXY`` and ``NO_PROXY``, in upper or lower case. Requests to this machine
  and to link-local addresses never go through a proxy.
- A redirect is not followed: a POST would lose its body, and a token would go to another program.
- A server's certificate must be signed by an authority that OpenSSL trusts (``SSL_CERT_FILE`` or the system's).
- `Limits` limits the time and the size of an answer, and the retries.

boto3 has the same rules for requests to AWS. The health check does not use urllib3, because urllib3 takes longer to
load than the check.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address, ip_network
from itertools import count
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import unquote, urlencode, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed does not know it

import msgspec
from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager, Retry, make_headers
from urllib3.exceptions import HTTPError, InvalidHeader, NewConnectionError, ProtocolError, SSLError
from urllib3.exceptions import TimeoutError as NoAnswerInTime

from karrot.text import redacted

T = TypeVar("T")
Query = Mapping[str, str] | Sequence[tuple[str, str]]
WallMs = Callable[[], int]
"""Epoch milliseconds of the wall clock."""

ACCEPTED, REDIRECTS, SERVER_FAULTS = range(200, 300), range(300, 400), range(500, 600)
_OK = 200
_TRY_AGAIN = frozenset({429, 500, 502, 503, 504})
_LONGEST_PAUSE_S = 30.0
_CHUNK_BYTES = 64 * 1024
_SHOWN = 200
_PHRASES = {each.value: each.phrase for each in HTTPStatus}


class RequestFailed(Exception):  # noqa: N818 (it describes a result)
    """A request without a usable answer. ``said`` is the reason. Without an answer, ``status`` is 0."""

    def __init__(self, url: str, said: str, status: int = 0) -> None:
        super().__init__(f"{redacted(url)}: {said}")
        self.url = url
        self.said = said
        self.status = status


class Unavailable(RequestFailed):
    """No answer came in time, or the answer was incomplete or had a status of 5xx. A later try may succeed."""


class Unreadable(RequestFailed):
    """The answer is not what the server should send."""


class _Broken(Unavailable):
    """The connection was refused or broke. The server may be restarting, so another try may succeed."""


class Answer(NamedTuple):
    """A complete answer with any status. ``asked_at_ms`` is the start of the attempt that was answered."""

    url: str
    status: int
    body: bytes
    location: str
    asked_at_ms: int
    retry_after_s: float = 0.0

    def refusal(self) -> RequestFailed:
        """The error for an unexpected answer."""
        if self.status in REDIRECTS:
            said = f"HTTP {self.status}, a redirect to {shown(redacted(self.location))}: use that URL"
            return Unreadable(self.url, said, self.status)
        kind, name = Unavailable if self.status in SERVER_FAULTS else Unreadable, _PHRASES.get(self.status, "")
        return kind(self.url, f"HTTP {self.status} {name}".strip() + f", {shown(self.body)}", self.status)


def shown(text: str | bytes) -> str:
    """Make a text from outside safe to quote in a message: one line, limited in length, without control characters."""
    plain = text.decode(errors="replace") if isinstance(text, bytes) else text
    plain = plain.strip()
    return ascii(plain if len(plain) <= _SHOWN else f"{plain[:_SHOWN]}...")


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of requests.

    ``timeout_s`` limits the time to open the connection, each wait for data, and the time to read the whole body. If a
    connection is refused or breaks, a GET is repeated up to ``retries`` times. The first pause is ``backoff_s``, and
    each further pause is twice as long. A GET that timed out is not repeated, because the server may still be working
    on it. Up to ``connections`` connections stay open for as many threads.
    """

    timeout_s: float = 5.0
    retries: int = 2
    backoff_s: float = 0.1
    max_bytes: int = 64 * 1024 * 1024
    connections: int = 8
    pause: Callable[[float], object] = time.sleep
    monotonic: Callable[[], float] = time.monotonic


class HttpClient:
    """Sends requests to one URL and the paths below it. Several threads may use the client.

    ``token`` is sent as a Bearer token. A proxy whose address is wrong makes each request fail.
    """

    def __init__(
        self,
        url: str,
        limits: Limits | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
        now_ms: WallMs = wall_ms,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.url, self._exact_url = url.rstrip("/"), url
        self._limits = limits or Limits()
        self._now_ms = now_ms
        bearer = {"Authorization": f"Bearer {token}"} if token else {}
        self._headers = {"User-Agent": "karrot", "Accept": "*/*", **(headers or {}), **bearer}
        self._pool = _pool(self.url, self._limits, environ)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, path: str = "", query: Query = ()) -> Answer:
        """The answer to a GET, with any status. Raises `Unavailable`, or `Unreadable` for a too large answer."""
        return self._send("GET", path, query, self._limits.retries, headers=self._headers)

    def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None, *, retries: int = 0) -> Answer:
        """Post JSON and return the answer. Raises what `get` raises.

        A post is retried up to ``retries`` times if there is no answer, or if the server cannot take the post now. A
        pause is at least as long as the server's ``Retry-After``. After a too long ``Retry-After``, there is no retry.
        """
        all_headers = {**self._headers, "Content-Type": "application/json", **(headers or {})}
        return self._send("POST", path, (), retries, body=body, headers=all_headers)

    def delete(self, path: str, query: Query) -> Answer:
        return self._send("DELETE", path, query, 0, headers=self._headers)

    def body(self, path: str, query: Query = (), *, also: int = _OK) -> bytes:
        """The body of the answer to a GET, with status 200 or ``also``. Raises `RequestFailed`."""
        answer = self.get(path, query)
        if answer.status not in (_OK, also):
            raise answer.refusal()
        return answer.body

    def read(self, kind: type[T], path: str, query: Query = (), *, also: int = _OK) -> T:
        """Send a GET and decode the JSON body. Raises `RequestFailed` if the body is wrong or nested too deeply."""
        body = self.body(path, query, also=also)
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Unreadable(f"{self.url}{path}", f"the answer is not valid: {error}", _OK) from error

    def _send(self, method: str, path: str, query: Query, retries: int, **sent: Any) -> Answer:
        for tried in count():
            pause_s, is_last = self._limits.backoff_s * 2**tried, tried >= retries
            try:
                answer = self._once(method, path, query, **sent)
            except Unavailable as error:
                if is_last or not (method == "POST" or isinstance(error, _Broken)):
                    raise
            else:
                if is_last or method == "GET" or answer.status not in _TRY_AGAIN:
                    return answer
                if answer.retry_after_s > _LONGEST_PAUSE_S:
                    return answer
                pause_s = max(pause_s, answer.retry_after_s)
            self._limits.pause(pause_s)
        raise AssertionError

    def _once(self, method: str, path: str, query: Query, **sent: Any) -> Answer:
        url, asked_at_ms = f"{self.url}{path}" if path else self._exact_url, self._now_ms()
        asked = f"{url}?{urlencode(query)}" if query else url
        if self._pool is None:  # do not show the address, which may contain a password
            name = f"{urlsplit(url).scheme.upper()}_PROXY"
            raise Unavailable(url, f"{name} is not the address of an HTTP proxy, such as http://proxy:3128")
        try:
            response = self._pool.request(method, asked, preload_content=False, **sent)
            body = self._body(response, url)
        except HTTPError as error:
            raise self._unavailable(error, url) from error
        headers = response.headers
        return Answer(url, response.status, body, headers.get("Location", ""), asked_at_ms, _retry_after_s(headers))

    def _body(self, response: BaseHTTPResponse, url: str) -> bytes:
        """Read the whole body. If it cannot be read completely, the connection is closed."""
        limits = self._limits
        deadline = limits.monotonic() + limits.timeout_s
        body = bytearray()
        with response:
            while chunk := response.read1(_CHUNK_BYTES):
                body += chunk
                if len(body) > limits.max_bytes:
                    raise Unreadable(url, f"the answer is larger than {limits.max_bytes} bytes")
                if limits.monotonic() > deadline:
                    raise Unavailable(url, f"the answer is not complete after {limits.timeout_s:g} s")
            response.release_conn()
        return bytes(body)

    def _unavailable(self, error: HTTPError, url: str) -> Unavailable:
        where, reason = urlsplit(self.url), _reason(error)
        match error:
            case NewConnectionError():
                return _Broken(url, f"no connection: {reason}")
            case NoAnswerInTime():
                return Unavailable(url, f"no answer within {self._limits.timeout_s:g} s")
            case SSLError() if "WRONG_VERSION_NUMBER" in reason:
                return Unavailable(url, f"{where.netloc} does not use TLS: try http://{where.netloc}")
            case SSLError():
                return Unavailable(url, f"no secure connection: {reason}")
            case ProtocolError():
                advice = f"; if it uses TLS, try https://{where.netloc}" if where.scheme == "http" else ""
                return _Broken(url, f"the connection broke: {reason}{advice}")
            case _:
                return Unavailable(url, f"the request failed: {reason}")


def _reason(error: BaseException) -> str:
    """The message of an error's cause, or the system's message for an error of the operating system."""
    cause = error.__cause__ or error.__context__
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return shown(str(cause or error))


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """The seconds in the header ``Retry-After``, which may be a date. 0 without a valid header."""
    try:
        return Retry().parse_retry_after(headers["Retry-After"])
    except (KeyError, InvalidHeader, OverflowError):
        return 0.0


def _pool(url: str, limits: Limits, environ: Mapping[str, str]) -> PoolManager | None:
    """Make a pool of connections. Return ``None`` if the proxy's address cannot be used."""
    # Without retries, urllib3 follows no redirect either.
    asked: dict[str, Any] = {"timeout": limits.timeout_s, "maxsize": limits.connections, "retries": False}
    proxy = proxy_for(url, environ)
    if proxy is None:
        return PoolManager(**asked)
    try:
        parts = urlsplit(proxy)
        user = None if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return ProxyManager(
            f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}",
            proxy_headers=make_headers(proxy_basic_auth=user) if user else None,
            **asked,
        )
    except ValueError:
        return None


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The address of the proxy for a URL. ``None`` if the request goes to the host directly."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxy = _variable(environ, f"{parts.scheme}_proxy")
    exceptions = _variable(environ, "no_proxy")
    address = parts.netloc.rpartition("@")[2]
    if not proxy or _is_direct(host, exceptions) or proxy_bypass_environment(address, {"no": exceptions}):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.upper()) or ""


def _is_direct(host: str, exceptions: str) -> bool:
    """Whether a host needs no proxy: this machine, a link-local agent (as in ECS), or an exception like ``10.0.0.0/8``.

    The standard library understands only names in the list of exceptions (``NO_PROXY``), not address ranges.
    """
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost"
    if address.is_loopback or address.is_link_local:
        return True
    for each in exceptions.split(","):
        with suppress(ValueError):
            if "/" in each and address in ip_network(each.strip(), strict=False):
                return True
    return False
