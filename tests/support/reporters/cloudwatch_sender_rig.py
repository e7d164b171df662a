"""Runs the CloudWatch sender with the real client, and records its calls and pauses."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from karrot.reporters.cloudwatch.boto_client import open_client
from karrot.reporters.cloudwatch.data import Datum
from karrot.reporters.cloudwatch.sender import Sender
from karrot.settings.options import CloudWatch as Options
from support.reporters.cloudwatch_datum import make_datum

if TYPE_CHECKING:
    from types_boto3_cloudwatch.client import CloudWatchClient


def lag_data(count: int) -> list[Datum]:
    """Make the lags of this number of groups; the lag of each group is its number."""
    return [
        make_datum(dimensions=(("Cluster", "prod"), ("ConsumerGroup", f"group-{i}")), value=float(i))
        for i in range(count)
    ]


class SenderRig:
    """A sender. ``opened`` counts clients, ``statuses`` has those of calls, ``slept_s`` is the sum of the pauses.

    After ``calls_as_leader`` calls, the process does not lead any more.
    """

    def __init__(self, environ: Mapping[str, str], options: Options | None = None) -> None:
        self._environ = environ
        self._options = options or Options()
        self.opened = 0
        self.statuses: list[str] = []
        self.slept_s = 0.0
        self.calls_as_leader = 1_000_000

    @contextmanager
    def sender(self) -> Iterator[Sender]:
        sender = Sender(
            self._open,
            "Karrot",
            count=self._count,
            pause=self._pause,
            monotonic=lambda: 1000.0 + self.slept_s,
            may_call=lambda: len(self.statuses) < self.calls_as_leader,
        )
        try:
            yield sender
        finally:
            sender.close()

    def _open(self) -> "CloudWatchClient":
        self.opened += 1
        return open_client(self._options, self._environ)

    def _count(self, *, status: str) -> None:
        self.statuses.append(status)

    def _pause(self, seconds: float) -> None:
        self.slept_s += seconds
