"""Lets clients talk to the HTTP server of a worker over real sockets, without gunicorn and its processes."""

import asyncio
import io
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from json import dumps
from typing import Any

from werkzeug.wrappers import Response

from karrot.server.asgi import AsgiApplication
from karrot.server.http import HttpServer
from karrot.web import create_app, webhook
from support.web.website import Website, make_website

Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Any]]
LONG_S = 60
"""Longer than any test. A test that needs an end of a time sets that time."""


class Worker:
    """A worker of gunicorn that lives on."""

    alive = True
    ppid = os.getppid()

    def notify(self) -> None:
        """Nobody watches."""


def talk(
    *clients: Client,
    website: Website | None = None,
    application: Any = None,
    threads: int = 2,
    headers_s: float = LONG_S,
    body_s: float = LONG_S,
    answer_s: float = LONG_S,
    idle_s: float = LONG_S,
    most: int = 100,
    tls: Callable[[], ssl.SSLContext] | None = None,
    prepare: Callable[[HttpServer, AsgiApplication], object] = lambda _server, _app: None,
) -> list[Any]:
    """Serve each client on its own connection with Karrot's application, or another; return what they return."""

    async def serve_all() -> list[Any]:
        site = website or make_website(body_timeout=body_s)
        context = site.context
        app = AsgiApplication(context, application or create_app(context), threads=threads, answer_s=answer_s)
        server = HttpServer(
            app,
            Worker(),
            partial(webhook.refusal, context),
            partial(webhook.is_whole_event, webhook.paths(context)),
            headers_s=headers_s,
            body_s=body_s,
            idle_s=idle_s,
            most=most,
            tls=tls,
        )
        server.config.load()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            await server.startup([listener])
            prepare(server, app)

            async def serve(client: Client) -> Any:
                reader, writer = await asyncio.open_connection(*listener.getsockname())
                try:
                    return await client(reader, writer)
                finally:
                    writer.transport.abort()

            try:
                async with asyncio.timeout(60):
                    return list(await asyncio.gather(*map(serve, clients)))
            finally:
                asyncio.get_running_loop().remove_reader(listener.fileno())
                for connection in list(server.server_state.connections):
                    connection.transport.close()
                while server.server_state.tasks or server.server_state.connections:  # noqa: ASYNC110 - two sets of uvicorn
                    await asyncio.sleep(0.001)
                app.close()

    return asyncio.run(serve_all())


def said_to(*pieces: bytes, ends: bool = True, **how: Any) -> bytes:
    """Send the pieces, each on its own, then nothing more; return everything that the server sends.

    If the client does not end, the server does.
    """

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        if ends:
            writer.write_eof()
        return await reader.read()

    (said,) = talk(client, **how)
    return bytes(said)


class SocketClient:
    """Speaks to a website's HTTP server as Flask's test client speaks to its application: only what tests use of it."""

    def __init__(self, website: Website) -> None:
        self._website = website

    def open(
        self,
        path: str,
        *,
        method: str = "GET",
        data: bytes = b"",
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        environ_overrides: Mapping[str, Any] | None = None,
    ) -> Response:
        """Send one request. A body that must not be read is not sent."""
        overrides = environ_overrides or {}
        body = data if json is None else dumps(json).encode()
        if isinstance(stream := overrides.get("wsgi.input"), io.BytesIO):
            body = stream.getvalue()
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Type: {content_type}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if "Transfer-Encoding" not in (headers or {}) and (stream is None or "CONTENT_LENGTH" in overrides):
            lines.append(f"Content-Length: {overrides.get('CONTENT_LENGTH', len(body))}")
        said = said_to("\r\n".join([*lines, "", ""]).encode("latin-1") + body, website=self._website, ends=False)
        head, _, answer = said.partition(b"\r\n\r\n")
        status, *fields = head.decode("latin-1").split("\r\n")
        pairs = [(name, value.strip()) for name, _, value in (field.partition(":") for field in fields)]
        return Response(answer, int(status.split()[1]), pairs)

    def post(self, path: str, **how: Any) -> Response:
        """Post a body."""
        return self.open(path, method="POST", **how)


def over_sockets(website: Website) -> Website:
    """The same website, with a client that speaks to the HTTP server."""
    return website._replace(client=SocketClient(website))  # type: ignore[arg-type]
