"""Passes TCP connections on to a server, and can delay, swallow or cut them, as a faulty network does."""

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_CHUNK = 1 << 16
_POLL_S = 0.05


Passes = Callable[[bool, bytes, int], bool]


class FaultyProxy:
    """A proxy on ``port``, for one server on this machine.

    ``delay_s`` delays each chunk of data, in both directions. While ``swallows`` is set, no data pass and no new
    connection reaches the server, but every connection stays open: nobody gets an error. The data pass later, as with
    a network whose packets are repeated. ``passes`` is called with the direction (whether to the server), a chunk of
    data, and the number of the connection; if it returns false, the connection ends without the chunk.
    """

    def __init__(self, target_port: int) -> None:
        self.delay_s = 0.0
        self.passes: Passes = lambda _to_server, _data, _connection: True
        self._target = ("127.0.0.1", target_port)
        self._passing = threading.Event()
        self._passing.set()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port: int = self._listener.getsockname()[1]
        self._listener.settimeout(_POLL_S)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def swallows(self) -> bool:
        return not self._passing.is_set()

    @swallows.setter
    def swallows(self, swallows: bool) -> None:
        if swallows:
            self._passing.clear()
        else:
            self._passing.set()

    @property
    def connections(self) -> int:
        """The number of open connections to the server."""
        with self._lock:
            return len(self._pairs)

    def cut(self) -> None:
        """Close every connection at both ends."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            _end(pair)

    def close(self) -> None:
        """End every connection and every thread."""
        self._closed.set()
        self._passing.set()
        self.cut()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            thread = threading.Thread(target=self._serve, args=(client, len(self._threads)), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket, number: int) -> None:
        self._passing.wait()
        try:
            server = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        pair = (client, server)
        with self._lock:
            self._pairs.add(pair)
        to_client = threading.Thread(target=self._pass_on, args=(server, client, number), daemon=True)
        to_client.start()
        self._pass_on(client, server, number, to_server=True)
        to_client.join()
        with self._lock:
            self._pairs.remove(pair)
        client.close()
        server.close()

    def _pass_on(self, source: socket.socket, sink: socket.socket, number: int, *, to_server: bool = False) -> None:
        """Pass on all data of one direction until one end closes the connection."""
        with suppress(OSError):
            while not self._closed.is_set():
                if not select.select([source], [], [], _POLL_S)[0]:
                    continue
                data = source.recv(_CHUNK)
                if self.delay_s:
                    time.sleep(self.delay_s)
                self._passing.wait()  # the end of a connection does not pass a faulty network either
                if not data or not self.passes(to_server, data, number):
                    break
                sink.sendall(data)
        _end((source, sink))


def _end(pair: tuple[socket.socket, socket.socket]) -> None:
    for each in pair:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def faulty_proxy(target_port: int) -> Iterator[FaultyProxy]:
    """A proxy for a server on this machine."""
    proxy = FaultyProxy(target_port)
    try:
        yield proxy
    finally:
        proxy.close()
