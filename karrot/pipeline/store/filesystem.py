"""Reads, writes and lists files on any file system that Hadoop knows.

URLs such as ``s3a://`` and ``hdfs://`` go through Hadoop in the JVM. Local paths go through the operating system, whose
rename replaces a file in one step.
"""

import os
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

_SCHEME = re.compile(r"^([a-z0-9+.-]+):/+", re.ASCII)
_WILD = re.compile(r"[\\*?\[\]{}]")


def literal(path: str) -> str:
    """Escape a path for Spark's readers, for which ``*``, ``[a]`` and ``{a,b}`` in a path are patterns."""
    return _WILD.sub(r"\\\g<0>", path)


def plain_url(url: str) -> str:
    """Return one spelling for ``file:/a``, ``file:///a`` and their percent-encoded forms; Spark uses all of them."""
    return _SCHEME.sub(r"\1:/", unquote(url))


def exists(spark: SparkSession, path: str) -> bool:
    """Whether a file or directory exists."""
    local = _local(spark, path)
    return local.exists() if local else bool(_hadoop(spark, path).exists(_path(spark, path)))


def listing(spark: SparkSession, path: str) -> list[str]:
    """The names in a directory, sorted; none if the directory does not exist."""
    if local := _local(spark, path):
        return sorted(entry.name for entry in local.iterdir()) if local.is_dir() else []
    if not exists(spark, path):
        return []
    return sorted(str(entry.getPath().getName()) for entry in _hadoop(spark, path).listStatus(_path(spark, path)))


def make_directory(spark: SparkSession, path: str) -> None:
    """Create a directory and its parents, if they do not exist."""
    local = _local(spark, path)
    if local is None:
        _hadoop(spark, path).mkdirs(_path(spark, path))
    else:
        local.mkdir(parents=True, exist_ok=True)


def delete(spark: SparkSession, path: str) -> None:
    """Delete a file, or a directory with its content, if it exists."""
    local = _local(spark, path)
    if local is None:
        _hadoop(spark, path).delete(_path(spark, path), True)
    elif local.is_dir():
        shutil.rmtree(local)
    else:
        local.unlink(missing_ok=True)


def rename_over(spark: SparkSession, source: str, target: str) -> None:
    """Rename a file, and replace a file that has the new name. Raises OSError."""
    if (old := _local(spark, source)) and (new := _local(spark, target)):
        new.parent.mkdir(parents=True, exist_ok=True)
        os.replace(old, new)  # noqa: PTH105 (os.replace says that it overwrites)
        return
    files = _hadoop(spark, target)
    files.mkdirs(_path(spark, target).getParent())
    files.delete(_path(spark, target), False)
    if not files.rename(_path(spark, source), _path(spark, target)):
        raise OSError(f"{source} could not be renamed to {target}")


def read_text(spark: SparkSession, path: str) -> str | None:
    """The text of a small file; ``None`` if it does not exist."""
    if local := _local(spark, path):
        return local.read_text(encoding="utf-8") if local.exists() else None
    if not exists(spark, path):
        return None
    stream = _hadoop(spark, path).open(_path(spark, path))
    try:
        return str(_jvm(spark).org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def write_text(spark: SparkSession, path: str, text: str) -> None:
    """Write a small file under another name and then rename it, so that no reader sees an incomplete file."""
    aside = f"{path.rpartition('/')[0]}/.{path.rpartition('/')[2]}"
    if local := _local(spark, aside):
        local.parent.mkdir(parents=True, exist_ok=True)
        local.write_text(text, encoding="utf-8")
    else:
        stream = _hadoop(spark, aside).create(_path(spark, aside), True)
        stream.write(bytearray(text, "utf-8"))
        stream.close()
    rename_over(spark, aside, path)


def _local(spark: SparkSession, path: str) -> Path | None:
    """Return the local path, or ``None`` for a URL.

    On a cluster, a path without a scheme can belong to HDFS or another default file system: the result is ``None`` too.
    """
    if urlsplit(path).scheme:
        return None
    default_fs = spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS", "file:///")  # noqa: SLF001
    return Path(path) if default_fs.startswith("file:") else None


def _path(spark: SparkSession, path: str) -> Any:
    return _jvm(spark).org.apache.hadoop.fs.Path(path)


def _hadoop(spark: SparkSession, path: str) -> Any:
    return _path(spark, path).getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())  # noqa: SLF001 (as below)


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm  # noqa: SLF001 (pyspark has no other way to Hadoop's file systems)
