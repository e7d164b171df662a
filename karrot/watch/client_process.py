"""Reads Kafka in a child process, because the Kafka client's C code can abort the process that it runs in.

librdkafka 2.16 can abort if requests of its admin client fail or time out, for example when a broker restarts. Such an
abort ends only the child: the poll fails, and the next poll starts another child.

Run as a program, this module is the child. The child ends with its parent, because its standard input closes.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from typing import Any, NamedTuple, cast

from karrot.event import FirstUnread, TopicPartition
from karrot.watch.cluster_interface import (
    PROPERTIES,
    Cluster,
    ClusterError,
    Description,
    Failure,
    Listing,
    NotConnected,
)

_DIED = "client_died"
_AGAIN = "and Karrot starts another one"
_ANSWER_S = 600.0
"""The seconds that the parent waits for an answer. The client's own timeouts are shorter, so a late child hangs."""

_CHECK_S = 0.5
_END_S = 5.0
_LONGEST_PAUSE_S = 30.0


class Stopped(Exception):  # noqa: N818 (the name describes the state, not an error of Karrot)
    """The parent was asked to stop while it waited for an answer."""


class _Child(NamedTuple):
    process: Popen[bytes]
    connection: "Connection[Any, Any]"


class ClientProcess:
    """Runs the `Cluster` from ``open_cluster`` in a child process. The first request starts the child.

    ``open_cluster`` is pickled by name, so it must be a module's function, or a ``partial`` of such a function. If
    ``stop`` is set, a method that waits for an answer raises `Stopped`.
    """

    def __init__(
        self,
        open_cluster: Callable[[], Cluster],
        stop: threading.Event | None = None,
        *,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_cluster = open_cluster
        self._stop = stop
        self._seconds = seconds
        self._child: _Child | None = None
        self._deaths = 0
        self._not_before = 0.0

    def check(self) -> None:
        """Open the cluster without a request. Raises `NotConnected` for wrong properties, but ignores other errors."""
        with suppress(ClusterError):
            answer = self._answer("")
            if isinstance(answer, Failure) and answer.reason == PROPERTIES:
                self.close()
                raise NotConnected(answer.text)

    def groups(self) -> Listing:
        return cast("Listing", self._ask("groups"))

    def describe(self, groups: Collection[str]) -> Mapping[str, Description | Failure]:
        return cast("Mapping[str, Description | Failure]", self._ask("describe", list(groups)))

    def committed(self, groups: Collection[str]) -> Mapping[str, Mapping[TopicPartition, int] | Failure]:
        return cast("Mapping[str, Mapping[TopicPartition, int] | Failure]", self._ask("committed", list(groups)))

    def log_ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        return cast("Mapping[TopicPartition, int | Failure]", self._ask("log_ends", list(places)))

    def log_starts(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int | Failure]:
        return cast("Mapping[TopicPartition, int | Failure]", self._ask("log_starts", list(places)))

    def first_unread(self, places: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, FirstUnread | Failure]:
        return cast("Mapping[TopicPartition, FirstUnread | Failure]", self._ask("first_unread", places))

    def partitions(self, topics: Collection[str]) -> Mapping[str, int]:
        return cast("Mapping[str, int]", self._ask("partitions", list(topics)))

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return cast("Mapping[str, str]", self._ask("topic_ids", list(topics)))

    def close(self) -> None:
        if self._child is not None:
            self._end(self._child)

    def _ask(self, request: str, *about: object) -> object:
        answer = self._answer(request, *about)
        if isinstance(answer, Failure):
            raise ClusterError(*answer)
        return answer

    def _answer(self, request: str, *about: object) -> object:
        child = self._child or self._start()
        try:
            child.connection.send((request, about))
            self._wait(child)
            answer = child.connection.recv()
        except (EOFError, OSError) as error:
            how = self._end(child)
            self._deaths += 1
            pause_s = 0.0 if self._deaths == 1 else min(_LONGEST_PAUSE_S, 2.0**self._deaths)
            self._not_before = self._seconds() + pause_s
            raise ClusterError(_DIED, f"the process with the Kafka client ended ({how}), {_AGAIN}") from error
        self._deaths = 0
        return answer

    def _wait(self, child: _Child) -> None:
        hangs_at = self._seconds() + _ANSWER_S
        while not child.connection.poll(_CHECK_S):
            if self._stop is not None and self._stop.is_set():
                raise Stopped
            if self._seconds() > hangs_at:
                raise EOFError  # the caller ends a child that hangs

    def _start(self) -> _Child:
        if self._seconds() < self._not_before:
            raise ClusterError(_DIED, f"the process with the Kafka client ended {self._deaths} times, {_AGAIN}")
        ours, its = Pipe()
        with its:
            try:
                process = Popen(  # noqa: S603 - this module
                    [sys.executable, "-P", "-m", "karrot.watch.client_process", str(its.fileno())],
                    stdin=PIPE,
                    stdout=DEVNULL,
                    pass_fds=[its.fileno()],
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                    start_new_session=True,  # Ctrl-C in a terminal stops only the parent, which ends the child
                )
            except OSError as error:
                raise ClusterError(_DIED, f"no process for the Kafka client can start: {error}") from error
        self._child = _Child(process, ours)
        with suppress(OSError):  # if the child has already ended, the first request fails
            ours.send(self._open_cluster)
        return self._child

    def _end(self, child: _Child) -> str:
        self._child = None
        child.connection.close()
        with suppress(OSError):
            child.process.stdin.close()  # type: ignore[union-attr]  # it is a pipe
        try:
            code = child.process.wait(_END_S)
        except TimeoutExpired:
            child.process.kill()
            code = child.process.wait()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def main() -> None:
    """Answer the parent's requests, one after the other, until the parent ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # systemd sends SIGTERM also to the child, but the parent ends it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    cluster: Cluster | None = None
    with suppress(EOFError, ConnectionError):
        open_cluster = connection.recv()
        while True:
            request, about = connection.recv()
            answer: object = None
            try:
                cluster = cluster or open_cluster()
                if request:
                    answer = getattr(cluster, request)(*about)
            except (ClusterError, NotConnected) as error:
                answer = Failure(error.reason, str(error))
            connection.send(answer)
    os._exit(0)  # librdkafka's threads have nothing to finish


def _end_with_parent() -> None:
    """End this process as soon as the parent has ended, also during a request."""
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
