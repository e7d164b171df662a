"""Collects counter increments and refused bodies until the next commit, in bounded memory. Never blocks for long."""

import threading
from collections import Counter as Sums
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from karrot.eventlog.base import Counter, Reject

KEPT_REJECTS = 1000
"""The most refused bodies that are kept in memory, and in a log. Beyond this number, the oldest are dropped."""

CounterKey = tuple[str, tuple[tuple[str, str], ...]]
"""A counter's name and its labels, sorted."""


class PendingWrites(NamedTuple):
    """The counter increments and rejects that one commit takes out of the buffer."""

    counts: dict[CounterKey, float]
    rejects: list[Reject]


class HighWater:
    """Makes sure that a counter that was shown never decreases.

    During a commit, some increments are in neither buffer nor log. Prometheus would take a smaller value for a reset.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._log_id = ""
        self._shown: dict[CounterKey, float] = {}

    def raised(self, log_id: str, sums: Mapping[CounterKey, float]) -> dict[CounterKey, float]:
        """The sums, each at least as high as the sum shown before. For another log, the sums start again."""
        with self._lock:
            if log_id != self._log_id:
                self._log_id, self._shown = log_id, {}
            self._shown |= {key: max(value, self._shown.get(key, value)) for key, value in sums.items()}
            return dict(self._shown)


class WriteBuffer:
    """Counter increments and rejects of this process that are not committed yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Sums[CounterKey] = Sums()
        self._rejects: deque[Reject] = deque(maxlen=KEPT_REJECTS)

    def count(self, name: str, by: float, labels: dict[str, str]) -> None:
        """Add to a counter."""
        key = (name, tuple(sorted(labels.items())))
        with self._lock:
            self._counts[key] += by  # type: ignore[assignment]  # typeshed: a Counter counts in int

    def reject(self, reject: Reject) -> None:
        """Keep a refused body. Beyond the limit, the oldest body is dropped."""
        with self._lock:
            self._rejects.append(reject)

    def take(self) -> PendingWrites:
        """Take everything out of the buffer. The caller commits it, or puts it back with `back`."""
        with self._lock:
            taken = PendingWrites(dict(self._counts), list(self._rejects))
            self._counts.clear()
            self._rejects.clear()
        return taken

    def back(self, pending: PendingWrites) -> None:
        """Put back writes that could not be committed, for the next commit."""
        with self._lock:
            for key, by in pending.counts.items():
                self._counts[key] += by  # type: ignore[assignment]
            later = list(self._rejects)
            self._rejects.clear()
            self._rejects.extend([*pending.rejects, *later])

    def counters(self) -> list[Counter]:
        """The increments in the buffer, as counters."""
        with self._lock:
            return [Counter(name, labels, value) for (name, labels), value in self._counts.items()]

    def rejects(self) -> list[Reject]:
        """The refused bodies in the buffer, oldest first."""
        with self._lock:
            return list(self._rejects)

    def __bool__(self) -> bool:
        return bool(self._counts or self._rejects)
