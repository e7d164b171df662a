"""Below a path of somebody else's host: the pages' links bear it, and who asks with it is understood."""

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Below:
    """WSGI middleware for an external URL with a path.

    The proxy in front may take the path away or leave it. It comes from the settings alone: a header of the request
    would let one reader put links of his into the pages that others are shown.
    """

    def __init__(self, external_url: str, application: Application) -> None:
        self._prefix = urlsplit(external_url).path.rstrip("/")
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Pass the request on, as one that was made below the prefix."""
        environ["SCRIPT_NAME"] = self._prefix
        path = environ["PATH_INFO"]
        if self._prefix and (path == self._prefix or path.startswith(f"{self._prefix}/")):
            environ["PATH_INFO"] = path.removeprefix(self._prefix) or "/"
        return self._application(environ, start_response)
