"""Lists the commands of ``karrot`` and the module of each command. A call of a command imports only its module.

The ``__init__`` of a folder defines a group of commands, such as ``karrot pipeline``. A command imports slow modules
only when it runs, so that ``karrot --help`` answers quickly.
"""

import errno
import os
import re
import sys
from collections import UserDict
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import click

from karrot.cli.errors import Interrupted, NotDone, Refused

__all__ = ["main"]

NAME = "karrot-burrow"
"""The name of this distribution. On PyPI, ``karrot`` is the name of another project.

This constant is not in ``karrot/__init__.py``, because the other project can overwrite that file.
"""

_STANDARD_ERROR = 2


class CommandModules(UserDict[str, Any]):
    """Maps names to commands. Access to a command imports its module, so ``karrot serve`` loads no other command."""

    def __getitem__(self, name: str) -> click.Command:
        """Import and return a command. The command's function has the name of the command."""
        command: click.Command = getattr(import_module(f"karrot.cli.{self.data[name]}"), name.replace("-", "_"))
        return command


class Program(click.Group):
    """The group ``karrot``. Turns Ctrl-C, a full disk and a closed standard output into a message and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. Raises Refused if files of Karrot are missing, and Interrupted after Ctrl-C."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None
        except ImportError as error:
            if (error.name or "").partition(".")[0] != "karrot":
                raise
            # Another distribution has overwritten or removed files that both distributions contain.
            raise Refused(
                f"files of '{NAME}' are missing ({error}): run pip install --force-reinstall {NAME}"
            ) from None

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program and exit. With ``standalone_mode=False``, return or raise, as click does."""
        if not kwargs.get("standalone_mode", True):
            return super().main(*args, **kwargs)
        # Open closed standard streams (``>&-``). Otherwise the next opened file would become a standard stream.
        while (number := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
            os.set_inheritable(number, True)
        sys.stdout, sys.stderr = (each or os.fdopen(number, "w", closefd=False) for each in (sys.stdout, sys.stderr))
        try:
            try:
                if sentence := conflict():
                    _show(Refused(sentence))
                # click's own handling of errors fails if standard error fails.
                code = super().main(*args, **kwargs | {"standalone_mode": False})
            except click.ClickException as error:
                code = _show(error)
            except click.Abort:
                code = _show(NotDone("aborted"))
            finally:
                # Flush now: if the interpreter's own flush fails, it prints "Exception ignored" and exits with 120.
                sys.stdout.flush()
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EPIPE}:
                raise
            os.dup2(number, sys.stdout.fileno())  # discard the buffer
            code = _show(NotDone(str(error))) if error.errno == errno.ENOSPC else NotDone.exit_code
        sys.exit(code if isinstance(code, int) else 0)


def _show(error: click.ClickException) -> int:
    """Print an error and return its exit code. If standard error is full or closed, nothing is printed."""
    try:
        error.show()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # discard the buffer
    return error.exit_code


def conflict(package: Path = Path(__file__).parents[1]) -> str | None:
    """Say that a distribution `karrot` has files in ``package``, which pip can silently overwrite; else ``None``."""
    for found in distributions(name="karrot"):
        directory = Path(str(found.locate_file(""))).resolve()
        owns_files = re.search(rf'^"?{package.name}/', found.read_text("RECORD") or "", re.MULTILINE)
        if owns_files and (directory / package.name).resolve() == package.resolve():
            return (
                f"'karrot' is installed too in {directory} and shares files with '{NAME}': run pip uninstall karrot "
                f"{NAME}, then pip install {NAME}"
            )
    return None


@click.group(
    cls=Program,
    commands=CommandModules(
        {
            "burrow-config": "serve_demo_and_checks",
            "check-config": "serve_demo_and_checks",
            "demo": "serve_demo_and_checks",
            "doctor": "doctor",
            "explain": "explain",
            "forget-cluster": "send_sample",
            "groups": "groups_status_lag",
            "healthcheck": "serve_demo_and_checks",
            "history": "history",
            "lag": "groups_status_lag",
            "log": "log",
            "mute": "mute",
            "notify": "notify",
            "pipeline": "pipeline",
            "render": "render",
            "send-sample": "send_sample",
            "serve": "serve_demo_and_checks",
            "status": "groups_status_lag",
            "version": "serve_demo_and_checks",
            "watch": "watch",
        }
    ),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
@click.version_option(package_name=NAME, message="karrot %(version)s")
def main() -> None:
    """Store Burrow's verdicts on Kafka consumer groups, and report them to other systems."""
