"""Checks who posts or reads: the Authorization header, which WSGI passes as Latin-1, and the headers of a browser."""

import binascii
import hmac
import re
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from flask import g, request

from karrot.web.context import Credentials, web_context
from karrot.web.error_answers import FOR_READERS, Problem

_BASIC = 'Basic realm="karrot", charset="UTF-8"'
_BEARER = 'Bearer realm="karrot"'
_PORT = re.compile(r"\.?(:\d*)?$")
"""The end of Host that does not belong to the name: the dot of the root, and the port."""

_UNREGISTRABLE = re.compile(r"[^.]*|[\d.]+|\[.*\]|.+\.(internal|local|localhost|svc|home\.arpa)", re.IGNORECASE)
"""Host names that belong to no site of a stranger: one word, an address, or a name of a private network."""


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


def require_own_site() -> None:
    """End the current request if a browser sends it for a page of another site."""
    only_reads = request.method in ("GET", "HEAD", "OPTIONS")
    refuse_other_sites(request.headers.get, web_context().external_url, only_reads=only_reads)


def refuse_other_sites(
    header: Callable[[str], str | None], external_url: str | None, *, only_reads: bool = False
) -> None:
    """Raise `Problem` for a request that a browser sends for a page of another site.

    A page may read nothing of another site, except after a stranger gave its host name Karrot's address. Only Host then
    shows the other site, if the external URL is known. Programs send no Accept-Language, Origin or Sec-Fetch-Site, so
    they may use every name.
    """
    host, origin, site = header("host") or "", header("origin"), header("sec-fetch-site")
    own = host, urlsplit(external_url).netloc if external_url else host
    is_own = header("accept-language") is None or _is_own_name(*own)
    is_same = site in ("same-origin", "none") if site else origin is None or origin.partition("://")[2] in own
    if not (is_own and (is_same or only_reads)):
        raise Problem("cross_site", "A page of another site sent this request, so Karrot did nothing.")


def _is_own_name(host: str, own: str) -> bool:
    name, own_name = (_PORT.sub("", each).lower() for each in (host, own))
    return name == own_name or _UNREGISTRABLE.fullmatch(name) is not None


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
