"""``karrot pipeline``: runs the Spark jobs. Two commands can be kept running, and one answers a question."""

from typing import Final

import click

from karrot.cli.errors import Refused
from karrot.cli.pipeline import offsets, replay, run

__all__ = ["pipeline"]

_REPLACED: Final = {
    "ingest": "karrot pipeline run --once --only events",
    "derive": "karrot pipeline run --once --only derive",
    "compact": "karrot pipeline run --once --only compact",
    "evaluate": "karrot pipeline offsets --judge burrow",
    "stale": "karrot pipeline offsets --judge stale",
    "stream": "karrot pipeline offsets --judge burrow --to cloudwatch, or the service's reporter cloudwatch",
    "report": "karrot history report",
}
"""The words of earlier releases, and the calls that replaced them."""


class _Commands(click.Group):
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if new := _REPLACED.get(cmd_name):
            raise Refused(f"karrot pipeline {cmd_name} is replaced. Now: {new}")
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Commands, commands=[run.run, offsets.offsets, replay.replay])
def pipeline() -> None:
    """Write tables of events and committed offsets with Spark.

    Keep one process running beside karrot serve: karrot pipeline run. Without Burrow and karrot watch, also keep karrot
    pipeline offsets --judge burrow --to karrot=URL.

    These commands need the extra "spark" and Java 17 or newer (Debian: default-jre-headless). On a cluster, start the
    same commands with spark-submit.
    """
