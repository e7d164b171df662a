"""Defines the errors that end a command with a sentence and an exit code, and stops a command on signals."""

import errno
import signal
import threading
from collections.abc import Callable
from typing import IO, Any, TypeVar

import click

__all__ = ["Interrupted", "NotDone", "Refused", "end_on_signals", "stated", "valid"]


T = TypeVar("T")


class Refused(click.ClickException):
    """Ends a command that was asked for something wrong; each line of the message goes to standard error."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Print every problem on a line of its own."""
        for line in self.message.splitlines():
            click.echo(f"karrot: {line}", file=file, err=True)


class NotDone(Refused):
    """Ends a command whose answer is no."""

    exit_code = 1


class Interrupted(Refused):
    """Ends a command that Ctrl-C came to, as a shell tells it: 128 and the signal's number."""

    exit_code = 128 + signal.SIGINT

    def __init__(self) -> None:
        super().__init__("interrupted")


def stated(run: Callable[[], T]) -> T:
    """What ``run`` returns; what is wrong with settings, files, ports or the log becomes sentences, not a traceback."""
    from karrot.eventlog.base import LogUnavailableError
    from karrot.settings.loading import SettingsError

    try:
        return run()
    except (SettingsError, LogUnavailableError, OSError) as error:
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EPIPE} and error.filename is None:
            raise  # standard output is full or closed: as with any other command
        raise Refused(str(error)) from error


def valid(run: Callable[[], T]) -> T:
    """What ``run`` makes of arguments and secrets; its error says what is wrong with them."""
    from karrot.settings.sources import SourceError

    try:
        return run()
    except (ValueError, SourceError) as error:
        raise Refused(str(error)) from error


def end_on_signals(stop: threading.Event) -> None:
    """Have Ctrl-C and SIGTERM set ``stop``, in place of whatever they did."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # By a thread: the handler interrupts whoever waits for the event, perhaps while he holds its lock.
        signal.signal(number, lambda *_: threading.Thread(target=stop.set).start())
