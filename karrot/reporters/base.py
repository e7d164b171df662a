"""The contract of a reporter, which passes events on to one destination.

A reporter is a module with one function, named by an entry point of the group ``karrot.reporters``: it takes a
`Context` and returns a `PushReporter` (fed from the log by cursor), a `PacedReporter` (fed the same way, sends when it
is due) or a `PullReporter` (read at each scrape).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from karrot.clock import Clock

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from karrot.eventlog.base import EventLog, StoredEvent


@dataclass(frozen=True, slots=True)
class Context:
    """The world a reporter may use.

    ``settings`` are the ``KARROT_<NAME>_*`` values, prefix removed, in lower case, secrets read from their files.
    ``count`` adds to one of Karrot's shared counters. ``clock`` tells the time, ``log_time_ms`` the log's own, for the
    age of an event. ``remember(name, value)`` keeps a note in the log, ``recall(name)`` finds it, also in another
    process; ``None`` where there is none.
    """

    name: str
    settings: Mapping[str, str]
    count: Callable[..., None]
    clock: Clock
    log_time_ms: Callable[[], int]
    recall: Callable[[str], bytes | None]
    remember: Callable[[str, bytes], None]


@runtime_checkable
class PushReporter(Protocol):
    """Is handed every event at least once, in the order of the log."""

    def report(self, events: Sequence["StoredEvent"]) -> None:
        """Hand the events on. Returning moves the cursor; raising makes delivery try the same events again."""

    def close(self) -> None:
        """Release what is held; called once, after the last report."""


class Trouble(NamedTuple):
    """Why a send failed, or failed in part: a stable ``reason`` for the counter, and a sentence for people."""

    reason: str
    text: str


class Sending(NamedTuple):
    """What came of one send: how often the destination was asked, and the trouble there was, if any."""

    calls: int
    trouble: Trouble | None = None


@runtime_checkable
class PacedReporter(Protocol):
    """Takes every event at least once, in the order of the log, and sends what they amount to when it is due.

    An event owes a send from the moment it is taken until what it says was sent, or need not be sent any more. The
    cursor stays below the oldest that owes one.
    """

    def take(self, events: Sequence["StoredEvent"]) -> None:
        """Take events in. Must not wait for the destination."""

    def due_in(self) -> float:
        """Seconds until `send` should be called; 0 or less: now."""

    def send(self) -> Sending:
        """Send what is owed. What could not be sent stays owed."""

    def owed(self, log_id: str) -> int | None:
        """The number of the oldest event of that log which still owes a send."""

    def close(self) -> None:
        """Release what is held; called once, after a last `send`."""


@runtime_checkable
class Bounded(Protocol):
    """What a paced reporter may have as well: a bound on what it holds."""

    def full(self) -> bool:
        """Whether events must stay in the log for now. It is asked before each `PacedReporter.take`."""


@runtime_checkable
class PullReporter(Protocol):
    """Is read at each scrape."""

    def collector(self, log: "EventLog") -> "Collector":
        """A collector that reads the log at scrape time and keeps no metric state."""


Reporter = PushReporter | PacedReporter | PullReporter
