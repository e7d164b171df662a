"""Keeps the last weeks of each group for its page, so that the pipeline's tables are asked once a minute at most."""

import threading
from collections import OrderedDict
from collections.abc import Callable

from karrot.clock import Clock
from karrot.event import GroupKey
from karrot.history import HistoryError, HourlyHistory

AskPast = Callable[[str, str], HourlyHistory | None]
"""``(cluster, consumer)``; ``None`` where there are no tables. Raises `HistoryError`."""

_GOOD_FOR_MS = 60_000
_KEPT = 100

_Answer = HourlyHistory | HistoryError | None


class Pasts:
    """Answers of the last minute: a page that refreshes every few seconds must not query tables each time."""

    def __init__(self, ask: AskPast, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._kept: OrderedDict[GroupKey, tuple[int, _Answer]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, key: GroupKey) -> HourlyHistory | None:
        """The past of a group. Raises `HistoryError`."""
        with self._lock:
            asked_ms, answer = self._kept.get(key, (-_GOOD_FOR_MS, None))
        if self._clock.boot_ms() - asked_ms >= _GOOD_FOR_MS:
            answer = self._answer(key)
            with self._lock:
                self._kept[key] = (self._clock.boot_ms(), answer)
                self._kept.move_to_end(key)
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        if isinstance(answer, HistoryError):
            raise answer
        return answer

    def _answer(self, key: GroupKey) -> _Answer:
        try:
            return self._ask(*key)
        except HistoryError as error:
            return error
