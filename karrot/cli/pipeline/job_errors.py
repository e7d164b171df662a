"""Converts the errors of a Spark job to messages of one line."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

from karrot.cli.errors import NotDone, Refused
from karrot.settings.types import s3_url

if TYPE_CHECKING:
    from karrot.pipeline.run.step_loop import StepFailure

_NAMED: Final = re.compile(
    r"^(?:: |Caused by: )?(karrot\.[\w.]+|[A-Za-z_][\w.$]*(?:Error|Exception)): (.*\S)", re.MULTILINE
)
_CARRIERS: Final = frozenset({"Py4JJavaError", "Py4JException", "ForeachBatchUserFuncException"})
"""Errors that only wrap another error without a reason of their own."""

_NO_SPACE: Final = re.compile(r"No space left|Disk quota exceeded")
_NO_HEAP: Final = "OutOfMemoryError"

_TO_DO: Final = (
    (
        _NO_SPACE,
        "The disk is full: free some space and run the command again. It repeats what was not finished.",
    ),
    (
        re.compile(r"ename destination \S*/(?:metadata|offsets/\d+|commits/\d+) already|CONCURRENT_STREAM_LOG_UPDATE"),
        "Another command uses the same checkpoint: wait until it ends, or give this command its own --checkpoint.",
    ),
    (
        re.compile(r"sources in the checkpoint offsets"),
        "Another release of Karrot wrote this checkpoint: use another --checkpoint, which reads the topic again.",
    ),
    (
        re.compile(r"FAILED_READ_FILE\.FILE_NOT_EXIST"),
        "This file was deleted while it was read, for example by compact after a day: run the command again.",
    ),
    (
        re.compile(r"AccessDenied|Access Denied|Forbidden|InvalidAccessKeyId|SignatureDoesNotMatch"),
        "Check the credentials, and that they may list, read, write and delete objects below this prefix.",
    ),
    (
        re.compile(r"S3AFileSystem not found"),
        "Spark has no client for S3: add hadoop-aws in --conf spark.jars.packages, as docs/pipeline.md says.",
    ),
    (re.compile(r"NoSuchBucket|Bucket does not exist"), "Create the bucket, or correct its name."),
)
"""Patterns of Spark's messages, each with a remedy."""

_S3_OBJECT: Final = "s3a://"
_SAYS_WHERE: Final = re.compile(r"\[[A-Z_.]+\] ")
_BEYOND: Final = re.compile(r"\s*(?:JVM stacktrace|=== Streaming Query ===)")


class JobCommand(click.Command):
    """A command that ends with a message if its input is unreadable, its tables are locked, or its job fails."""

    def invoke(self, ctx: click.Context) -> Any:
        from karrot.pipeline.spark_session import SparkUnavailable, require_pyspark

        try:
            require_pyspark()  # the receivers and the errors of the jobs import pyspark before Spark starts
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except SparkUnavailable as error:
            raise Refused(str(error)) from error
        except Exception as error:
            if (failure := explained(error, ctx.params)) is None:
                raise
            raise (Refused if failure.is_refused else NotDone)(failure.reason) from error


def explained(error: Exception, asked: Mapping[str, Any]) -> "StepFailure | None":
    """Convert an error to a failure with a one-line reason; ``None`` for an unexpected error.

    ``asked`` has the options of the command. The reason contains no values of Kafka properties.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from karrot.history.answers_and_errors import HistoryError, HistoryFailed
    from karrot.kafka.client_properties import PropertiesError, without_values
    from karrot.pipeline.replay.job import NothingToReplayError
    from karrot.pipeline.run.step_loop import StepFailure
    from karrot.pipeline.store.table_files import OtherFormat, TablesChanged, UnreadableTable
    from karrot.pipeline.store.write_lease import LeaseHeld, LeaseLost
    from karrot.pipeline.stream.kafka_read_options import KafkaConnection
    from karrot.pipeline.stream.record_sources import ConnectorMissing, NoRecords
    from karrot.watch.cluster_interface import ClusterError

    if isinstance(error, Refused):
        return StepFailure("failed", error.message, is_refused=not isinstance(error, NotDone))
    said = str(error)
    of_store = LeaseHeld | LeaseLost | OtherFormat | TablesChanged | UnreadableTable
    is_refused = isinstance(error, ConnectorMissing | FileNotFoundError | NoRecords | HistoryError | PropertiesError)
    is_refused &= not isinstance(error, HistoryFailed)
    if isinstance(error, PySparkException | Py4JJavaError):
        reason = why_it_failed(said or type(error).__name__)
    elif isinstance(error, ClusterError):
        reason = f"Kafka at {','.join(asked['bootstrap_servers'])} does not answer: {said}"
    elif is_refused or isinstance(error, HistoryError | NothingToReplayError | OSError | of_store):
        reason = _with_remedy(said)
    else:
        return None
    with suppress(PropertiesError):  # a job without Kafka did not read the file
        reason = without_values(reason, KafkaConnection.of((), asked.get("command_config")).properties)
    code = "source_away" if isinstance(error, ClusterError | NoRecords) else "failed"
    code = "lease_held" if isinstance(error, LeaseHeld) else "disk_full" if _NO_SPACE.search(said) else code
    is_final = isinstance(error, ConnectorMissing | PropertiesError | OtherFormat) or _NO_HEAP in said
    return StepFailure(code, reason, is_final, is_refused)


def why_it_failed(said: str) -> str:
    """Find the last error in Spark's message, and the remedy. An error with a Spark code comes first.

    The error with a code names the file or table, and the last error gives the reason. Users need both.
    """
    return _with_remedy(s3_url(_error_in(said)), said)


def _with_remedy(error: str, said: str = "") -> str:
    to_do = next((text for pattern, text in _TO_DO if pattern.search(said or error)), None)
    return error if to_do is None else f"{error.rstrip('.')}. {to_do}"


def _error_in(said: str) -> str:
    own = _BEYOND.split(said, maxsplit=1)[0].strip()
    errors = _errors(own) or _errors(said)
    if not errors:
        return " ".join(own.split("\n", 1)[0].split()) or "the batch failed"
    last = errors[-1]
    # The last error of the S3 client comes from the AWS SDK, and does not name the object.
    of_object = [each for each in errors[:-1] if _S3_OBJECT in each]
    if of_object and _S3_OBJECT not in last:
        return of_object[-1]
    coded = [each for each in errors[:-1] if _SAYS_WHERE.search(each)]
    return f"{coded[0].rstrip('.')} ({last})" if coded else last


def _errors(said: str) -> list[str]:
    """Return the errors in Spark's message. The cause comes last. Karrot's own errors need no name of a class."""
    named = ((name.rpartition(".")[2], name, message) for name, message in _NAMED.findall(said))
    return [
        message if full.startswith("karrot.") else f"{name}: {message}"
        for name, full, message in named
        if name not in _CARRIERS
    ]
