"""``karrot pipeline``: the Spark jobs."""

import click

from karrot.cli.deriving import compact, derive
from karrot.cli.ingesting import ingest
from karrot.cli.offsets import offsets
from karrot.cli.replay import replay
from karrot.cli.reporting import report
from karrot.cli.stale import stale
from karrot.cli.streaming import stream

__all__ = ["COMMANDS", "pipeline"]


@click.group(commands=[ingest, offsets, derive, compact, replay, report, stale, stream])
def pipeline() -> None:
    """Make tables of events and of Kafka's own offsets, on Spark.

    Needs the extra "spark" and Java 17 or newer. On a cluster, start the same command by spark-submit.
    """


COMMANDS = (pipeline,)
