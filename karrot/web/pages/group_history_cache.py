"""Keeps the last weeks of each group for its page, so that the pipeline's tables are asked once a minute at most."""

from collections.abc import Callable

from karrot.clock import Clock
from karrot.event import GroupKey
from karrot.history import HistoryError, HourlyHistory
from karrot.web.pages.value_cache import TtlCache

AskPast = Callable[[str, str], HourlyHistory | None]
"""``(cluster, consumer)``; ``None`` where there are no tables. Raises `HistoryError`."""

_GOOD_FOR_MS = 60_000
_KEPT = 100

_Answer = HourlyHistory | HistoryError | None


class HistoryCache:
    """Answers of the last minute: a page that refreshes every few seconds must not query tables each time."""

    def __init__(self, ask: AskPast, clock: Clock) -> None:
        self._ask = ask
        self._answers: TtlCache[GroupKey, _Answer] = TtlCache(clock, size=_KEPT, ttl_ms=lambda _took: _GOOD_FOR_MS)

    def of(self, key: GroupKey) -> HourlyHistory | None:
        """The past of a group. Raises `HistoryError`."""
        answer = self._answers.get(key, lambda: self._answer(key))
        if isinstance(answer, HistoryError):
            raise answer
        return answer

    def _answer(self, key: GroupKey) -> _Answer:
        try:
            return self._ask(*key)
        except HistoryError as error:  # kept too: tables that cannot be read are not asked again at once
            return error
