"""Tells every worker which process leads, so that each scrape can show the resources of the same process."""

import mmap
import os
import threading
from functools import partial
from operator import itemgetter

from prometheus_client.process_collector import ProcessCollector


class LeaderProcess:
    """The process id of the leader, in memory that all workers share. Create it before the fork.

    A leader that is killed leaves its id behind. Until another worker leads, there is then no process with this id.
    """

    def __init__(self) -> None:
        self._shared = memoryview(mmap.mmap(-1, 8)).cast("q")

    @property
    def pid(self) -> int:
        """The process id. 0 if no worker of this service leads."""
        return self._shared[0]

    def hold(self, over: threading.Event) -> None:
        """Be the leader until ``over`` is set."""
        self._shared[0] = os.getpid()
        over.wait()
        if self._shared[0] == os.getpid():
            self._shared[0] = 0

    def collector(self) -> ProcessCollector:
        """A collector of the ``process_*`` metrics of the leader. Without a leader, it collects nothing."""
        return ProcessCollector(pid=partial(itemgetter(0), self._shared), registry=None)
