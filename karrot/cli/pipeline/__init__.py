"""``karrot pipeline``: runs the Spark jobs, with one command for each job."""

import click

from karrot.cli.pipeline import evaluate, offsets, replay, run, stale, stream, table_steps

__all__ = ["pipeline"]


@click.group(
    commands=[
        table_steps.ingest,
        offsets.offsets,
        table_steps.derive,
        evaluate.evaluate,
        table_steps.compact,
        replay.replay,
        table_steps.report,
        run.run,
        stale.stale,
        stream.stream,
    ],
)
def pipeline() -> None:
    """Write tables of events and committed offsets with Spark.

    These commands need the extra "spark" and Java 17 or newer (Debian: default-jre-headless). On a cluster, start the
    same commands with spark-submit.
    """
