import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from karrot.pipeline.store import hadoop_filesystem
from karrot.pipeline.store.hadoop_filesystem import flush_files, read_text, rename_over, write_text


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
