"""Serves the application under a URL prefix: links include it, and requests with or without it work."""

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class PrefixMiddleware:
    """WSGI middleware for an external URL with a path.

    The proxy in front may take the path away or leave it. It comes from the settings alone: a header of the request
    would let one reader put links of his own into the pages of others.
    """

    def __init__(self, external_url: str, application: Application) -> None:
        self._prefix = urlsplit(external_url).path.rstrip("/")
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Pass the request on with its prefix where WSGI expects it: in ``SCRIPT_NAME``."""
        environ["SCRIPT_NAME"] = self._prefix
        path = environ["PATH_INFO"]
        if self._prefix and (path == self._prefix or path.startswith(f"{self._prefix}/")):
            environ["PATH_INFO"] = path.removeprefix(self._prefix) or "/"
        return self._application(environ, start_response)
