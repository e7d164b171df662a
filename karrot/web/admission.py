"""Whether a request's body is worth waiting for, from its headers alone."""

from karrot.web import auth
from karrot.web.arriving import Head
from karrot.web.site import Site

__all__ = ["worth_reading"]


def worth_reading(site: Site, head: Head) -> bool:
    """Whether the application will read the announced body; what it refuses by the headers it answers without."""
    return (
        head.path.rstrip("/") == "/burrow"
        and head.length is not None
        and head.length <= site.max_body
        and auth.may_post(site.credentials, head.authorization)
    )
