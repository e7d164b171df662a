"""Configures logging: one line of JSON per record on a stream, readable lines on a terminal; libraries' records too."""

import logging
from typing import TextIO

import structlog
from structlog.types import EventDict, Processor, WrappedLogger

VALUE_LIMIT = 500
"""Characters of one value that are logged: what a client sends can be megabytes long."""

_HANDLER = "karrot"
_NOT_VALUES = {"_record", "_from_structlog", "exc_info"}
_LEADING = ("timestamp", "level", "logger", "event")


def configure(level: str, stream: TextIO, *, console: bool | None = None) -> None:
    """Send structlog's and the standard library's records to ``stream``, from ``level`` on.

    ``console`` chooses readable lines; ``None`` asks the stream whether it is a terminal. Calling it again replaces
    what was set before. An event is a constant text; what came from outside goes in as a value, which is shortened.
    """
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *_shared(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    readable = stream.isatty() if console is None else console
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_shared(),
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendering(stream, console=readable)],
    )
    _install(level, stream, formatter)


def _shared() -> list[Processor]:
    """What happens to every record, of Karrot and of libraries."""
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _shortened,
    ]


def _rendering(stream: TextIO, *, console: bool) -> list[Processor]:
    if console:
        plain = structlog.dev.plain_traceback
        return [_printable, structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=plain)]
    return [structlog.processors.format_exc_info, _ordered, structlog.processors.JSONRenderer()]


def _install(level: str, stream: TextIO, formatter: logging.Formatter) -> None:
    """Put one handler of ours on the root logger; handlers of others stay."""
    root = logging.getLogger()
    for old in [each for each in root.handlers if each.name == _HANDLER]:
        root.removeHandler(old)
    handler = logging.StreamHandler(stream)
    handler.name = _HANDLER
    handler.setFormatter(formatter)
    root.addHandler(handler)
    root.setLevel(level)


def _shortened(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Long values cut, with a word on how long they were."""
    return {name: value if name in _NOT_VALUES else _short(value) for name, value in event.items()}


def _short(value: object) -> object:
    if value is None or isinstance(value, int | float):
        return value
    text = value if isinstance(value, str) else repr(value)
    if len(text) <= VALUE_LIMIT:
        return value
    return f"{text[:VALUE_LIMIT]}... ({len(text)} characters)"


def _printable(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """No control characters for a terminal: a group's name may hold an escape sequence."""
    return {
        name: value.encode("unicode_escape").decode() if isinstance(value, str) and not value.isprintable() else value
        for name, value in event.items()
    }


def _ordered(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """What every line has comes first."""
    return {name: event[name] for name in _LEADING if name in event} | dict(event)
