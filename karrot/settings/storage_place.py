"""Reads the place of an archive or of tables: a path, ``s3://bucket/prefix``, or for Spark another URL of Hadoop.

Karrot shows ``s3://`` everywhere. ``s3a://``, the scheme of Hadoop's S3 client, means the same.
"""

import os
import re
from pathlib import Path
from typing import NamedTuple, Self, TypeAlias

_S3, _S3A = "s3://", "s3a://"
_BUCKET = re.compile(r"s3a?://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/[\w!.*'()=-]+)*)/*", re.ASCII)
_URL = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*:(//)?")


class Bucket(NamedTuple):
    """An S3 bucket and the prefix of its keys, without a slash at either end."""

    name: str
    prefix: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``s3://bucket/prefix`` or ``s3a://bucket/prefix``. Raises `ValueError` for any other text."""
        matched = _BUCKET.fullmatch(text)
        if matched is None or {".", ".."} & set(matched[2].split("/")):
            raise ValueError(text)
        return cls(matched[1], matched[2].lstrip("/"))

    def __str__(self) -> str:
        return f"{_S3}{self.name}/{self.prefix}".rstrip("/")

    def key(self, path: str) -> str:
        """The key of an object below the prefix."""
        return f"{self.prefix}/{path}" if self.prefix else path


Place: TypeAlias = "Path | Bucket"
"""A place that Karrot reads or writes without Spark."""


def read_place(text: str) -> Place:
    """Read a path or an S3 address. A ``~`` at the start of a path is the home directory.

    Raises `ValueError` for every other URL, because as a path, ``gs://lag`` would be a folder named ``gs:``. This also
    holds for ``s3:/lag`` and ``hdfs:lag``, except if this machine has such a folder.
    """
    if text.startswith((_S3, _S3A)):
        return Bucket.parse(text)
    if not text or "\0" in text:
        raise ValueError(text)
    path = Path(os.path.expanduser(text))  # noqa: PTH111 (Path.expanduser raises an error without a home)
    url = _URL.match(text)
    if url and (url[1] or not os.path.isdir(path)):  # noqa: PTH112 (Path.is_dir raises an error for a long name)
        raise ValueError(text)
    return path


def read_spark_place(text: str) -> str:
    """Read a place for Spark: a path, an S3 address as ``s3://``, or another URL. Raises `ValueError`."""
    if text.startswith((_S3, _S3A)):
        return str(Bucket.parse(text))
    if not text.strip() or "\0" in text:
        raise ValueError(text)
    return text


def hadoop_url(place: str) -> str:
    """The same place for Hadoop's own S3 client, whose scheme is ``s3a://``. Other places do not change."""
    return _S3A + place.removeprefix(_S3) if place.startswith(_S3) else place


def shown(text: str) -> str:
    """A place, or a text with places, with ``s3://`` instead of the scheme of Hadoop's client."""
    return text.replace(_S3A, _S3)
