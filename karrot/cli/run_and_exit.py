"""Runs a command, and turns Ctrl-C, a full disk and closed streams into a message and an exit code."""

import errno
import os
import sys
from collections import UserDict
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import click

from karrot import distribution_conflict
from karrot.cli.errors import Interrupted, NotDone, Refused

_STANDARD_ERROR = 2


class CommandModules(UserDict[str, Any]):
    """The commands by name. A command's module is imported on access, so ``karrot serve`` loads no other command."""

    def __getitem__(self, name: str) -> click.Command:
        """Import and return a command. The name of its function is the name of the command."""
        command: click.Command = getattr(import_module(f"karrot.cli.{self.data[name]}"), name.replace("-", "_"))
        return command


class Program(click.Group):
    """The group ``karrot``. Turns Ctrl-C, a full disk and a closed standard output into a message and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. Raises Refused if files of Karrot are missing, and Interrupted after Ctrl-C."""
        if not Path(__file__).exists():
            raise Refused(
                f"Karrot runs from an archive, {Path(__file__).parents[2]}, and cannot read its templates and pages "
                "there: install Karrot with pip install, or unpack the archive"
            )
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None
        except ImportError as error:
            if (error.name or "").partition(".")[0] != "karrot":
                raise
            # The uninstallation of another distribution has removed files that both distributions contained.
            name = distribution_conflict.NAME
            raise Refused(
                f"files of '{name}' are missing ({error}): run pip install --force-reinstall {name}"
            ) from error

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program and exit. With ``standalone_mode=False``, return or raise, as click does."""
        is_program = kwargs.get("standalone_mode", True)
        kwargs["standalone_mode"] = False  # click's own handling fails if standard error fails
        if not is_program:
            return super().main(*args, **kwargs)
        _open_closed_streams()
        try:
            try:
                if (intruder := distribution_conflict.intruder()) is not None:
                    if not intruder.is_ours:
                        raise Refused(str(intruder))
                    Refused(str(intruder)).show()
                code = super().main(*args, **kwargs)
            except click.ClickException as error:
                _show(error)
                sys.exit(error.exit_code)
            except click.Abort:
                _show(NotDone("aborted"))
                sys.exit(NotDone.exit_code)
            finally:
                # Flush now: if the interpreter's own flush fails, it prints "Exception ignored" and exits with 120.
                sys.stdout.flush()
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EPIPE}:
                raise
            _discard_what_is_left(sys.stdout)
            if error.errno == errno.ENOSPC:
                _show(NotDone(str(error)))
            sys.exit(NotDone.exit_code)
        sys.exit(code if isinstance(code, int) else 0)


def _open_closed_streams() -> None:
    """Open closed standard streams (``>&-``). Otherwise the next open file would get a stream's descriptor."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 (open until the process ends)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115


def _show(error: click.ClickException) -> None:
    """Print an error. If standard error is full or closed, only the exit code shows the error."""
    try:
        error.show()
    except OSError:
        _discard_what_is_left(sys.stderr)


def _discard_what_is_left(stream: TextIO) -> None:
    """Discard the buffer of ``stream``. Otherwise the interpreter cannot write the buffer and exits with code 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
