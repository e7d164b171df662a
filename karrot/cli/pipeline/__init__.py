"""``karrot pipeline``: runs the Spark jobs. Two commands can be kept running, and one answers a question."""

import click

from karrot.cli.pipeline import offsets, replay, run, stream
from karrot.cli.pipeline.replaced_words import REPORT

__all__ = ["pipeline"]

_REPLACED = [*run.REPLACED, *offsets.REPLACED, REPORT]
_WORDS = ", ".join(str(each.name) for each in _REPLACED)


@click.group(
    commands=[run.run, offsets.offsets, replay.replay, stream.stream, *_REPLACED],
    epilog=f"Words of earlier releases, which print the new call: {_WORDS}, {stream.stream.name}.",
)
def pipeline() -> None:
    """Write tables of events and committed offsets with Spark.

    Keep one process running beside karrot serve: karrot pipeline run. Without Burrow and karrot watch, also keep karrot
    pipeline offsets --judge burrow --to karrot=URL.

    These commands need the extra "spark" and Java 17 or newer (Debian: default-jre-headless). On a cluster, start the
    same commands with spark-submit.
    """
