"""Every command of the pipeline on S3 and on HDFS, while a reader opens the tables."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from e2e.pipeline_hdfs import hdfs
from e2e.pipeline_inputs import EVENTS, table_rows, write_inputs
from e2e.pipeline_s3 import s3_server
from e2e.pipeline_stores import Commands, Store, VersionReader, downloaded, upload
from karrot.cli import main
from karrot.pipeline.schemas_and_conversions import DERIVED, TABLES

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

_OFFSETS = ("--cluster", "prod-eu", "--source", "parquet")


@pytest.fixture(scope="module", params=["s3", "hdfs"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with s3_server() if request.param == "s3" else hdfs(tmp_path_factory.mktemp("hdfs")) as store:
        yield store


def test_the_pipeline_on_a_store_equals_a_local_one_and_no_reader_sees_a_day_empty_or_half(
    store: Store, tmp_path: Path
) -> None:
    write_inputs(tmp_path)
    for directory in ("records", "ends"):
        upload(store, tmp_path / directory, directory)
    upload(store, tmp_path / "first", "archive")
    reader, place = VersionReader(store, "here/tables"), store.url
    is_hdfs = place.startswith("hdfs:")
    tables, archive = ("--tables", f"{place}/here/tables"), ("--archive", f"{place}/archive")
    with Commands.started(store, tmp_path / "spark.log") as commands:
        with reader.reading():
            one_more = ("--checkpoint", f"{place}/here/another")
            commands.run("events", *tables, "--archive", f"{place.replace('s3:', 's3a:')}/archive/", *one_more)
            commands.run("derive", *tables)
            upload(store, tmp_path / "second", "archive")
            # The second checkpoint begins with the oldest segment again: 240 events and a bad line.
            assert "+ 1 quarantined + 241 duplicates" in commands.run("events", *tables, *archive)
            sources = ("--input", f"{place}/records", "--ends-input", f"{place}/ends")
            commands.run("offsets", *tables, *_OFFSETS, *sources)
            commands.run("derive", *tables)
            assert "merged" in commands.run("compact", *tables, "--keep", "3650d")
            assert "nothing changed" in commands.run("derive", *tables)
            assert "1 group from 2025-05-11 08:00" in commands.run("replay", *tables)
            refused = commands.streams("report", *tables, "--output", str(tmp_path / "report.html"), code=2 * is_hdfs)
            assert ("copy the tables to a path" in refused[1]) == is_hdfs
            commands.run("stream", *tables, *archive, "--once")
        local = ("--tables", str(tmp_path / "tables"))
        commands.run("events", *local, "--archive", str(tmp_path / "second"))
        sources = ("--input", str(tmp_path / "records"), "--ends-input", str(tmp_path / "ends"))
        commands.run("offsets", *local, *_OFFSETS, *sources)
        commands.run("derive", *local)

    assert reader.wrong == set()
    for table_day in {name for look in reader.looks for name in look}:
        seen = [look.get(table_day, []) for look in reader.looks]
        since = seen[next(number for number, files in enumerate(seen) if files) :]
        assert all(sum(files) for files in since), f"{table_day} was empty: {since}"
        if table_day.partition("/")[0] in DERIVED:
            assert {len(files) for files in since} == {1}
        else:
            assert since == sorted(since, key=sum), f"{table_day} lost rows: {since}"
    for before, after in pairwise(reader.notes):
        assert before <= after, "a note was away"

    copied = downloaded(store, "here/tables", tmp_path / "copied")
    for name in TABLES:
        assert table_rows(copied, name) == table_rows(tmp_path / "tables", name), name
    assert len(table_rows(copied, "events")) == len({*table_rows(copied, "events")}) == EVENTS

    if not place.startswith("s3:"):
        return  # karrot history reads S3 and local disks
    for command in ("groups", "incidents"):
        asked = ["history", command, "--from", "2025-05-01", "--to", "2025-06-01", "--tables"]
        in_s3, in_folder = (
            CliRunner().invoke(main, [*asked, tables_at], env=store.environment)
            for tables_at in ("s3a://lag/here/tables", str(tmp_path / "tables"))
        )
        assert in_s3.stdout
        assert (in_s3.exit_code, in_s3.stdout) == (0, in_folder.stdout)
