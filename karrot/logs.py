"""Configures logging for Karrot and its libraries: JSON lines on a stream, or readable lines on a terminal."""

import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import TextIO

import structlog
from structlog.types import EventDict, Processor, WrappedLogger

VALUE_LIMIT = 500
"""A log record has at most this many characters of one value, because a client may send megabytes."""

_MOST_LINES, _MINUTE_MS = 10, 60_000
_HANDLER = "karrot"
_NOT_VALUES = {"_record", "_from_structlog", "exc_info"}
_LEADING = ("timestamp", "level", "logger", "event")


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        """Drop a record that a full or closed stream refuses. The standard library would print a traceback for each."""
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)
            return
        # The refused text is still in the stream's buffer: without this, the program's last flush would fail too.
        with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
            number = self.stream.fileno()
            kept = os.dup(number)
            try:
                os.dup2(nowhere.fileno(), number)
                self.stream.flush()
            finally:
                os.dup2(kept, number)
                os.close(kept)


class LogTurns:
    """Limits the log lines that any client can cause to 10 of each code in a minute.

    Threads need no lock: at worst, one line more is logged or one less is counted.
    """

    def __init__(self) -> None:
        self._turns: dict[str, tuple[int, int, int]] = {}

    def take(self, code: str, now_ms: int) -> int | None:
        """Return how many lines of this code were skipped since the last one. ``None`` if this line is skipped too."""
        began_ms, lines, skipped = self._turns.get(code, (now_ms, 0, 0))
        if now_ms - began_ms >= _MINUTE_MS:
            began_ms, lines = now_ms, 0
        is_logged = lines < _MOST_LINES
        self._turns[code] = began_ms, lines + is_logged, 0 if is_logged else skipped + 1
        return skipped if is_logged else None


def configure(level: str, stream: TextIO, *, console: bool | None = None) -> None:
    """Send the records of structlog and of the standard library to ``stream`` if they have at least this ``level``.

    If ``console`` is true, the lines are readable text. If ``console`` is ``None``, only a terminal gets readable text.
    A second call replaces the configuration. Write a constant text as the event, and input from outside as values,
    because only values are cut. A warning or an error has a stable ``code``, and its cause as ``reason``. With a logger
    of the standard library, give the values as ``extra``.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _shortened,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    rendering: list[Processor] = [structlog.processors.format_exc_info, _ordered, structlog.processors.JSONRenderer()]
    if stream.isatty() if console is None else console:
        plain = structlog.dev.plain_traceback
        rendering = [_printable, structlog.dev.ConsoleRenderer(colors=has_colours(stream), exception_formatter=plain)]
    handler = _Handler(stream)
    handler.name = _HANDLER
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    root.handlers = [each for each in root.handlers if each.name != _HANDLER] + [handler]
    root.setLevel(level)


def has_colours(stream: TextIO) -> bool:
    """Whether to write colours: only to a terminal that has them, and not if ``NO_COLOR`` is set (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _shortened(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Cut long values, and append their original length."""
    return {name: value if name in _NOT_VALUES else _short(value) for name, value in event.items()}


def _short(value: object) -> object:
    if value is None or isinstance(value, int | float):
        return value
    text = value if isinstance(value, str) else repr(value)
    if len(text) <= VALUE_LIMIT:
        return value
    return f"{text[:VALUE_LIMIT]}... ({len(text)} characters)"


def _printable(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Escape control characters, because a group's name can contain an escape sequence for the terminal."""
    return {
        name: value.encode("unicode_escape").decode() if isinstance(value, str) and not value.isprintable() else value
        for name, value in event.items()
    }


def _ordered(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Put the fields of every line first: time, level, logger and event."""
    return {name: event[name] for name in _LEADING if name in event} | dict(event)
