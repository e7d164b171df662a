"""Reads, writes and lists files on any file system that Hadoop knows.

URLs such as ``s3a://`` and ``hdfs://`` go through Hadoop in the JVM. Local paths go through the operating system. On
each of them, a small file is replaced in one step, so a reader sees the old file or the new one.

- Local: a rename, after the file is flushed to the disk. So a power failure leaves the old file or the new one.
- Object stores (S3): a PUT over the old object.
- HDFS and others: a rename that may overwrite.
"""

import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from karrot.eventlog.locks import flush
from karrot.history.delta_tables import s3_options
from karrot.settings.types import hadoop_url

_SCHEME = re.compile(r"^([a-z0-9+.-]+):/+", re.ASCII)
_WILD = re.compile(r"[\\*?\[\]{}]")
_OBJECT_STORES: Final = frozenset({"s3", "s3a", "s3n", "gs"})
_S3A_OPTIONS: Final = {
    "access.key": "aws_access_key_id",
    "secret.key": "aws_secret_access_key",
    "session.token": "aws_session_token",
    "endpoint": "aws_endpoint_url",
    "endpoint.region": "aws_region",
}
_IF_NONE_MATCH: Final = "fs.option.create.conditional.overwrite"
"""Without this option, Hadoop's client for S3 asks whether the object exists, and then overwrites the object anyway."""


def literal(path: str) -> str:
    """Escape a path for Spark's readers, for which ``*``, ``[a]`` and ``{a,b}`` in a path are patterns."""
    return _WILD.sub(r"\\\g<0>", path)


def plain_url(url: str) -> str:
    """Return one spelling for ``file:/a``, ``file:///a`` and their percent-encoded forms; Spark uses all of them."""
    return _SCHEME.sub(r"\1:/", unquote(url))


def local_path(spark: SparkSession, path: str) -> Path | None:
    """Return the local path of a path or of a ``file:`` URL, or ``None`` for another URL.

    On a cluster, a path without a scheme can belong to HDFS or another default file system: the result is ``None`` too.
    """
    if path.startswith("file:/"):
        return Path("/" + path.removeprefix("file:").lstrip("/"))
    if urlsplit(path).scheme:
        return None
    default_fs = spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS", "file:///")  # noqa: SLF001
    return Path(path) if default_fs.startswith("file:") else None


def place_for(spark: SparkSession, place: str) -> str:
    """Return a URL for Spark. ``s3://`` becomes ``s3a://``, unless the cluster has an ``s3://`` client, as EMR has."""
    has_own = spark.sparkContext._jsc.hadoopConfiguration().get("fs.s3.impl")  # noqa: SLF001 (as below)
    return place if has_own else hadoop_url(place)


def delta_place(spark: SparkSession, path: str) -> tuple[str, dict[str, str]]:
    """Return the URL and the ``storage_options`` with which deltalake opens the table at a path.

    S3's options are boto3's, unless the configuration of Hadoop's client (``fs.s3a.…``) has others.
    """
    if local := local_path(spark, path):
        return str(local), {}
    if not path.startswith(("s3:", "s3a:", "s3n:")):
        files = _hadoop(spark, path)
        above = whole = files.makeQualified(_path(spark, path))
        while not files.exists(above):
            above = above.getParent()
        below = str(whole.toString()).removeprefix(str(above.toString()))
        # A mount table (ViewFs) names a place in another file system.
        return f"{files.resolvePath(above).toString()}{below}".removeprefix("file:"), {}
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 (as below)
    given = {option: hadoop.get(f"fs.s3a.{name}") or "" for name, option in _S3A_OPTIONS.items()}
    endpoint = given["aws_endpoint_url"]
    if endpoint and "://" not in endpoint:
        is_plain = hadoop.get("fs.s3a.connection.ssl.enabled") == "false"
        given["aws_endpoint_url"] = f"http{'' if is_plain else 's'}://{endpoint}"
    if given["aws_endpoint_url"].startswith("http://"):
        given["allow_http"] = "true"
    options = s3_options(os.environ)
    if given["aws_access_key_id"] and "aws_session_token" in options:
        options["aws_session_token"] = ""  # it belongs to the other key, and deltalake also finds it in the environment
    return f"s3://{path.partition('://')[2]}", options | {key: text for key, text in given.items() if text}


def exists(spark: SparkSession, path: str) -> bool:
    local = local_path(spark, path)
    return local.exists() if local else bool(_hadoop(spark, path).exists(_path(spark, path)))


def listing(spark: SparkSession, path: str) -> list[str]:
    """Return the sorted names in a directory; no names if the directory does not exist."""
    if local := local_path(spark, path):
        return sorted(entry.name for entry in local.iterdir()) if local.is_dir() else []
    entries = _unless_missing(partial(_hadoop(spark, path).listStatus, _path(spark, path))) or ()
    return sorted(str(entry.getPath().getName()) for entry in entries)


def data_files_below(spark: SparkSession, directory: str) -> dict[str, int]:
    """Return the size of each file below a directory in bytes, by its path there.

    A file whose name begins with ``.`` or ``_`` is left out.
    """
    if local := local_path(spark, directory):
        paths = (path for path in local.rglob("*") if path.name[0] not in "._" and path.is_file())
        return {path.relative_to(local).as_posix(): path.stat().st_size for path in paths}
    files, root = _hadoop(spark, directory), _path(spark, directory)
    found = _unless_missing(partial(files.listFiles, root, True))
    above, sizes = f"{plain_url(str(files.makeQualified(root).toString()))}/", dict[str, int]()
    while found is not None and found.hasNext():
        status = found.next()
        if status.getPath().getName()[0] not in "._":
            sizes[plain_url(str(status.getPath().toString())).removeprefix(above)] = int(status.getLen())
    return sizes


