"""A TCP server that answers each connection with the next script of bytes."""

import re
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

Script = Sequence[bytes]
"""The bytes to send on one connection before it is closed; ``b""`` waits until the other side closes."""


def http_response(body: bytes, status: str = "200 OK", headers: bytes = b"") -> Script:
    """Return a complete answer in Go's form, for a connection that is then closed."""
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n".encode()
    return [head + headers + b"\r\n" + body]


@contextmanager
def scripted_server(*scripts: Script) -> Iterator[tuple[str, list[bytes]]]:
    """Start the server; yield its address and the received requests."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, scripts, asked))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listener: socket.socket, scripts: Sequence[Script], asked: list[bytes]) -> None:
    for script in scripts:
        try:
            connection, _ = listener.accept()
        except OSError:  # the test is over
            return
        with connection:
            asked.append(_received(connection))
            _play(connection, script)


def _received(connection: socket.socket) -> bytes:
    """Return a request with its body, which a client may send apart from the head."""
    request = connection.recv(65_536)
    length = re.search(rb"\r\nContent-Length: (\d+)", request, re.IGNORECASE)
    while length and len(request.partition(b"\r\n\r\n")[2]) < int(length[1]) and (more := connection.recv(65_536)):
        request += more
    return request


def _play(connection: socket.socket, script: Script) -> None:
    try:
        for part in script:
            if part:
                connection.sendall(part)
            else:
                connection.recv(1)
    except OSError:
        return  # the other side closed before the end
