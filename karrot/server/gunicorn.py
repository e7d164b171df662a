"""Starts gunicorn from inside Karrot: one parent that holds the settings, workers that each build the service.

SIGHUP reads the settings again: new workers start with the new ones while the old finish; where they are wrong, the
old ones stay. SIGTERM and SIGINT drain.
"""

import logging
import os
import resource
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger

from karrot.server.gunicorn_worker import Patience, Worker

_KEEP_ALIVE_S = 75
_GRACE_S = 8
_CONNECTIONS = 4096
_OTHER_FILES = 128
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the workers' heartbeat files; never on a disk that may stall


class ServedService(Protocol):
    """What a worker builds after the fork."""

    @property
    def wsgi(self) -> Callable[..., Any]:
        """The WSGI application."""

    @property
    def patience(self) -> Patience:
        """How long clients are waited for."""

    def close(self) -> None:
        """Stop threads and release files; called once, when the worker ends."""


class ServerPlan(Protocol):
    """What the parent knows: how to build the service, and what gunicorn has to be told."""

    def options(self) -> Mapping[str, Any]:
        """What gunicorn has to know: bind, workers, threads, certfile, keyfile."""

    def reload(self) -> None:
        """Read the settings again; keep the old ones, and say so, where the new ones are wrong."""

    def build(self) -> ServedService:
        """Build the service. Called in each worker, after the fork."""


class PlainLogger(Logger):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's messages through the logging that is set up already, not handlers of its own."""

    def setup(self, cfg: Any) -> None:  # noqa: ARG002 - gunicorn calls it so
        """Let both loggers hand their records on."""
        self.loglevel = logging.getLogger().level
        for log in (self.error_log, self.access_log):
            log.handlers.clear()
            log.setLevel(logging.NOTSET)
            log.propagate = True

    def access(self, resp: Any, req: Any, environ: Any, request_time: Any) -> None:
        """No line per request: thousands a second would say what the metrics say."""


class Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """The parent process. ``run()`` does not return: it ends with `SystemExit`."""

    def __init__(self, plan: ServerPlan) -> None:
        self._plan = plan
        self._service: ServedService | None = None
        super().__init__()

    @property
    def patience(self) -> Patience:
        """For the worker's event loop."""
        if self._service is None:
            self._service = self._plan.build()
        return self._service.patience

    def load_config(self) -> None:
        """Tell gunicorn what the plan says, and what never changes."""
        # gunicorn reads it with each request, and answers 500 to every path that does not begin like it.
        os.environ.pop("SCRIPT_NAME", None)
        options = {
            "worker_class": Worker,
            "logger_class": PlainLogger,
            "keepalive": _KEEP_ALIVE_S,  # longer than Burrow's interval: closing an idle connection loses its next POST
            "graceful_timeout": _GRACE_S,
            "worker_connections": _connections(),
            "control_socket_disable": True,
            "forwarder_headers": "",  # where Karrot is reached is a setting, not what a client says
            "worker_tmp_dir": str(_SHARED_MEMORY) if _SHARED_MEMORY.is_dir() else None,
            "worker_exit": lambda _server, worker: worker.app.close(),
            "proc_name": "karrot",
            **self._plan.options(),
        }
        for name, value in options.items():
            self.cfg.set(name, value)

    def load(self) -> Callable[..., Any]:
        """The WSGI application of this worker."""
        if self._service is None:
            self._service = self._plan.build()
        return self._service.wsgi

    def reload(self) -> None:
        """SIGHUP, in the parent."""
        self._plan.reload()
        self.load_default_config()
        self.load_config()

    def close(self) -> None:
        """End of a worker."""
        if self._service is not None:
            self._service.close()


def _connections() -> int:
    """How many connections a worker may hold: beyond its open files, accepting would fail again and again.

    Many systems allow 1,024 by default and more to whoever asks, so this asks.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _CONNECTIONS + _OTHER_FILES
    if resource.RLIM_INFINITY != soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return _CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(_CONNECTIONS, soft - _OTHER_FILES))
