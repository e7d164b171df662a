"""Lists the commands of ``karrot`` and the module of each command. A call of a command imports only its module.

A group of commands, such as ``karrot history``, is in the ``__init__`` of its folder. A command imports slow modules
only when the command runs, so that ``karrot --help`` answers quickly.
"""

import click

from karrot import distribution_conflict
from karrot.cli.run_and_exit import CommandModules, Program

__all__ = ["main"]

_COMMANDS = CommandModules(
    {
        "burrow-config": "service",
        "check-config": "service",
        "demo": "service",
        "doctor": "doctor",
        "forget-cluster": "forget_cluster",
        "groups": "groups.commands",
        "healthcheck": "service",
        "history": "history",
        "lag": "groups.commands",
        "pipeline": "pipeline",
        "render": "render",
        "send-sample": "send_sample",
        "serve": "service",
        "simulate": "simulate.simulate",
        "status": "groups.commands",
        "version": "service",
        "watch": "watch",
    }
)


@click.group(
    cls=Program, commands=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name=distribution_conflict.NAME, message="karrot %(version)s")
def main() -> None:
    """Store Burrow's verdicts on Kafka consumer groups, and report them to other systems."""
