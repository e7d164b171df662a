"""A fake Burrow that restarts, and its REST API meanwhile."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit

from karrot.event import GroupKey
from support.burrow.burrow_storage import Storage
from support.burrow.fake.fake_burrow import HISTORY_SECONDS, FakeBurrow
from support.burrow.fake.rest_api import RestAnswer, RestApi
from support.burrow.fake.simulated_kafka import Record


class OutageState(Enum):
    """The state of Burrow's HTTP server: it does not listen, answers ``STARTING``, or answers ``READY``."""

    DOWN = "down"
    STARTING = "starting"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Outage:
    """The three steps of a restart, in simulated seconds.

    ``down``: Burrow does not listen. ``starting``: it listens, is not ready and lists nothing. ``loading``: it is ready
    and lists topics but no groups. Then each group appears with its next commit.
    """

    down: float = 1.0
    starting: float = 1.0
    loading: float = 5.0


class RestartableBurrow(FakeBurrow):
    """The fake Burrow with restarts, which happen at the last simulated time."""

    _listens_at = _ready_at = _loaded_at = -HISTORY_SECONDS

    def state(self, now_ms: int) -> OutageState:
        """The state of the HTTP server at a time."""
        with self.at(now_ms):
            if self._at < self._listens_at:
                return OutageState.DOWN
            return OutageState.STARTING if self._at < self._ready_at else OutageState.READY

    def restart(self, outage: Outage = Outage()) -> None:
        """Restart Burrow with empty storage. It evaluates nothing in its first 60 seconds."""
        with self._one_at_a_time:
            self._listens_at = self._at + outage.down
            self._ready_at = self._listens_at + outage.starting
            self._loaded_at = self._ready_at + outage.loading
            self._storages = {cluster: Storage() for cluster in self._world}
            self._agenda = [each for each in self._agenda if each[2] not in (self._refresh_groups, self._read_log_ends)]
            heapq.heapify(self._agenda)
            self._do_at(self._ready_at, self._read_log_ends)
            self._start_notifier(self._listens_at + self.settings.group_refresh)

    def _read(self, key: GroupKey, records: Iterable[Record], now_ms: int) -> None:
        if now_ms >= self._wall_ms(self._loaded_at):
            super()._read(key, records, now_ms)


class RestartableApi(RestApi):
    """The REST API of a Burrow that restarts. While it is down, connections break."""

    _burrow: RestartableBurrow

    def answer(self, target: str) -> RestAnswer:
        state = self._burrow.state(self._clock.wall_ms())
        if state is OutageState.DOWN:
            raise ConnectionAbortedError  # the closest to "not listening" for a socket that listens
        found = super().answer(target)
        is_ready_call = urlsplit(target).path == "/burrow/admin/ready"
        return (
            found._replace(status=503, body=b"STARTING") if is_ready_call and state is OutageState.STARTING else found
        )
