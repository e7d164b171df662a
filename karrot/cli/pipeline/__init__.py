"""``karrot pipeline``: runs the Spark jobs, one command for each."""

from typing import Any

import click

from karrot.cli.errors import NotDone
from karrot.cli.pipeline import compact, derive, ingest, offsets, replay, report, stale, stream
from karrot.cli.pipeline.job_errors import why_it_failed

__all__ = ["pipeline"]


_OF_SPARK = frozenset({"pyspark", "py4j"})


class _Jobs(click.Group):
    """Ends a command with a sentence if Spark fails, or if a file is damaged, unreadable or too large for the disk."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OSError as error:
            raise NotDone(str(error)) from error
        except Exception as error:
            # By the name of its module: pyspark may not be installed, and takes a while to import.
            if type(error).__module__.partition(".")[0] not in _OF_SPARK:
                raise
            raise NotDone(why_it_failed(str(error) or type(error).__name__)) from error


@click.group(
    cls=_Jobs,
    commands=[
        ingest.ingest,
        offsets.offsets,
        derive.derive,
        compact.compact,
        replay.replay,
        report.report,
        stale.stale,
        stream.stream,
    ],
)
def pipeline() -> None:
    """Make tables of events and of Kafka's own offsets, on Spark.

    Needs the extra "spark" and Java 17 or newer (Debian: default-jre-headless). On a cluster, start the same command
    by spark-submit.
    """
