"""Holds what the page requests of one worker share: the ranked groups and the caches."""

from dataclasses import dataclass
from typing import cast

from flask import current_app
from markupsafe import Markup

from karrot.event import GroupKey
from karrot.web.context import WebContext
from karrot.web.negotiation import CompressedPage
from karrot.web.pages.group_history_cache import HistoryCache
from karrot.web.pages.lag_trend import Trails
from karrot.web.pages.live_groups import LiveGroups
from karrot.web.pages.value_cache import ThrottledCache, VersionedCache

EXTENSION = "karrot-pages"


@dataclass(frozen=True, slots=True)
class PageCaches:
    """One of each for an application.

    ``rows`` are the cells of the list that change with a group's newest event, by the log's id and the group.
    ``pages`` are pages of the list of groups, by what was asked for.
    """

    groups: LiveGroups
    trails: Trails
    rows: VersionedCache[tuple[str, GroupKey], Markup]
    histories: HistoryCache
    pages: ThrottledCache[str, CompressedPage]

    @classmethod
    def over(cls, context: WebContext) -> "PageCaches":
        """Empty caches over a web context."""
        return cls(
            groups=LiveGroups(context.log, context.clock, stale_after_ms=context.stale_after_ms),
            trails=Trails(),
            rows=VersionedCache(),
            histories=HistoryCache(context.past, context.clock),
            pages=ThrottledCache(context.clock),
        )


def caches() -> PageCaches:
    """Those of the current request's application."""
    return cast("PageCaches", current_app.extensions[EXTENSION])
