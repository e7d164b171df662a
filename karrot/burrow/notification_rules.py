"""Decides whether a verdict causes a notification, and which one, by the rules of Burrow's notifiers.

Source: v1.9.5, ``core/internal/notifier/coordinator.go``.
"""

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

from karrot.event import OpenIncident, Status


@dataclass(frozen=True, slots=True)
class NotifierSettings:
    """One ``[notifier.X]`` section with Burrow's defaults.

    Times are in seconds, and ``send_interval`` defaults to ``interval``.
    """

    threshold: int = Status.WARN
    interval: float = 60
    send_interval: float | None = None
    send_close: bool = False
    send_once: bool = False

    @property
    def pause_ms(self) -> float:
        """Two notifications of an open incident must be more than this number of milliseconds apart."""
        return 1000 * (self.interval if self.send_interval is None else self.send_interval)


class NameFilter(NamedTuple):
    """Chooses names by regular expressions. As in Burrow, an expression need not match the whole name.

    A name is chosen if it matches all of ``allow`` and none of ``deny``.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    @classmethod
    def of(cls, allow: re.Pattern[str] | None, deny: re.Pattern[str] | None) -> Self:
        return cls(*(() if each is None else (each.pattern,) for each in (allow, deny)))

    def has(self, name: str) -> bool:
        return all(re.search(each, name) for each in self.allow) and not any(
            re.search(each, name) for each in self.deny
        )


class SentNotification(NamedTuple):
    incident: OpenIncident | None
    is_close: bool


@dataclass(slots=True)
class NotifiedGroup:
    """What the notifier remembers of one group."""

    incident: OpenIncident | None = None
    last_open_ms: int | None = None


def notify(
    group: NotifiedGroup,
    status: Status,
    now_ms: int,
    settings: NotifierSettings,
    new_id: Callable[[], uuid.UUID],
) -> SentNotification | None:
    """Process a verdict on a group: update the group's memory and return the notification to send, if any.

    Burrow ignores whether the request succeeds, so this function does too.
    """
    if group.incident is None and status > Status.OK:
        group.incident = OpenIncident(str(new_id()), now_ms)
    incident = group.incident
    if status is Status.OK:
        group.incident = None
        if incident is not None and settings.send_close:
            group.last_open_ms = None
            return SentNotification(incident, is_close=True)
    if status < settings.threshold or (settings.send_once and group.last_open_ms is not None):
        return None
    if group.last_open_ms is not None and abs(now_ms - group.last_open_ms) <= settings.pause_ms:
        return None
    group.last_open_ms = now_ms
    return SentNotification(incident, is_close=False)
