"""Compares the events that a sender, the event log, the reporters and the archive have after a time of faults."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

_START = '{"event_id":'


class Found(NamedTuple):
    """An event at one place. Each event that was sent has a consumer of its own."""

    event_id: str
    consumer: str


@dataclass(frozen=True)
class FoundEvents:
    """What each place has at the end. The sender sent no event twice."""

    acknowledged: Collection[str]
    log: Sequence[Found]
    reported: Sequence[Found]
    archived: Sequence[Found]

    def counts(self) -> dict[str, int]:
        """Return the number of events at each place, and of log ids. An event can be reported several times."""
        named = {
            "acknowledged": self.acknowledged,
            "stored": self.log,
            "reports": self.reported,
            "archived": self.archived,
        }
        return {name: len(found) for name, found in named.items()} | {
            "log ids": len({each.event_id.rpartition("-")[0] for each in self.log})
        }

    def broken_promises(self) -> Iterator[str]:
        """Yield a sentence for each promise that does not hold, with some of the events."""
        stored = Counter(each.consumer for each in self.log)
        for what, some in (
            ("acknowledged, but not in the log", set(self.acknowledged) - stored.keys()),
            ("in the log, but never reported", set(self.log) - set(self.reported)),
            ("in the log, but not in the archive", set(self.log) - set(self.archived)),
            ("twice in the log", _repeated(each.consumer for each in self.log)),
            ("twice in the archive", _repeated(each.consumer for each in self.archived)),
            (
                "one id for several events",
                _repeated(each.event_id for each in {*self.log, *self.reported, *self.archived}),
            ),
        ):
            if some:
                yield f"{what}: {len(some)}, such as {', '.join(map(str, islice(sorted(some), 3)))}"


def printed_events(said: Path) -> Iterator[Found]:
    """Yield the events that the reporter ``stdout`` printed completely. A killed process can leave a part of a line."""
    for line in said.read_text(errors="replace").splitlines():
        start = line.rfind(_START)
        if start >= 0 and line.endswith("}"):
            try:
                event = json.loads(line[start:])
            except ValueError:
                continue
            yield Found(event["event_id"], event["consumer"])


def _repeated(values: Iterable[str]) -> set[str]:
    return {value for value, times in Counter(values).items() if times > 1}
