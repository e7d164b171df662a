"""Lists the commands: each is in the module of its name, in folders as ``karrot --help`` lists them.

A group of commands (``karrot history``) is in the ``__init__`` of its folder. What a command needs is imported inside
it, so that ``karrot --help`` answers at once.
"""

import click

from karrot import distribution
from karrot.cli import (
    burrow_config,
    check_config,
    demo,
    doctor,
    groups,
    history,
    pipeline,
    render,
    send_sample,
    serve,
    service,
    simulate,
    watch,
)
from karrot.cli.program import Program

__all__ = ["main"]


@click.command()
def version() -> None:
    """Print the version."""
    from karrot import __version__

    click.echo(f"karrot {__version__}")


@click.group(
    cls=Program,
    commands=[
        serve.serve,
        demo.demo,
        check_config.check_config,
        send_sample.send_sample,
        service.healthcheck,
        burrow_config.burrow_config,
        render.render,
        *simulate.COMMANDS,
        *groups.COMMANDS,
        doctor.doctor,
        watch.watch,
        pipeline.pipeline,
        history.history,
        version,
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name=distribution.NAME, message="karrot %(version)s")
def main() -> None:
    """Take Burrow's verdicts on Kafka consumer groups, keep them and hand them on."""
