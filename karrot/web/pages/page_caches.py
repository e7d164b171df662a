"""Holds the caches that the page requests of one worker share."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from flask import current_app
from markupsafe import Markup

from karrot.event import GroupKey
from karrot.web.context import PastUnknown, WebContext
from karrot.web.negotiation import CompressedPage
from karrot.web.pages.lag_trend import Trails
from karrot.web.pages.live_groups_ranking import LiveRanking
from karrot.web.pages.value_cache import ThrottledCache, TtlCache, VersionedCache

if TYPE_CHECKING:
    from karrot.history.results import HourlyHistory

EXTENSION = "karrot-pages"

_HISTORY_MS = 60_000
_NO_HISTORY_MS = 10_000
_HISTORIES = 100


@dataclass(frozen=True, slots=True)
class PageCaches:
    """The caches of one application.

    ``rows`` are the cells of the list that change only with a group's newest event. Their key is the log's id and the
    group. ``histories`` are the last weeks of groups, or for a shorter time the error message if the tables cannot be
    read. They are cached because a page that refreshes every few seconds must not query the tables each time. ``pages``
    are pages of the list of groups, by filter, order and page number.
    """

    groups: LiveRanking
    trails: Trails
    rows: VersionedCache[tuple[str, GroupKey], Markup]
    histories: TtlCache[GroupKey, "HourlyHistory | PastUnknown | None"]
    pages: ThrottledCache[str, CompressedPage]

    @classmethod
    def over(cls, context: WebContext) -> "PageCaches":
        """Empty caches for a web context."""
        return cls(
            groups=LiveRanking(context.log, context.clock),
            trails=Trails(),
            rows=VersionedCache(),
            histories=TtlCache(context.clock, size=_HISTORIES, ttl_ms=_history_ms),
            pages=ThrottledCache(context.clock),
        )


def _history_ms(made: "HourlyHistory | PastUnknown | None", _took_ms: int) -> int:
    return _NO_HISTORY_MS if isinstance(made, PastUnknown) else _HISTORY_MS


def caches() -> PageCaches:
    """The caches of the current request's application."""
    return cast("PageCaches", current_app.extensions[EXTENSION])
