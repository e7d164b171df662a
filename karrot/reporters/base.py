"""Defines the interface of a reporter, which passes events on to one destination.

A reporter is a module with one function, which an entry point of the group ``karrot.reporters`` names. The function
takes a `Context` and returns one of three types. A `PushReporter` gets events from the log by cursor. A `PacedReporter`
also gets events by cursor, but sends only when a send is due. A `PullReporter` is read at each scrape.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from karrot.clock import Clock

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from karrot.event import GroupKey, Source
    from karrot.eventlog.base import EventLog, StoredEvent

GROUP = "karrot.reporters"
"""The name of the entry point group of reporters."""


@dataclass(frozen=True, slots=True)
class Context:
    """What Karrot gives to a reporter: the reporter's settings, and the functions that it may call.

    ``settings`` are the values of ``KARROT_<NAME>_*``. Their names are in lower case and have no prefix. Secrets are
    already read from their files. ``count`` adds to one of Karrot's shared counters. ``clock`` gives the time.
    ``log_time_ms`` gives the log's own time. Use it for the age of an event. ``remember(name, value)`` saves a note in
    the log. ``recall(name)`` reads the note, also in another process. It returns ``None`` if there is no such note.
    ``cut_off()`` returns the clusters whose Burrow reads no more commits: what it says of them is old.
    ``status_source(key)`` returns the source of a group's status, if it has one. Another source's verdict counts less.
    ``leads()`` says whether this process still leads. Ask before each of several calls to a destination: another
    replica may have sent the rest.
    """

    name: str
    settings: Mapping[str, str]
    count: Callable[..., None]
    clock: Clock
    log_time_ms: Callable[[], int]
    recall: Callable[[str], bytes | None]
    remember: Callable[[str, bytes], None]
    leads: Callable[[], bool] = lambda: True
    cut_off: Callable[[], frozenset[str]] = frozenset
    status_source: "Callable[[GroupKey], Source | None]" = lambda _: None


@runtime_checkable
class PushReporter(Protocol):
    """A reporter that gets every event at least once, in the order of the log."""

    def report(self, events: Sequence["StoredEvent"]) -> None:
        """Pass the events on. If this returns, the cursor moves. If it raises, the same events come again."""

    def close(self) -> None:
        """Release all resources. Karrot calls this once, after the last report."""


class Trouble(NamedTuple):
    """Why a send failed completely or partly. ``reason`` is stable, for the counter. The text is for people."""

    reason: str
    text: str


class Sending(NamedTuple):
    """The result of one send: the number of calls to the destination, and the trouble, if there was any."""

    calls: int
    trouble: Trouble | None = None


@runtime_checkable
class PacedReporter(Protocol):
    """A reporter that takes every event at least once, in the order of the log. It sends when a send is due.

    An event is *owed* from the moment when the reporter takes the event. It stops being owed when its values are sent,
    or need not be sent any more. The cursor stays below the oldest owed event.
    """

    def take(self, events: Sequence["StoredEvent"]) -> None:
        """Take events. This must not wait for the destination."""

    def due_in(self) -> float:
        """Seconds until `send` should be called. 0 or less means now."""

    def send(self) -> Sending:
        """Send the values of all owed events. An event whose values cannot be sent stays owed."""

    def owed(self, log_id: str) -> int | None:
        """The sequence number of the oldest owed event of that log."""

    def close(self) -> None:
        """Release all resources. Karrot calls this once, after a last `send`."""


@runtime_checkable
class Bounded(Protocol):
    """An optional part of a paced reporter: a limit on the events that it holds."""

    def full(self) -> bool:
        """Whether events must stay in the log for now. Delivery calls this before each `PacedReporter.take`."""


@runtime_checkable
class PullReporter(Protocol):
    """A reporter that Karrot reads at each scrape."""

    def collector(self, log: "EventLog") -> "Collector":
        """A collector. It reads the log at scrape time, and keeps no metric state."""


Reporter = PushReporter | PacedReporter | PullReporter
