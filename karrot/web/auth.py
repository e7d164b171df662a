"""Checks the Authorization header of requests that post or read. WSGI passes the header as Latin-1."""

import binascii
import hmac
from collections.abc import Iterable
from urllib.parse import urlsplit

from flask import g, request

from karrot.web.context import Credentials, web_context
from karrot.web.error_answers import FOR_READERS, Problem

_BASIC = 'Basic realm="karrot", charset="UTF-8"'
_BEARER = 'Bearer realm="karrot"'


def may_post(credentials: Credentials, authorization: str) -> bool:
    """Whether a request with this Authorization header may post. Always false if no credentials are set."""
    scheme, shown = _shown(authorization)
    return _any_equal(shown, credentials.basic if scheme == "basic" else credentials.bearer)


def may_read(credentials: Credentials, authorization: str) -> bool:
    """Whether a request may read. The token may be a Basic password, because browsers cannot send a Bearer token."""
    if not credentials.readers:
        return True
    scheme, shown = _shown(authorization)
    if scheme == "basic":
        shown = shown.partition(b":")[2]
    return _any_equal(shown, credentials.readers)


def burrow_challenges(credentials: Credentials) -> tuple[str, ...]:
    """The WWW-Authenticate values of an answer 401 of ``/burrow``."""
    return ((_BASIC,) if credentials.basic else ()) + ((_BEARER,) if credentials.bearer else ())


def is_reader() -> bool:
    """Whether the current request may read."""
    return may_read(web_context().credentials(), request.headers.get("Authorization", ""))


def require_reader() -> None:
    """End the current request with 401 if an API token is set and the request does not have it."""
    g.setdefault(FOR_READERS, is_reader())
    if not g.get(FOR_READERS):
        challenges = [("WWW-Authenticate", value) for value in (_BASIC, _BEARER)]
        raise Problem("unauthorized", "The API token is missing or wrong.", headers=challenges)


def require_same_site() -> None:
    """End a request that a browser sends from a page of another site, unless it only reads. Programs send no Origin."""
    if request.method in ("GET", "HEAD", "OPTIONS"):
        return
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    own = [urlsplit(url).netloc for url in (request.host_url, web_context().external_url or request.host_url)]
    is_own = site in ("same-origin", "none") if site else origin is None or origin.partition("://")[2] in own
    if not is_own:
        raise Problem("cross_site", "A page of another site sent this request, so Karrot changed nothing.")


def _shown(header: str) -> tuple[str, bytes]:
    """Parse the scheme in lower case, and the secret. An unknown scheme or an undecodable secret becomes empty."""
    scheme, _, rest = header.partition(" ")
    match scheme.lower():
        case "bearer":
            return "bearer", _bytes(rest.strip())
        case "basic":
            try:
                return "basic", binascii.a2b_base64(_bytes(rest.strip()), strict_mode=True)
            except ValueError:
                return "basic", b""
        case _:
            return "", b""


def _bytes(text: str) -> bytes:
    # WSGI passes headers as Latin-1, even if the client used another encoding.
    return text.encode("latin-1", "replace")


def _any_equal(shown: bytes, candidates: Iterable[bytes]) -> bool:
    # Compare with every candidate completely, so that the duration does not show a similar candidate.
    equal = [hmac.compare_digest(shown, candidate) for candidate in candidates]
    return any(equal)
