"""The commands. What a command needs is imported inside it, so that ``karrot --help`` answers at once."""

import errno
import os
import sys
from typing import Any

import click

from karrot import distribution
from karrot.cli import (
    doctor,
    history,
    pipeline,
    probing,
    rendering,
    service,
    simulate,
    tables,
    watch,
)
from karrot.cli.common import Interrupted, NotDone, Refused

__all__ = ["main"]


class _Commands(click.Group):
    """Turns Ctrl-C, a full disk and a full standard output into a sentence and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None
        except ImportError as error:
            if (error.name or "").partition(".")[0] != "karrot":
                raise
            # The uninstallation of another distribution removes the files that both have.
            name = distribution.NAME
            raise Refused(f"files of '{name}' are missing ({error}): pip install --force-reinstall {name}") from error

    def main(self, *args: Any, **kwargs: Any) -> Any:
        if (intruder := distribution.intruder()) is not None:
            Refused(str(intruder)).show()
            if not intruder.is_ours:
                sys.exit(Refused.exit_code)
        try:
            try:
                return super().main(*args, **kwargs)
            finally:
                if sys.stdout is not None:
                    # The interpreter would flush it too late for a sentence: "Exception ignored", exit code 120.
                    sys.stdout.flush()
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EPIPE}:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still in its buffer
            if error.errno == errno.ENOSPC:
                click.echo(f"karrot: {error}", err=True)
            sys.exit(NotDone.exit_code)


@click.command()
def version() -> None:
    """Print the version."""
    from karrot import __version__

    click.echo(f"karrot {__version__}")


@click.group(
    cls=_Commands,
    commands=[
        *service.COMMANDS,
        *probing.COMMANDS,
        *rendering.COMMANDS,
        *simulate.COMMANDS,
        *tables.COMMANDS,
        *doctor.COMMANDS,
        *watch.COMMANDS,
        *pipeline.COMMANDS,
        *history.COMMANDS,
        version,
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name=distribution.NAME, message="karrot %(version)s")
def main() -> None:
    """Take Burrow's verdicts on Kafka consumer groups, keep them and hand them on."""
