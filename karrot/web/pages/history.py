"""The weeks before, for the page of a group: whoever has the tables tells, and is asked once a minute at most."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Protocol

from karrot.clock import Clock
from karrot.event import GroupKey

__all__ = ["AskPast", "GroupHistoryPart", "PastDays", "PastHour", "PastIncident", "PastUnknown", "Pasts"]


class PastHour(Protocol):
    """One hour in which something was said; ``status`` is the worst of it as Burrow's number."""

    @property
    def at(self) -> datetime: ...  # noqa: D102
    @property
    def lag_max(self) -> float | None: ...  # noqa: D102
    @property
    def lag_seconds(self) -> float | None: ...  # noqa: D102
    @property
    def status(self) -> float | None: ...  # noqa: D102


class PastIncident(Protocol):
    """One incident; without an end it was open when the tables were made."""

    @property
    def started_at(self) -> datetime: ...  # noqa: D102
    @property
    def ended_at(self) -> datetime | None: ...  # noqa: D102
    @property
    def ended_by(self) -> str | None: ...  # noqa: D102
    @property
    def worst_status(self) -> str | None: ...  # noqa: D102
    @property
    def peak_lag(self) -> int | None: ...  # noqa: D102
    @property
    def topics(self) -> Sequence[str]: ...  # noqa: D102


class PastDays(Protocol):
    """Days in a row (UTC), both ends included."""

    @property
    def first(self) -> date: ...  # noqa: D102
    @property
    def last(self) -> date: ...  # noqa: D102


class GroupHistoryPart(Protocol):
    """A group between two moments; incidents the newest first. On ``missing`` days its incidents are not known."""

    @property
    def start(self) -> datetime: ...  # noqa: D102
    @property
    def end(self) -> datetime: ...  # noqa: D102
    @property
    def hours(self) -> Sequence[PastHour]: ...  # noqa: D102
    @property
    def incidents(self) -> Sequence[PastIncident]: ...  # noqa: D102
    @property
    def missing(self) -> Sequence[PastDays]: ...  # noqa: D102


class PastUnknown(Exception):  # noqa: N818 (names what is missing)
    """There are tables, and they could not be read; the text is a sentence."""


AskPast = Callable[[str, str], GroupHistoryPart | None]
"""``(cluster, consumer)``; ``None`` where there are no tables. Raises `PastUnknown`."""

_GOOD_FOR_MS = 60_000
_KEPT = 100

_Answer = GroupHistoryPart | PastUnknown | None


class Pasts:
    """Answers of the last minute: a page that refreshes every few seconds must not query tables each time."""

    def __init__(self, ask: AskPast, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._kept: OrderedDict[GroupKey, tuple[int, _Answer]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, key: GroupKey) -> GroupHistoryPart | None:
        """The past of a group. Raises `PastUnknown`."""
        with self._lock:
            asked_ms, answer = self._kept.get(key, (-_GOOD_FOR_MS, None))
        if self._clock.boot_ms() - asked_ms >= _GOOD_FOR_MS:
            answer = self._answer(key)
            with self._lock:
                self._kept[key] = (self._clock.boot_ms(), answer)
                self._kept.move_to_end(key)
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        if isinstance(answer, PastUnknown):
            raise answer
        return answer

    def _answer(self, key: GroupKey) -> _Answer:
        try:
            return self._ask(*key)
        except PastUnknown as error:
            return error
