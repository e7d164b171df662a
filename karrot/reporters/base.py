"""The contract of a reporter: something that hands events on to one destination.

A reporter is a module with one function, named by an entry point of the group ``karrot.reporters``: it takes a
`Context` and returns a `PushReporter` (fed from the log by cursor) or a `PullReporter` (read when somebody scrapes).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from karrot.eventlog.base import EventLog, StoredEvent

__all__ = ["GROUP", "Context", "PullReporter", "PushReporter", "Reporter"]

GROUP = "karrot.reporters"
"""The entry-point group."""


@dataclass(frozen=True, slots=True)
class Context:
    """The world a reporter may use.

    ``settings`` are the ``KARROT_<NAME>_*`` values, prefix removed, in lower case, secrets read from their files.
    ``count`` adds to one of Karrot's shared counters.
    """

    name: str
    settings: Mapping[str, str]
    count: Callable[..., None]


@runtime_checkable
class PushReporter(Protocol):
    """Is handed every event at least once, in the order of the log."""

    def report(self, events: Sequence["StoredEvent"]) -> None:
        """Hand the events on. Returning moves the cursor; raising makes delivery try the same events again."""

    def close(self) -> None:
        """Release what is held; called once, after the last report."""


@runtime_checkable
class PullReporter(Protocol):
    """Is read when somebody asks."""

    def collector(self, log: "EventLog") -> "Collector":
        """A collector that reads the log at scrape time and keeps no metric state."""


Reporter = PushReporter | PullReporter
