"""Queries the pipeline's tables for a group's last weeks. To save memory, imports DuckDB only for tables."""

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import structlog

from karrot.clock import Clock
from karrot.runbooks_and_remedies import TABLES_PROBLEMS
from karrot.settings.types import Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from karrot.history import History
    from karrot.history.answers_and_errors import HourlyHistory

_LONGEST_S = 1.5
"""The seconds that a page waits for the pipeline's tables. A whole page takes less than two seconds."""

_MOST_COPIED = 512 * 2**20
"""The most bytes that each worker copies from tables in S3."""

_KEPT_MS = 60_000
_KEPT_ERROR_MS = 10_000
_MOST_KEPT = 100

_log = structlog.get_logger(__name__)


class NotReadable(NamedTuple):
    """The reason why the tables cannot be read. Some errors have a stable code and a remedy."""

    message: str
    code: str = ""
    remedy: str = ""


AskLastWeeks: TypeAlias = "Callable[[str, str], HourlyHistory | NotReadable | None]"
"""Queries ``(cluster, consumer) -> last weeks``. Returns ``None`` without tables."""


class LastWeeks:
    """The thread-safe `AskLastWeeks`, which queries the tables at most once a minute for a group."""

    def __init__(self, tables: Place, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock
        self._lock = threading.Lock()
        self._opened: History | None = None
        self._kept: dict[tuple[str, str], tuple[int, HourlyHistory | NotReadable | None]] = {}

    def __call__(self, cluster: str, consumer: str) -> "HourlyHistory | NotReadable | None":
        until_ms, found = self._kept.get((cluster, consumer), (0, None))
        if self._clock.boot_ms() >= until_ms:
            found = self._ask(cluster, consumer)
            lasts_ms = _KEPT_ERROR_MS if isinstance(found, NotReadable) else _KEPT_MS
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[cluster, consumer] = (self._clock.boot_ms() + lasts_ms, found)
        return found

    def _ask(self, cluster: str, consumer: str) -> "HourlyHistory | NotReadable | None":
        if isinstance(self._tables, Path) and not self._tables.is_dir():
            return None
        from karrot.history import History  # noqa: PLC0415 (see the docstring)
        from karrot.history.answers_and_errors import HistoryError, HistoryFailed  # noqa: PLC0415

        try:
            with self._lock:
                if self._opened is None:
                    self._opened = History(self._tables, threads=1, memory="256MB", most_copied=_MOST_COPIED)
            with self._opened.limited(_LONGEST_S):
                until = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
                return self._opened.hourly(cluster, consumer, until=until)
        except HistoryFailed as error:
            _log.warning("the tables cannot be read", code=error.code, reason=str(error))
            return NotReadable(str(error), error.code, TABLES_PROBLEMS[error.code])
        except (HistoryError, OSError) as error:
            return NotReadable(str(error))

    def close(self) -> None:
        """Remove the local copies of tables in S3."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
