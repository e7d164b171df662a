"""Queries the pipeline's tables for the pages. DuckDB is imported only if there are tables, to save memory."""

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from karrot.clock import Clock
from karrot.known_problems import TABLES_PROBLEMS
from karrot.settings.types import Place
from karrot.web.context import PastUnknown

if TYPE_CHECKING:
    from karrot.history import History
    from karrot.history.results import HourlyHistory

_LONGEST_S = 1.5
"""How long a page waits for the pipeline's tables. The whole page then takes less than two seconds."""

_MOST_COPIED = 512 * 2**20
"""The most bytes that each worker copies of tables in S3."""

_KEPT_MS = 60_000
_KEPT_ERROR_MS = 10_000
_MOST_KEPT = 100

_log = structlog.get_logger(__name__)


class Past:
    """Queries the pipeline's tables for the pages, if there are any, at most once a minute. Any thread may call it."""

    def __init__(self, tables: Place, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock
        self._lock = threading.Lock()
        self._opened: History | None = None
        self._kept: dict[tuple[str, str], tuple[int, HourlyHistory | PastUnknown | None]] = {}

    def __call__(self, cluster: str, consumer: str) -> "HourlyHistory | PastUnknown | None":
        """See `AskPast`."""
        until_ms, found = self._kept.get((cluster, consumer), (0, None))
        if self._clock.boot_ms() >= until_ms:
            found = self._ask(cluster, consumer)
            lasts_ms = _KEPT_ERROR_MS if isinstance(found, PastUnknown) else _KEPT_MS
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[cluster, consumer] = (self._clock.boot_ms() + lasts_ms, found)
        return found

    def _ask(self, cluster: str, consumer: str) -> "HourlyHistory | PastUnknown | None":
        if isinstance(self._tables, Path) and not self._tables.is_dir():
            return None
        from karrot.history.results import HistoryError, HistoryFailed  # noqa: PLC0415 (see the docstring)

        try:
            history = self._history()
            with history.limited(_LONGEST_S):
                until = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
                return history.hourly(cluster, consumer, until=until)
        except HistoryFailed as error:
            _log.warning("the tables cannot be read", code=error.code, reason=str(error))
            return PastUnknown(str(error), error.code, TABLES_PROBLEMS[error.code])
        except (HistoryError, OSError) as error:
            return PastUnknown(str(error))

    def close(self) -> None:
        """Remove the copies of tables in S3."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()

    def _history(self) -> "History":
        from karrot.history import History  # noqa: PLC0415 (see the docstring)

        with self._lock:
            if self._opened is None:
                self._opened = History(self._tables, threads=1, memory="256MB", most_copied=_MOST_COPIED)
            return self._opened
