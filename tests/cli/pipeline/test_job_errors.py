import pytest

from karrot.cli.pipeline.job_errors import why_it_failed

_TYPES = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "py4j/protocol.py", line 327, in get_return_value
    raise Py4JJavaError(
py4j.protocol.Py4JJavaError: An error occurred while calling o913.collectToPython.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file f. SQLSTATE: KD001
\tat org.apache.spark.sql.Some.thing(Some.scala:918)
Caused by: org.apache.spark.SchemaColumnConvertNotSupportedException: column: [partition], physicalType: INT64
\t... 34 more


=== Streaming Query ===
Identifier: [id = c4e75a86]
"""
_OURS = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "karrot/pipeline/offsets/job.py", line 112, in take
    raise UnevenError(f"batch {landing.batch_id}: {summary}")
karrot.pipeline.stream.streaming_queries.UnevenError: batch 3f0c9a1e-000004: 3 records = 2 commits


JVM stacktrace:
org.apache.spark.sql.streaming.StreamingQueryException: it failed
"""
_JVMS = """Query [id = c4e75a86] terminated with
  exception: no more

JVM stacktrace:
org.apache.spark.sql.streaming.StreamingQueryException: it failed
\tat org.apache.spark.Some.thing(Some.scala:1)
Caused by: org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment.
"""


def test_a_stack_trace_is_shown_as_sparks_coded_error_and_the_last_error() -> None:
    assert why_it_failed(_TYPES) == (
        "SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file f. SQLSTATE: KD001 "
        "(SchemaColumnConvertNotSupportedException: column: [partition], physicalType: INT64)"
    )
    assert why_it_failed(_OURS) == "batch 3f0c9a1e-000004: 3 records = 2 commits"
    changed = _OURS.replace("stream.streaming_queries.UnevenError: batch", "store.table_files.TablesChanged: batch")
    assert why_it_failed(changed) == "batch 3f0c9a1e-000004: 3 records = 2 commits"
    assert why_it_failed(_JVMS) == "TimeoutException: Timed out waiting for a node assignment."


_OF_S3 = """An error occurred while calling o61.getFileStatus.
: java.nio.file.AccessDeniedException: s3a://lag/t/_format.json: getFileStatus on s3a://lag/t/_format.json: Forbidden
\tat org.apache.hadoop.fs.s3a.S3AUtils.translateException(S3AUtils.java:267)
Caused by: software.amazon.awssdk.services.s3.model.S3Exception: Forbidden (Service: S3, Status Code: 403)
"""


def test_an_error_of_s3_names_the_object() -> None:
    assert why_it_failed(_OF_S3).startswith(
        "AccessDeniedException: s3://lag/t/_format.json: getFileStatus on s3://lag/t/_format.json: Forbidden. Check"
    )


def test_a_text_without_an_error_is_shown_by_its_first_line() -> None:
    assert why_it_failed("it  failed\nand more") == "it failed"
    assert why_it_failed("") == "the batch failed"


@pytest.mark.parametrize(
    ("said", "to_do"),
    [
        (
            "java.io.IOException: No space left on device",
            "IOException: No space left on device. The disk is full: free some space and run the command again.",
        ),
        (
            "FileAlreadyExistsException: Rename destination file:/t/_checkpoints/ingest/metadata already exists.",
            "already exists. Another command uses the same checkpoint: wait until it ends, or give",
        ),
        (
            "assertion failed: There are [1] sources in the checkpoint offsets and now there are [2]. Cannot continue.",
            "Cannot continue. Another release of Karrot wrote this checkpoint: use another --checkpoint, which reads",
        ),
        (
            "java.nio.file.AccessDeniedException: s3a://lag/t/_format.json: PUT 0-byte object: Access Denied (403)",
            "AccessDeniedException: s3://lag/t/_format.json: PUT 0-byte object: Access Denied (403). Check the cred",
        ),
        (
            "org.apache.hadoop.fs.s3a.UnknownStoreException: `s3a://lagg/t': Bucket does not exist",
            "UnknownStoreException: `s3://lagg/t': Bucket does not exist. Create the bucket, or correct its name.",
        ),
        (
            "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found",
            "S3AFileSystem not found. Spark has no client for S3: add hadoop-aws in --conf spark.jars.packages, as",
        ),
    ],
)
def test_a_known_error_says_what_to_do(said: str, to_do: str) -> None:
    assert to_do in why_it_failed(said)
