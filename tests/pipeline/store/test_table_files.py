import datetime as dt
import os
import shutil
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from structlog.testing import capture_logs

from karrot.cli.pipeline.job_errors import explained, why_it_failed
from karrot.history.days_with_data import Derived, Note, note_of
from karrot.history.delta_tables import DataFile
from karrot.pipeline.schemas_and_conversions import (
    ABOUT,
    COMMITS,
    INT,
    LAG_MINUTE,
    QUARANTINE,
    STATUS_INTERVALS,
    STRING,
    TABLES,
    About,
    struct,
    with_day,
)
from karrot.pipeline.store import hadoop_filesystem, table_files
from karrot.pipeline.store.compact_and_expire import compact
from karrot.pipeline.store.table_files import Tables, TablesChanged, UnreadableTable, read_note, write_note
from karrot.pipeline.store.write_lease import EVENTS, writing
from support.pipeline.event_rows import frame_of_rows
from support.service.small_volume import small_volume

_DAY = dt.date(2026, 11, 20)
_NEXT = dt.date(2026, 11, 21)


def _replace(tables: Tables, spark: SparkSession, day: dt.date, *consumers: str) -> None:
    rows = [{"cluster": "c1", "consumer": consumer, "day": day} for consumer in consumers]
    tables.replace_days(frame_of_rows(spark, with_day(STATUS_INTERVALS), rows), "status_intervals", [day])


def _append(tables: Tables, spark: SparkSession, batch: str, *offsets: int, job: str = "") -> int:
    rows = [
        {"cluster": "c1", "consumer": batch, "log_partition": 0, "log_offset": offset, "day": _DAY}
        for offset in offsets
    ]
    return tables.append(frame_of_rows(spark, with_day(COMMITS), rows), "commits", batch, job=job)


def _consumers(tables: Tables, spark: SparkSession, name: str = "status_intervals") -> list[str]:
    return sorted(row.consumer for row in tables.read(spark, name).collect())


def test_a_derived_day_is_one_sorted_file_that_replaces_the_old_one(spark: SparkSession, directory: str) -> None:
    tables = Tables(directory)
    _replace(tables, spark, _DAY, "b")
    _replace(tables, spark, _DAY, "z", "a", "m")
    _replace(tables, spark, _NEXT, "n")

    files = [file for file in tables.files(spark, "status_intervals") if file.day == _DAY]
    assert [file.rows for file in files] == [3]
    assert [row.consumer for row in tables.read_files(spark, "status_intervals", files).collect()] == ["a", "m", "z"]
    assert tables.days(spark, "status_intervals") == [_DAY, _NEXT]
    _replace(tables, spark, _DAY)
    assert tables.days(spark, "status_intervals") == [_NEXT]
    assert tables.read(spark, "incidents").count() == 0


