"""What the pages of one worker share."""

from dataclasses import dataclass
from typing import cast

from flask import current_app
from markupsafe import Markup

from karrot.web.context import Site
from karrot.web.pages.cache import Again
from karrot.web.pages.compression import CompressedPage
from karrot.web.pages.group_snapshot import Board
from karrot.web.pages.history import Pasts
from karrot.web.pages.newest import Newest
from karrot.web.pages.recent_events import Trails

__all__ = ["EXTENSION", "Shared", "shared"]

EXTENSION = "karrot-pages"


@dataclass(frozen=True, slots=True)
class Shared:
    """One of each for all readers of a worker."""

    board: Board
    trails: Trails
    lines: Newest[Markup]
    pasts: Pasts
    again: Again[CompressedPage]

    @classmethod
    def over(cls, site: Site) -> "Shared":
        """Made once per application."""
        board = Board(site.log, site.clock, stale_after_ms=site.stale_after_ms)
        return cls(board, Trails(), Newest(), Pasts(site.past, site.clock), Again(site.clock))


def shared() -> Shared:
    """Those of the current request's application."""
    return cast("Shared", current_app.extensions[EXTENSION])
