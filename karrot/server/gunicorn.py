"""Starts gunicorn inside Karrot. A parent process holds the settings, and each worker process builds the service.

SIGHUP reads the settings again. New workers start with the new settings while the old workers finish. If the new
settings are wrong, the old settings stay. On SIGTERM the server finishes open requests and stops. On SIGINT the server
stops at once.
"""

import logging
import resource
import signal
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger

from karrot.server.gunicorn_worker import STOPS, ConnectionCounts, Worker
from karrot.server.request_serving import Application, EventEndpoint, Patience
from karrot.settings.types import Address

_GRACE_S = 8
_CONNECTIONS = 4096
_OTHER_FILES = 128
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the workers' heartbeat files; never on a disk that may stall


class ServedService(Protocol):
    """The service that a worker builds after the fork."""

    wsgi: Application
    events: EventEndpoint
    patience: Patience
    tls: Callable[[], ssl.SSLContext] | None
    """The certificate for a new connection. ``None`` without TLS."""

    def close(self) -> None:
        """Stop threads and release files. The worker calls this once, when it ends."""


class ServerPlan(Protocol):
    """What the parent process knows: how to build the service, and gunicorn's options."""

    def options(self) -> Mapping[str, Any]:
        """The options for gunicorn: bind, workers, threads, certfile, keyfile."""

    def reload(self) -> None:
        """Read the settings again. If they are wrong, log the problems and keep the old settings."""

    def build(self) -> ServedService:
        """Build the service. Called in each worker, after the fork."""


class PlainLogger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """Passes gunicorn's messages to the logging that Karrot has set up, without gunicorn's own handlers.

    The worker logs no requests: thousands of lines per second would only repeat the metrics.
    """

    def setup(self, cfg: Any) -> None:  # noqa: ARG002 - gunicorn calls it with this argument
        """Make both loggers propagate their records."""
        self.loglevel = logging.getLogger().level
        for log in (self.error_log, self.access_log):
            log.handlers.clear()
            log.setLevel(logging.NOTSET)
            log.propagate = True


class Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """The parent process. ``run()`` does not return, but ends with `SystemExit`."""

    def __init__(self, plan: ServerPlan) -> None:
        self._plan = plan
        self.service: ServedService | None = None
        """The service of this worker, from `load` on."""

        self.counts = ConnectionCounts()
        super().__init__()

    def load_config(self) -> None:
        """Set gunicorn's options from the plan, and the options that never change."""
        options = {
            "worker_class": Worker,
            "logger_class": PlainLogger,
            "graceful_timeout": _GRACE_S,
            "worker_connections": _connections(),
            "control_socket_disable": True,
            "worker_tmp_dir": str(_SHARED_MEMORY) if _SHARED_MEMORY.is_dir() else None,
            "pre_fork": lambda _server, _worker: signal.pthread_sigmask(signal.SIG_BLOCK, STOPS),
            "child_exit": lambda _server, worker: self.counts.leave(worker.age),
            "worker_exit": lambda _server, worker: worker.app.close(),
            "proc_name": "karrot",
            **self._plan.options(),
        }
        for name, value in options.items():
            self.cfg.set(name, value)

    def load(self) -> Application:
        """Build the service of this worker, and return its WSGI application. A worker calls this after the fork."""
        self.service = self._plan.build()
        return self.service.wsgi

    def reload(self) -> None:
        """Read the settings again, on SIGHUP in the parent process."""
        self._plan.reload()
        self.load_default_config()
        self.load_config()

    def close(self) -> None:
        """Close the service, when a worker ends."""
        if self.service is not None:
            self.service.close()


def refuse_taken_port(address: Address) -> None:
    """Find out whether the address is free, because gunicorn would try again for some time. Raises `OSError`."""
    host, port = address
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise OSError(
                f"cannot listen on {address}: {error.strerror}; choose another address with --bind HOST:PORT "
                "or KARROT_BIND"
            ) from error


def _connections() -> int:
    """The most connections that a worker may have. With more connections than open files, every accept would fail.

    Many systems allow 1,024 open files by default and more on request. So this function first raises that limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _CONNECTIONS + _OTHER_FILES
    if resource.RLIM_INFINITY != soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return _CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(_CONNECTIONS, soft - _OTHER_FILES))
