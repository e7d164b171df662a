"""The commands. What a command needs is imported inside it, so that ``karrot --help`` answers at once."""

import errno
from typing import Any

import click

from karrot import __version__
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
from karrot.cli.common import Interrupted, NotDone

__all__ = ["main"]


class _Commands(click.Group):
    """Ends with a sentence on Ctrl-C, and where the disk, or what standard output goes to, is full."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise NotDone(str(error)) from error


@click.command()
def version() -> None:
    """Print the version."""
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
@click.version_option(__version__, message="karrot %(version)s")
def main() -> None:
    """Take Burrow's verdicts on Kafka consumer groups, keep them and hand them on."""
