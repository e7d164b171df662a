import threading
from functools import partial
from pathlib import Path

import pytest
from botocore.session import Session
from pyspark.sql import SparkSession

from karrot.history import delta_tables
from karrot.pipeline.store import hadoop_filesystem
from karrot.pipeline.store.hadoop_filesystem import delta_place, flush_files, read_text, rename_over, write_text


@pytest.mark.parametrize("directory", ["local", "file URL"], indirect=True)  # Hadoop's local files have no such rename
def test_a_note_is_never_away_while_it_is_replaced(spark: SparkSession, directory: str, tmp_path: Path) -> None:
    write_text(spark, f"{directory}/below/note.json", "0")
    found: set[str] = set()
    stop = threading.Event()

    def read_until_the_end() -> None:
        while not stop.is_set():
            try:
                found.add((tmp_path / "below" / "note.json").read_text())
            except FileNotFoundError:
                found.add("away")

    reader = threading.Thread(target=read_until_the_end)
    reader.start()
    try:
        for number in range(1, 40):
            write_text(spark, f"{directory}/below/note.json", str(number))
    finally:
        stop.set()
        reader.join()
    assert "away" not in found
    assert "" not in found
    assert read_text(spark, f"{directory}/below/note.json") == "39"
    assert [path.name for path in (tmp_path / "below").glob("*note.json")] == ["note.json"]


def test_the_files_in_the_folders_of_a_directory_are_flushed_too(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[Path] = []
    monkeypatch.setattr(hadoop_filesystem, "flush", flushed.append)
    file = tmp_path / "state" / "kind=state" / "part.parquet"
    file.parent.mkdir(parents=True)
    file.touch()
    flush_files(spark, str(tmp_path / "state"))
    assert {file, file.parent, tmp_path / "state", tmp_path} <= {*flushed}


def test_a_file_gets_a_name_that_another_file_has(spark: SparkSession, directory: str, tmp_path: Path) -> None:
    for name in ("old", "new"):
        write_text(spark, f"{directory}/{name}", name)
    rename_over(spark, f"{directory}/new", f"{directory}/old")
    assert read_text(spark, f"{directory}/old") == "new"
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["old"]


@pytest.mark.parametrize(
    ("environment", "settings", "expected"),
    [
        pytest.param(
            {"AWS_ENDPOINT_URL": "http://minio:9000", "AWS_SESSION_TOKEN": "t"},
            {},
            {"aws_endpoint_url": "http://minio:9000", "allow_http": "true", "aws_access_key_id": "ENV"}
            | {"aws_secret_access_key": "env", "aws_session_token": "t", "aws_region": "eu-west-1"},
            id="variables",
        ),
        pytest.param(
            {"AWS_SESSION_TOKEN": "t"},
            {"access.key": "GIVEN", "secret.key": "given", "endpoint": "minio:9000", "connection.ssl.enabled": "false"},
            {"aws_endpoint_url": "http://minio:9000", "allow_http": "true", "aws_access_key_id": "GIVEN"}
            | {"aws_secret_access_key": "given", "aws_session_token": "", "aws_region": "eu-west-1"},
            id="settings beside variables of another key",
        ),
        pytest.param(
            {},
            {"endpoint": "s3.eu-south-1.amazonaws.com", "endpoint.region": "eu-south-1"},
            {"aws_endpoint_url": "https://s3.eu-south-1.amazonaws.com", "allow_http": "false"}
            | {"aws_access_key_id": "ENV", "aws_secret_access_key": "env", "aws_region": "eu-south-1"},
            id="an endpoint without a scheme",
        ),
    ],
)
def test_the_logs_are_written_to_the_store_that_spark_uses(  # noqa: PLR0917 (the columns of the table above)
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    environment: dict[str, str],
    settings: dict[str, str],
    expected: dict[str, str],
) -> None:
    known = {"AWS_ACCESS_KEY_ID": "ENV", "AWS_SECRET_ACCESS_KEY": "env", "AWS_REGION": "eu-west-1"}
    for name, text in (known | environment).items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(delta_tables, "_session", Session)
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    for name, text in settings.items():
        before = hadoop.get(f"fs.s3a.{name}", "")
        request.addfinalizer(partial(hadoop.set, f"fs.s3a.{name}", before))
        hadoop.set(f"fs.s3a.{name}", text)
    assert delta_place(spark, "s3a://lag/tables/events") == ("s3://lag/tables/events", expected)
