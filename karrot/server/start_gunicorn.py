"""Starts gunicorn from Karrot: a parent process keeps the settings, and each worker builds the service.

SIGHUP reads the settings again. New workers start with the new settings while the old workers finish. If the new
settings are wrong, the old settings stay. On SIGTERM, the server finishes open requests and stops. On SIGINT, the
server stops at once.
"""

import asyncio
import gc
import logging
import mmap
import os
import resource
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

import structlog
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger
from gunicorn.workers.base import Worker as GunicornWorker
from prometheus_client.process_collector import ProcessCollector

from karrot.server.asgi import AsgiApplication
from karrot.server.http import HttpServer
from karrot.settings.types import Address
from karrot.web import webhook
from karrot.web.context import WebContext

_GRACE_S = 8
_CONNECTIONS = 4096
_BACKLOG = 4096  # Linux's own limit since 5.4; gunicorn's 2,048 fill within one long turn of a worker
_OTHER_FILES = 128
_SWITCH_S = 0.0002
_COLLECT = (5000, 50, 10)
# A new worker blocks these signals from the fork until it has its own handlers. The parent's handlers would lose them.
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
os.register_at_fork(after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS))
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the workers' heartbeat files; never on a disk that may stall

_log = structlog.get_logger(__name__)


class ServedService(Protocol):
    """The service that a worker builds after the fork."""

    context: WebContext
    wsgi: Any
    header_timeout: float
    tls: Callable[[], ssl.SSLContext] | None
    """Returns the TLS context with the newest certificate. ``None`` without TLS."""

    def close(self) -> None:
        """Stop threads and release files. The worker calls this method once, at its end."""


class Worker(GunicornWorker):  # type: ignore[misc]  # gunicorn has no types
    """Builds and serves the service in a worker process. gunicorn's handlers get the signals, and uvicorn's do not."""

    def init_process(self) -> None:
        threading.excepthook = end_worker  # before the service starts threads
        self.booted = True  # if a worker fails before it has booted, gunicorn also ends all others
        super().init_process()

    def init_signals(self) -> None:
        """Install gunicorn's handlers, and unblock the signals that arrived since the fork."""
        super().init_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)

    def run(self) -> None:
        put_events_first()
        service: ServedService = self.app.service
        application = AsgiApplication(service.context, service.wsgi, threads=self.cfg.threads)
        server = HttpServer(
            application,
            self,
            partial(webhook.refusal, service.context),
            partial(webhook.is_whole_event, webhook.paths(service.context)),
            headers_s=service.header_timeout,
            body_s=service.context.body_timeout,
            tls=service.tls,
            most=self.cfg.worker_connections,
            grace_s=self.cfg.graceful_timeout,
        )
        asyncio.run(server.serve(self.sockets))
        application.close()


class PlainLogger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """Passes gunicorn's messages to the logging that Karrot has set up, without gunicorn's own handlers.

    The worker logs no requests, because thousands of lines per second would only repeat the metrics.
    """

    def setup(self, cfg: Any) -> None:  # noqa: ARG002 - gunicorn calls it with this argument
        """Make both loggers propagate their records."""
        self.loglevel = logging.getLogger().level
        for log in (self.error_log, self.access_log):
            log.handlers.clear()
            log.setLevel(logging.NOTSET)
            log.propagate = True


class Parent(Arbiter):  # type: ignore[misc]  # gunicorn has no types
    """Keeps the number of workers. If a worker cannot be started, the other workers go on. gunicorn would end them."""

    def spawn_worker(self) -> None:
        try:
            super().spawn_worker()
        except OSError as error:
            _log.error("a worker cannot be started now", code="worker_not_started", reason=str(error))


class Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """Runs the parent process. ``run()`` does not return, but raises `SystemExit`.

    A subclass has three methods. ``options`` returns gunicorn's bind, workers, threads, certfile and keyfile.
    ``read_settings`` reads the settings again. ``build`` makes the service in each worker, after the fork.
    """

    service: ServedService | None = None
    """The service of this worker. ``None`` before `load`."""

    def run(self) -> None:
        Parent(self).run()

    def load_config(self) -> None:
        options = {
            "worker_class": Worker,
            "logger_class": PlainLogger,
            "graceful_timeout": _GRACE_S,
            "worker_connections": _connections(),
            "backlog": _BACKLOG,
            "control_socket_disable": True,
            "worker_tmp_dir": str(_SHARED_MEMORY) if _SHARED_MEMORY.is_dir() else None,
            "pre_fork": lambda _server, _worker: signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS),
            "worker_exit": lambda _server, worker: worker.app.close(),
            "proc_name": "karrot",
            **self.options(),
        }
        for name, value in options.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """Build the service of this worker, and return its WSGI application. Called in the worker, after the fork."""
        self.service = self.build()
        return self.service.wsgi

    def reload(self) -> None:
        """Read the settings again, on SIGHUP in the parent process."""
        self.read_settings()
        self.load_default_config()
        self.load_config()

    def close(self) -> None:
        if self.service is not None:
            self.service.close()


class LeaderProcess:
    """Shares the process id of the leader among all workers. Create this object before the fork.

    After a leader was killed, its id stays until another worker leads, although no process has this id.
    """

    def __init__(self) -> None:
        self._shared = memoryview(mmap.mmap(-1, 8)).cast("q")

    @property
    def pid(self) -> int:
        """The process id of the leader. 0 if no worker of this service leads."""
        return self._shared[0]

    def hold(self, over: threading.Event) -> None:
        self._shared[0] = os.getpid()
        over.wait()
        if self._shared[0] == os.getpid():
            self._shared[0] = 0

    def collector(self) -> ProcessCollector:
        """Return a collector of the leader's ``process_*`` metrics. Without a leader, there are no metrics."""
        return ProcessCollector(pid=partial(itemgetter(0), self._shared), registry=None)


def refuse_taken_port(address: Address) -> None:
    """Raise `OSError` if the address is in use. Without this check, gunicorn would retry for some time."""
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
    """The most connections of a worker. Beyond the limit of open files, every accept would fail.

    Many systems allow 1,024 open files by default and more on request. So this function first raises the soft limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _CONNECTIONS + _OTHER_FILES
    if resource.RLIM_INFINITY != soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return _CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(_CONNECTIONS, soft - _OTHER_FILES))


def end_worker(failed: threading.ExceptHookArgs) -> None:
    """End this worker, because without the failed thread it would fail silently. gunicorn starts another worker."""
    if failed.exc_type is not SystemExit:  # a thread raises SystemExit to end normally
        os.kill(os.getpid(), signal.SIGTERM)
        name = failed.thread.name if failed.thread else ""
        _log.critical(
            "a thread failed, so this worker ends",
            exc_info=failed[:3],
            code="thread_failed",
            task=name,
        )


def put_events_first() -> None:
    """Configure Python so that threads for pages and scrapes block the event loop only for a short time.

    To serve an event, the loop needs Python's interpreter lock dozens of times. A computing thread releases the lock
    after the switch interval, but a garbage collection releases the lock only at its end. So this function excludes the
    application's objects from collections and makes collections rarer. Most objects of a scrape need no collection.
    """
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()
    gc.set_threshold(*_COLLECT)