def test_only_the_given_pieces_of_a_day_are_replaced(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    schema = struct(**{field.name: field.dataType for field in with_day(LAG_MINUTE)}, piece=INT)

    def write(*pieces: int, consumer: str, only: bool = True) -> None:
        rows = [{"cluster": "c1", "consumer": consumer, "day": _DAY, "piece": piece} for piece in pieces]
        chosen = [(_DAY, piece) for piece in pieces] if only else None
        tables.replace_days(frame_of_rows(spark, schema, rows), "lag_minute", [_DAY], pieces=chosen)

    write(0, 6, consumer="old")
    write(6, 12, consumer="new")
    assert sorted((file.piece, file.rows) for file in tables.files(spark, "lag_minute")) == [(0, 1), (6, 1), (12, 1)]
    assert _consumers(tables, spark, "lag_minute") == ["new", "new", "old"]
    write(18, consumer="whole day", only=False)
    assert _consumers(tables, spark, "lag_minute") == ["whole day"]


def test_a_repeated_batch_replaces_its_own_rows_alone(spark: SparkSession, directory: str) -> None:
    tables = Tables(directory)
    assert _append(tables, spark, "run-000001", 1, 2, 3) == 3
    assert _append(tables, spark, "run-000002", 4) == 1
    assert _append(tables, spark, "run-000001", 1, 2) == 2
    found = tables.read(spark, "commits", batches=True).select("batch_id", "log_offset").collect()
    assert tables.read(spark, "commits").columns == with_day(COMMITS).fieldNames()
    assert sorted(map(tuple, found)) == [("run-000001", 1), ("run-000001", 2), ("run-000002", 4)]
    tables.drop_batch(spark, "commits", "run-000001")
    assert _consumers(tables, spark, "commits") == ["run-000002"]


def test_a_batch_is_on_the_disk_when_it_is_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = set[Path]()
    monkeypatch.setattr(hadoop_filesystem, "flush", flushed.add)
    rows = [{"source": "s", "position": position, "day": _DAY} for position in (1, 2)]
    Tables(str(tmp_path)).append(frame_of_rows(spark, with_day(QUARANTINE), rows), "quarantine", "run-000001")
    table = tmp_path / "quarantine"
    [written] = table.rglob("part-*.parquet")
    log = table / "_delta_log"
    assert {written, *written.parents[:3], log, *log.glob("*.json")} <= flushed


def test_a_path_of_the_clusters_file_system_is_looked_up_there(spark: SparkSession, tmp_path: Path) -> None:
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.defaultFS", "viewfs://cluster/")
    hadoop.set("fs.viewfs.mounttable.cluster.link./lag", tmp_path.as_uri())
    try:
        tables = Tables("/lag/tables")
        _replace(tables, spark, _DAY, "a", "b")
        assert tables.days(spark, "status_intervals") == [_DAY]
        assert _consumers(tables, spark) == ["a", "b"]
    finally:
        hadoop.unset("fs.defaultFS")
        hadoop.unset("fs.viewfs.mounttable.cluster.link./lag")


def test_a_clusters_limit_of_rows_per_file_does_not_split_a_day(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.files.maxRecordsPerFile", "1")
    try:
        _replace(Tables(str(tmp_path)), spark, _DAY, "a", "b", "c")
    finally:
        spark.conf.unset("spark.sql.files.maxRecordsPerFile")
    [file] = Tables(str(tmp_path)).files(spark, "status_intervals")
    assert file.rows == 3


def test_what_a_killed_write_left_is_no_row_and_is_deleted_after_a_day(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    _append(tables, spark, "run-000001", 1)
    [live] = tables.files(spark, "commits")
    left = tmp_path / "commits" / "batch_id=run-000002.0a" / "day=2026-11-20" / "part-0.parquet"
    young = left.parents[2] / "batch_id=run-000003.0b" / "_temporary" / "0" / "part-0.parquet"
    for file in (left, young):
        file.parent.mkdir(parents=True)
        file.write_bytes((tmp_path / "commits" / live.path).read_bytes())
    long_ago = dt.datetime(2026, 11, 20, tzinfo=dt.UTC).timestamp()
    for path in (left, *left.parents[:2]):
        os.utime(path, (long_ago, long_ago))
    assert tables.read(spark, "commits").count() == 1
    compact(spark, tables, keep=dt.timedelta(days=30), today=_NEXT)
    assert not left.exists()
    assert young.exists()
    assert tables.read(spark, "commits").count() == 1


def test_a_query_that_began_before_compact_ends_with_all_rows(spark: SparkSession, directory: str) -> None:
    tables = Tables(directory)
    for offset, batch in enumerate(("one", "two")):
        _append(tables, spark, batch, offset)
    query = tables.read(spark, "commits").select("consumer")
    assert str(compact(spark, tables, keep=dt.timedelta(days=30), today=_NEXT)).startswith("merged 2 files into 1")
    assert {row.consumer for row in query.collect()} == {"one", "two"}
    assert len(tables.files(spark, "commits")) == 1


def test_a_query_whose_tasks_run_before_and_after_a_replacement_has_the_rows_of_one_version(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    tables = Tables(str(tmp_path))

    def replace(rows: int) -> None:
        group = F.concat(F.lit("g"), F.xxhash64("id").cast("string"))  # compresses badly
        known = {"consumer": group, "day": F.lit(_DAY)}
        columns = [
            known.get(each.name, F.lit(None)).cast(each.dataType).alias(each.name)
            for each in with_day(STATUS_INTERVALS)
        ]
        tables.replace_days(spark.range(rows).select(*columns), "status_intervals", [_DAY])

    replace(10_000)
    [file] = tables.files(spark, "status_intervals")
    # Two tasks. The only row group of the file belongs to the first one, and that of a larger file to the second one.
    for name, value in (("maxPartitionBytes", str(file.size * 52 // 100)), ("openCostInBytes", "0")):
        before = spark.conf.get(f"spark.sql.files.{name}") or ""
        request.addfinalizer(partial(spark.conf.set, f"spark.sql.files.{name}", before))
        spark.conf.set(f"spark.sql.files.{name}", value)
    rows = tables.read(spark, "status_intervals").select("consumer").toLocalIterator()
    next(rows)
    replace(11_000)
    assert 1 + sum(1 for _ in rows) == 10_000
    assert tables.read(spark, "status_intervals").count() == 11_000


def test_a_reader_of_several_tables_keeps_the_set_that_it_opened(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    _replace(tables, spark, _DAY, "old")
    _append(tables, spark, "one", 1)
    kept = tables.together(spark)
    _replace(tables, spark, _DAY, "new", "newer")
    _append(tables, spark, "two", 2)
    compact(spark, tables, keep=dt.timedelta(days=30), today=_NEXT)
    assert _consumers(kept, spark) == ["old"]
    assert _consumers(kept, spark, "commits") == ["one"]
    assert _consumers(tables.together(spark), spark) == ["new", "newer"]


def _age_log(tables: Tables, name: str, hours: int) -> None:
    """Give all entries of a log the age of some hours."""
    for entry in Path(tables.directory, name, "_delta_log").iterdir():
        at = entry.stat().st_mtime - hours * 3_600
        os.utime(entry, (at, at))


def test_a_kept_table_has_its_rows_after_its_version_left_the_log(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    for _ in range(8):  # the log is cut off at a checkpoint, and the tenth version makes one
        _append(tables, spark, "old", 1)
    [version] = tables.newest(spark, ["commits"]).values()
    kept = tables.keep(spark, ["commits"])
    _age_log(tables, "commits", 72)
    for number in range(2, 4):
        _append(tables, spark, f"new-{number}", number)
    assert _consumers(kept, spark, "commits") == ["old"]
    with pytest.raises(UnreadableTable, match=r"/commits cannot be read: "):
        tables.keep(spark, ["commits"], {"commits": version})


def test_the_version_in_the_note_stays_in_the_log_until_a_newer_one_is_in_the_note(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables, keep = Tables(str(tmp_path)), dt.timedelta(days=30)
    for _ in range(8):
        _replace(tables, spark, _DAY, "old")
    noted = tables.newest(spark, ["status_intervals"])
    write_note(spark, tables, Note(versions=noted, unfinished={_DAY: Derived("a run was killed")}))
    _age_log(tables, "status_intervals", 1_000)
    for consumer in ("newer", "newest"):
        _replace(tables, spark, _DAY, consumer)
    compact(spark, tables, keep=keep, today=_NEXT)
    assert _consumers(tables.together(spark), spark) == ["old"]
    write_note(spark, tables, Note())
    compact(spark, tables, keep=keep, today=_NEXT)
    assert _consumers(tables.together(spark), spark) == ["newest"]
    with pytest.raises(UnreadableTable):
        tables.keep(spark, noted, noted)


def test_many_small_files_of_a_job_are_merged_but_not_those_of_its_last_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "_MOST_SMALL", 3)
    tables = Tables(str(tmp_path))
    _append(tables, spark, "other-000001", 1, job="other-")
    for number in range(2, 6):
        _append(tables, spark, f"run-{number:06d}", number, job="run-")
    files = {file.batch_id.partition("-")[2][:6]: file.rows for file in tables.files(spark, "commits")}
    assert files == {"000001": 1, "merged": 3, "000005": 1}
    assert _append(tables, spark, "run-000005", 5, job="run-") == 1
    assert tables.read(spark, "commits").count() == 5


def test_appends_of_several_writers_at_the_same_time_are_all_in(spark: SparkSession, tmp_path: Path) -> None:
    tables, failed = Tables(str(tmp_path)), list[BaseException]()

    def write(writer: str) -> None:
        try:
            for number in range(5):
                _append(tables, spark, f"{writer}-{number:06d}", number)
                _append(tables, spark, f"{writer}-{number:06d}", number)  # removes files, so others must try again
        except BaseException as error:  # noqa: BLE001 (shown below)
            failed.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert tables.read(spark, "commits").count() == 15


def test_files_that_another_command_changed_are_not_replaced(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    _append(tables, spark, "one", 1)
    _append(tables, spark, "two", 2)
    listed = tables.files(spark, "commits")
    tables.drop_batch(spark, "commits", "one")
    with pytest.raises(TablesChanged, match=r"another command changed .*/commits: run the command again"):
        tables.merge(spark, "commits", listed, "merged")
    assert _consumers(tables, spark, "commits") == ["two"]


def test_files_that_two_commands_merge_at_the_same_time_are_merged_once(spark: SparkSession, tmp_path: Path) -> None:
    tables, asked = Tables(str(tmp_path)), list[None]()
    _append(tables, spark, "one", 1)
    _append(tables, spark, "two", 2)
    listed = tables.files(spark, "commits")

    def merge_before_the_commit() -> None:
        asked.append(None)
        if len(asked) == 2:  # the first time was before the files were written
            tables.merge(spark, "commits", listed, "first")

    with pytest.raises(TablesChanged, match="another command changed"):
        Tables(str(tmp_path), merge_before_the_commit).merge(spark, "commits", listed, "second")
    assert _consumers(tables, spark, "commits") == ["one", "two"]


@pytest.mark.parametrize("size", [None, 0, 7])
def test_a_missing_or_damaged_file_is_an_error_and_not_fewer_rows(
    spark: SparkSession, tmp_path: Path, size: int | None
) -> None:
    tables = Tables(str(tmp_path))
    _replace(tables, spark, _DAY, "a")
    _replace(tables, spark, _NEXT, "b")
    file = tmp_path / "status_intervals" / tables.files(spark, "status_intervals")[0].path
    if size is None:
        file.unlink()
    else:
        file.write_bytes(bytes(size))
    state = "is missing" if size is None else f"has {size} bytes of "
    with pytest.raises(UnreadableTable, match=state):
        tables.read(spark, "status_intervals")


def test_a_file_that_goes_while_it_is_read_is_an_error_that_says_what_to_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = Tables(str(tmp_path))
    _replace(tables, spark, _DAY, "a")
    query = tables.read(spark, "status_intervals")
    next((tmp_path / "status_intervals").rglob("part-*.parquet")).unlink()
    with pytest.raises(Py4JJavaError) as failed:
        query.collect()
    assert why_it_failed(str(failed.value)).endswith("for example by compact after a day: run the command again.")


def test_a_damaged_log_is_an_error_that_names_the_table(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    _replace(tables, spark, _DAY, "a")
    for entry in (tmp_path / "status_intervals" / "_delta_log").glob("*.json"):
        entry.write_text("{")
    with pytest.raises(UnreadableTable, match=r"/status_intervals cannot be read: "):
        tables.days(spark, "status_intervals")
    with pytest.raises(UnreadableTable, match=r"/status_intervals cannot be read: "):
        _replace(tables, spark, _NEXT, "b")


def test_a_damaged_note_is_an_empty_note_with_a_warning(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    with capture_logs() as logs:
        write_note(spark, tables, Note())
        assert read_note(spark, tables) == Note()
    assert logs == []
    for note in (b"\xff", b'{"rules', b'{"rules": "r", "versions": {"incidents": 9223372036854775807}}'):
        (tmp_path / "_derived.json").write_bytes(note)
        with capture_logs() as logs:
            assert read_note(spark, tables) == Note()
        assert [line["code"] for line in logs] == ["note_damaged"]


def test_a_full_disk_during_a_commit_is_an_error_that_says_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    tables, log = Tables(str(tmp_path)), tmp_path / "status_intervals" / "_delta_log"
    _replace(tables, spark, _DAY, "a")
    with small_volume(tmp_path / "volume", 1 << 20) as volume:
        shutil.move(log, volume / "log")
        log.symlink_to(volume / "log")
        with suppress(OSError):
            (volume / "filling").write_bytes(bytes(1 << 20))
        with pytest.raises(UnreadableTable) as failed:
            _replace(tables, spark, _NEXT, "b")
        ending = explained(failed.value, {})
        assert ending is not None
        assert "/status_intervals cannot be written: " in ending.reason
        assert ending.reason.endswith(
            "No space left on device (os error 28). The disk is full: free some space and run the command again. It "
            "repeats what was not finished."
        )
        (volume / "filling").unlink()
        _replace(tables, spark, _NEXT, "b")
        assert _consumers(tables, spark) == ["a", "b"]


def test_a_commit_that_a_power_failure_left_empty_is_no_commit(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    _replace(tables, spark, _DAY, "a")
    [number] = tables.newest(spark, ["status_intervals"]).values()
    (tmp_path / "status_intervals" / "_delta_log" / f"{number + 1:020d}.json").touch()
    _replace(tables, spark, _NEXT, "b")
    assert _consumers(tables, spark) == ["a", "b"]


def test_a_column_that_an_older_karrot_did_not_have_is_added(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, old = Tables(str(tmp_path)), {**table_files._SCHEMAS}
    narrow = struct(cluster=STRING, consumer=STRING, status=STRING)
    monkeypatch.setattr(table_files, "_SCHEMAS", old | {"status_intervals": narrow})
    monkeypatch.setattr(table_files, "ABOUT", {**ABOUT, "status_intervals": About("group", "day", ("consumer",))})
    monkeypatch.setattr(table_files, "with_comments", lambda schema, _: with_day(schema))
    row = {"cluster": "c1", "consumer": "old", "day": _DAY}
    tables.replace_days(frame_of_rows(spark, with_day(narrow), [row]), "status_intervals", [_DAY])
    monkeypatch.undo()
    _replace(tables, spark, _NEXT, "new")
    assert _consumers(tables, spark) == ["new", "old"]
    known = {field.name: field.metadata for field in DeltaTable(tmp_path / "status_intervals").schema().fields}
    assert known.keys() == {*with_day(STATUS_INTERVALS).fieldNames()}
    assert (known["status"], known["to_at"]) == ({}, {"comment": "end (UTC)"})


def test_a_table_tells_its_readers_what_its_rows_and_columns_are(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    _append(tables, spark, "one", 1)
    _append(tables, spark, "two", 2)
    table = DeltaTable(tmp_path / "commits")
    assert table.metadata().description == (
        "One row per record that commits or deletes an offset. Key: cluster, log_partition, log_offset. "
        "Sorted by cluster, consumer, topic, partition, log_offset."
    )
    comments = {field.name: field.metadata.get("comment") for field in table.schema().fields}
    assert comments["leader_epoch"] == "epoch of the partition's leader (NULL: not given)"
    assert comments["log_offset"] == "offset of the record in this partition (offset)"
    assert comments["day"] == "day of log_ts (UTC)"
    assert all(comments.values())


def test_the_descriptions_are_written_once_and_not_into_the_data_files(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    _append(tables, spark, "one", 1)
    _append(tables, spark, "two", 2)
    tables.merge(spark, "commits", tables.files(spark, "commits"), "merged")
    logs = [entry.read_text() for entry in sorted((tmp_path / "commits" / "_delta_log").glob("*.json"))]
    assert ["metaData" in log for log in logs] == [True, False, False, False]
    footers = [pq.read_metadata(path).metadata for path in (tmp_path / "commits").rglob("*.parquet")]
    assert len(footers) == 3
    assert not any(b"epoch of the partition" in text for footer in footers for text in footer.values())


def test_readers_of_delta_tables_see_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    _append(tables, spark, "one", 1, 2)
    _append(tables, spark, "one", 1)
    table = DeltaTable(tmp_path / "commits")
    assert table.count() == 1
    files = table.file_uris()
    assert duckdb.connect().execute("SELECT consumer FROM read_parquet(?)", [files]).fetchall() == [("one",)]
    assert table.to_pyarrow_table().column("day").to_pylist() == [_DAY]


@pytest.mark.parametrize("mark", [None, "{", '{"format":1}'])
def test_plain_tables_of_the_first_alpha_are_refused_and_stay(
    spark: SparkSession, tmp_path: Path, mark: str | None
) -> None:
    if mark is not None:
        (tmp_path / "_format.json").write_text(mark)
    old = tmp_path / "commits" / f"day={_DAY}" / "part-0.parquet"
    old.parent.mkdir(parents=True)
    old.touch()
    with (
        pytest.raises(table_files.OtherFormat, match=r"has tables of Karrot 2\.0\.0a1.* other --tables"),
        writing(spark, Tables(str(tmp_path)), EVENTS, "a command"),
    ):
        pass
    assert old.exists()


def test_compact_leaves_partitions_alone_that_ingest_may_write_again(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))

    def write(name: str, batch: str, *numbers: int) -> None:
        rows = [{"log_id": "a", "seq": number, "topic": "t", "partition": 0, "day": _DAY} for number in numbers]
        schema = with_day(TABLES[name])
        kept = [{key: value for key, value in row.items() if key in schema.names} for row in rows]
        tables.append(frame_of_rows(spark, schema, kept), name, batch)

    for number in (1, 2):
        write("partitions", f"run-{number}", number)
        write("events", f"run-{number}", number)
    write("partitions", "run-3", 3)  # ingest is killed here
    compact(spark, tables, keep=dt.timedelta(days=30), today=_NEXT)
    write("partitions", "run-3", 3)
    write("events", "run-3", 3)
    assert sorted(row.seq for row in tables.read(spark, "partitions").collect()) == [1, 2, 3]
    compact(spark, tables, keep=dt.timedelta(days=30), today=_NEXT)
    assert [len(tables.files(spark, name)) for name in ("events", "partitions")] == [1, 1]


def test_a_derived_table_that_somebody_deleted_stays_in_the_note_and_its_days_are_derived_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = Tables(str(tmp_path))
    _replace(tables, spark, _DAY, "a")
    versions = tables.newest(spark, ["status_intervals"])
    write_note(spark, tables, Note("rules", {_DAY: Derived("aa")}, versions=versions))
    shutil.rmtree(tmp_path / "status_intervals")
    compact(spark, tables, keep=dt.timedelta(days=3_650), today=_NEXT)
    assert note_of((tmp_path / "_derived.json").read_bytes()).versions == versions
    assert table_files.changed_days(read_note(spark, tables), {_DAY: "aa"}, "rules") == [_DAY]
    with pytest.raises(UnreadableTable, match="status_intervals"):
        tables.together(spark)


def test_the_parts_of_a_path_are_known() -> None:
    file = DataFile.at("batch_id=run-000001.0a1b/day=2026-11-20/piece=18/part-0.parquet", 7, 3)
    assert (file.batch_id, file.day, file.piece) == ("run-000001", _DAY, 18)
