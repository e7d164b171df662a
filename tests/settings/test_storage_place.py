from pathlib import Path

import pytest

from karrot.settings import types
from karrot.settings.types import Bucket, hadoop_url

read_place, read_spark_place = types.place.read, types.spark_place.read


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
@pytest.mark.parametrize(
    ("rest", "bucket", "shown"),
    [
        ("lag", Bucket("lag", ""), "s3://lag"),
        ("lag.example-1/", Bucket("lag.example-1", ""), "s3://lag.example-1"),
        ("lag/teams/karrot_1/", Bucket("lag", "teams/karrot_1"), "s3://lag/teams/karrot_1"),
    ],
)
def test_both_schemes_name_the_same_bucket_and_are_shown_as_s3(
    scheme: str, rest: str, bucket: Bucket, shown: str
) -> None:
    address = f"{scheme}://{rest}"
    assert (read_place(address), str(read_place(address)), read_spark_place(address)) == (bucket, shown, shown)


@pytest.mark.parametrize("rest", ["", "Lag", "lag//x", "lag/a b", "lag/../x", "lag/.", "lag/a?b", "lag:80/x", "a@lag"])
def test_an_address_that_s3_would_not_accept_or_that_is_unclear_is_refused(rest: str) -> None:
    for address in (f"s3://{rest}", f"s3a://{rest}"):
        with pytest.raises(ValueError, match="s3"):
            read_place(address)
        with pytest.raises(ValueError, match="s3"):
            read_spark_place(address)


def test_keys_are_below_the_prefix() -> None:
    assert [Bucket("lag", prefix).key("a/b") for prefix in ("", "x/y")] == ["a/b", "x/y/a/b"]


def test_a_path_may_start_at_home_and_may_contain_anything_that_is_not_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x:y" / "t").mkdir(parents=True)
    assert [read_place(text) for text in ("~/t", "/a b/s3a:/c", "t", "x:y/t", "./s3a:/lag")] == [
        Path.home() / "t",
        Path("/a b/s3a:/c"),
        Path("t"),
        Path("x:y/t"),
        Path("s3a:/lag"),
    ]


def test_a_file_url_is_the_path_that_spark_reads_from_it() -> None:
    assert {read_place(f"{scheme}/var/a%20 b") for scheme in ("", "file:", "file://")} == {Path("/var/a%20 b")}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a\0b",
        "S3://lag",
        "hdfs://name:8020/t",
        "file://host/var/lib/tables",
        "file:tables",
        " s3a://lag",
        "s3a:/lag",
        "hdfs:lag",
        "s3a:",
        pytest.param("s3a:/" + 300 * "x", id="300 letters"),
    ],
)
def test_without_spark_every_other_url_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^--tables is '.*': it must be a path, or s3://bucket/prefix$"):
        types.checked(types.place, "--tables", text)


def test_spark_reads_paths_and_urls_of_other_file_systems_unchanged() -> None:
    for place in ("/srv/lag", "lag", "hdfs://name:8020/lag", "abfs://box@account/lag", "file:///srv/lag"):
        assert (read_spark_place(place), hadoop_url(place)) == (place, place)
    for nothing in (" ", "a\0b"):
        with pytest.raises(ValueError):  # noqa: PT011 (its message is not for users)
            read_spark_place(nothing)


def test_hadoop_has_a_scheme_of_its_own_for_s3() -> None:
    assert hadoop_url("s3://lag/tables") == "s3a://lag/tables"
