"""Makes the JSON of the bodies that ``/burrow`` refused, so that you can see what came instead of an event."""

from datetime import datetime

import msgspec

from karrot.eventlog.base import Reject
from karrot.web.api.responses import instant


class RejectedBody(msgspec.Struct):
    """A refused body. ``detail`` is the sentence its sender got, ``body`` its first 4 KiB as far as they are text."""

    received_at: datetime | None
    code: str
    detail: str
    source: str
    body: str


class Rejects(msgspec.Struct):
    """The newest refused bodies, newest first. What is refused by its headers has none and is counted alone."""

    rejects: list[RejectedBody]


def reject_shape(reject: Reject) -> RejectedBody:
    """One refusal."""
    return RejectedBody(
        received_at=instant(reject.received_at_ms),
        code=reject.code,
        detail=reject.detail,
        source=reject.source.value,
        body=reject.body.decode(errors="replace"),
    )
