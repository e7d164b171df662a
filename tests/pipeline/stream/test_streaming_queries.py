"""Errors of batches keep their reason, also if the query is stopped meanwhile."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from karrot.cli.pipeline.job_errors import why_it_failed
from karrot.pipeline.stream import streaming_queries
from karrot.pipeline.stream.streaming_queries import FailedInJava, repair_checkpoint, repeated, run_queries, start_query
from support.powercut.table_commits import NO_SPARK
from support.waiting import wait_for


def _ticks(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").option("rowsPerSecond", 1).load()


def _error_of(spark: SparkSession, checkpoint: Path, take: Callable[[DataFrame, int], None]) -> str:
    query = start_query(_ticks(spark), take, str(checkpoint), timedelta(milliseconds=100))
    wait_for(lambda: not query.isActive)
    return str(query.exception())


def test_an_error_of_java_in_a_batch_keeps_its_reason(spark: SparkSession, tmp_path: Path) -> None:
    def take(rows: DataFrame, _batch: int) -> None:
        assert rows.sparkSession._jvm is not None
        rows.sparkSession._jvm.java.lang.Class.forName("no.such.Thing")

    said = _error_of(spark, tmp_path / "checkpoint", take)
    assert why_it_failed(said) == "ClassNotFoundException: no.such.Thing"


def test_a_query_that_is_stopped_in_a_batch_ends_with_the_error_of_that_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, a StackOverflowError of Spark ended the query, and Java printed a thousand lines."""
    monkeypatch.setattr(streaming_queries, "_PATIENCE_S", 0)
    began = tmp_path / "began"

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        began.touch()
        Event().wait(60)
        yield from batches

    def take(rows: DataFrame, _batch: int) -> None:
        rows.sparkSession.range(0, 2, 1, 2).mapInArrow(slowly, "id long").collect()

    query = start_query(_ticks(spark), take, str(tmp_path / "checkpoint"), timedelta(milliseconds=100))
    stop = Event()
    with repeated(lambda: stop.set() if began.exists() else None, Event()):
        run_queries([query], stop=stop, follow=True)
    assert FailedInJava.__name__ in str(query.exception())


@pytest.mark.parametrize(
    ("begun", "torn", "kept"),
    [
        ("1", "commits/1", ["begun", "commits/0", "metadata", "offsets/0", "offsets/1", "sources/0/9.compact"]),
        ("0", "sources/0/9.compact", ["begun", "commits/0", "commits/1", "metadata", "offsets/0"]),
        ("", "metadata", ["commits/0", "commits/1", "metadata", "offsets/0", "offsets/1", "sources/0/9.compact"]),
    ],
    ids=["the end of a batch", "the beginning of a batch", "another version wrote it"],
)
@pytest.mark.parametrize("rest", [b"", b"v1\n{}\n\0\0\0", b'v1\n{"nextBatch'], ids=["empty", "zeros", "cut off"])
def test_the_files_that_a_power_cut_tore_are_removed(
    tmp_path: Path, begun: str, torn: str, kept: list[str], rest: bytes
) -> None:
    for name in ("commits/0", "commits/1", "metadata", "offsets/0", "offsets/1", "sources/0/9.compact"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(rest if name == torn else b'v1\n{"a":0}')
        (tmp_path / name).with_name(f".{(tmp_path / name).name}.crc").touch()
    if begun:
        (tmp_path / "begun").write_text(begun)
    repair_checkpoint(NO_SPARK, tmp_path)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert sorted(name for name in left if ".crc" not in name) == kept
    assert len(left) == 2 * len(kept) - bool(begun), "a checksum without its file makes Spark fail"


def test_a_checkpoint_whose_first_batch_did_not_begin_is_new_again(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    for name in ("metadata", "offsets/.0.tmp", "state.json"):
        (tmp_path / name).touch()
    repair_checkpoint(NO_SPARK, tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["state.json"], "Spark refuses a file in offsets"
