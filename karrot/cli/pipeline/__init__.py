"""``karrot pipeline``: runs the Spark jobs, with one command for each job."""

from typing import Any

import click

from karrot.cli.errors import NotDone
from karrot.cli.pipeline import evaluate, offsets, replay, report, run, stale, stream, table_steps
from karrot.cli.pipeline.job_errors import why_it_failed

__all__ = ["pipeline"]


_OF_SPARK = frozenset({"pyspark", "py4j"})


class _Jobs(click.Group):
    """The group ``karrot pipeline``. Ends a command with a message if Spark fails or a file cannot be used."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OSError as error:
            raise NotDone(str(error)) from error
        except Exception as error:
            # Compare module names, because pyspark is optional and its import is slow.
            if type(error).__module__.partition(".")[0] not in _OF_SPARK:
                raise
            raise NotDone(why_it_failed(str(error) or type(error).__name__)) from error


@click.group(
    cls=_Jobs,
    commands=[
        table_steps.ingest,
        offsets.offsets,
        table_steps.derive,
        evaluate.evaluate,
        table_steps.compact,
        replay.replay,
        report.report,
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