def rows_in(spark: SparkSession, path: str) -> int:
    """Return the number of rows of a Parquet file, from its footer."""
    if local := local_path(spark, path):
        return int(pq.read_metadata(local).num_rows)
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 (as below)
    parquet = _jvm(spark).org.apache.parquet.hadoop
    reader = parquet.ParquetFileReader.open(parquet.util.HadoopInputFile.fromPath(_path(spark, path), hadoop))
    with closing(reader):
        return int(reader.getRecordCount())


def flush_files(spark: SparkSession, directory: str, since_s: float = 0) -> None:
    """Flush the files below a local directory that were written since a time (epoch seconds), and all names.

    Other file systems flush a file at its closing.
    """
    if (local := local_path(spark, directory)) and local.is_dir():
        for entry in [*local.rglob("*"), local, *local.parents[:3]]:
            with suppress(FileNotFoundError):  # another command has renamed its new entry of a log
                if entry.is_dir() or entry.stat().st_mtime >= since_s:
                    flush(entry)


def remove_empty_folders(spark: SparkSession, directory: str, *, older_than: timedelta) -> None:
    """Delete the folders below a local directory that have no files. Other file systems keep them or have none."""
    if local := local_path(spark, directory):
        for parent, _, _ in os.walk(local, topdown=False):
            with suppress(OSError):  # it has files
                if time.time() - Path(parent).stat().st_mtime > older_than.total_seconds():
                    Path(parent).rmdir()


def delete(spark: SparkSession, path: str) -> None:
    local = local_path(spark, path)
    if local is None:
        _hadoop(spark, path).delete(_path(spark, path), True)
    elif local.is_dir():
        shutil.rmtree(local)
    else:
        local.unlink(missing_ok=True)


def rename_over(spark: SparkSession, source: str, target: str) -> None:
    """Move a small file to another name, and replace the file that has this name. Raises OSError and Py4JJavaError."""
    if (old := local_path(spark, source)) and (new := local_path(spark, target)):
        flush(old)
        os.replace(old, new)  # noqa: PTH105 (os.replace says that it overwrites)
        flush(new.parent)
        return
    files = _hadoop(spark, target)
    jvm, gateway = _jvm(spark), cast("Any", spark.sparkContext._gateway)  # noqa: SLF001 (as below)
    options = gateway.new_array(jvm.org.apache.hadoop.fs.Options.Rename, 1)
    options[0] = jvm.org.apache.hadoop.fs.Options.Rename.OVERWRITE
    context = jvm.org.apache.hadoop.fs.FileContext.getFileContext(files.getUri(), files.getConf())
    context.rename(*(files.makeQualified(_path(spark, each)) for each in (source, target)), options)


def create_new(spark: SparkSession, path: str, text: str) -> None:
    """Write a small file that must not exist. If several processes create the file, one succeeds.

    Raises Py4JJavaError if the file exists, and also for other errors. After an error, read the file to find its
    writer: if the store's first answer was lost, the store can refuse a file of this process.
    """
    files, place = _hadoop(spark, path), _path(spark, path)
    if files.hasPathCapability(place, _IF_NONE_MATCH):
        stream = files.createFile(place).recursive().overwrite(True).must(_IF_NONE_MATCH, "true").build()
    else:
        stream = files.create(place, False)
    stream.write(bytearray(text, "utf-8"))
    stream.close()


def modified_ms(spark: SparkSession, path: str) -> int | None:
    """Return the time of a file's last write, by its file system's clock; ``None`` if the file does not exist."""
    status = _unless_missing(partial(_hadoop(spark, path).getFileStatus, _path(spark, path)))
    return None if status is None else int(status.getModificationTime())


def read_text(spark: SparkSession, path: str) -> str | None:
    """Read a small text file; ``None`` if the file does not exist."""
    if local := local_path(spark, path):
        return local.read_text(encoding="utf-8") if local.exists() else None
    stream = _unless_missing(partial(_hadoop(spark, path).open, _path(spark, path)))
    if stream is None:
        return None
    with closing(stream):
        return str(_jvm(spark).org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))


def is_torn(json: bytes) -> bool:
    """Whether a power failure tore a file that ends in JSON: it is empty or cut off, or a part of it is zeros."""
    return b"\0" in json or not json.rstrip().endswith(b"}")


def write_text(spark: SparkSession, path: str, text: str) -> None:
    """Write a small file in one step, so that no reader sees an incomplete or a missing file."""
    aside = f"{path.rpartition('/')[0]}/.{path.rpartition('/')[2]}-{os.getpid()}"
    if local := local_path(spark, aside):
        local.parent.mkdir(parents=True, exist_ok=True)
        local.write_text(text, encoding="utf-8")
    else:
        files = _hadoop(spark, path)
        puts = files.getScheme() in _OBJECT_STORES
        stream = files.create(_path(spark, path if puts else aside), True)
        stream.write(bytearray(text, "utf-8"))
        stream.close()
        if puts:
            return
    rename_over(spark, aside, path)


def _unless_missing(call: Callable[[], Any]) -> Any:
    """Call Hadoop, and return ``None`` if the file does not exist."""
    try:
        return call()
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() == "java.io.FileNotFoundException":
            return None
        raise


def _path(spark: SparkSession, path: str) -> Any:
    return _jvm(spark).org.apache.hadoop.fs.Path(path)


def _hadoop(spark: SparkSession, path: str) -> Any:
    return _path(spark, path).getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())  # noqa: SLF001 (as below)


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm  # noqa: SLF001 (pyspark has no other way to Hadoop's file systems)
