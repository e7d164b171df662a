"""Defines the errors that end a command with a message and an exit code, and handles the signals that end a command."""

import errno
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from karrot.http_client import Answer

T = TypeVar("T")


class Refused(click.ClickException):
    """Ends a command that cannot run as the user asked. Each line of the message goes to standard error."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Print each problem on its own line."""
        for line in self.message.splitlines():
            click.echo(f"karrot: {line}", file=file, err=True)


class NotNow(Refused):
    """Ends a command that something besides its settings prevents. The same command can succeed later."""

    exit_code = os.EX_TEMPFAIL


class NotDone(Refused):
    """Ends a command that ran but did not succeed, or found nothing."""

    exit_code = 1


class Interrupted(Refused):
    """Ends a command after Ctrl-C. The exit code is 128 plus the number of the signal, as in a shell."""

    exit_code = 128 + signal.SIGINT

    def __init__(self) -> None:
        super().__init__("interrupted")


def stated(run: Callable[[], T]) -> T:
    """Call ``run``. Errors of settings become `Refused`; errors of files, ports and the event log `NotNow`."""
    from karrot.eventlog.base import LogUnavailableError
    from karrot.settings.loading import SettingsError

    try:
        return run()
    except SettingsError as error:
        raise Refused(str(error)) from error
    except (LogUnavailableError, OSError) as error:
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EPIPE} and error.filename is None:
            raise  # standard output is full or closed: `Program.main` handles it for all commands
        raise NotNow(str(error)) from error


def valid(run: Callable[[], T]) -> T:
    """Call ``run``. Errors of arguments and secrets become `Refused`."""
    try:
        return run()
    except ValueError as error:
        raise Refused(str(error)) from error


def read_answer(answer: "Answer", kind: type[T]) -> T:
    """Decode an answer of Karrot. Raises `NotDone` with Karrot's sentence, or with the status of any other answer."""
    import msgspec

    from karrot.cli.print_table import safe

    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        if answer.status == HTTPStatus.OK:
            return msgspec.json.decode(answer.body, type=kind)
        detail = msgspec.json.decode(answer.body, type=dict[str, Any]).get("detail")
        if isinstance(detail, str):
            raise NotDone(safe(detail))
    raise NotDone(str(answer.refusal()))


def end_on_signals(stop: threading.Event) -> None:
    """Make Ctrl-C and SIGTERM set ``stop`` and do nothing else."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # Set ``stop`` in a new thread. The handler interrupts the main thread, which can hold the lock of ``stop``.
        signal.signal(number, lambda *_: threading.Thread(target=stop.set).start())
