"""Opens the pipeline's tables, which are Delta tables, and lists their data files at one version.

```
<tables>/lag_minute/_delta_log/00000000000000000041.json               which files belong to each version
<tables>/lag_minute/batch_id=…/day=2026-11-20/piece=0/part-….parquet   a data file, which never changes
```

A data file has a new name in every write, and the log of the table (``_delta_log``) lists the files of each version. So
a reader that has listed the files of a version can read them while a writer commits the next version. ``karrot pipeline
compact`` deletes a file a day after the last version that has it.
"""

# ruff: noqa: PLC0415 - deltalake is an extra, and botocore takes long to load

import re
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self
from urllib.parse import unquote

from karrot.aws.classify_errors import FaultKind, fault_of

if TYPE_CHECKING:
    from botocore.session import Session
    from deltalake import DeltaTable

LOG: Final = "_delta_log"
"""The directory of the log, in the directory of a table."""

_READER: Final = 1
"""Delta's newest reader version whose data files have all rows of a table, and no deleted ones, by their real names."""

_LOOKS: Final = 5
"""How often a log is listed if entries are missing in the middle: a writer can add entries while a listing is made."""

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_OTHER_PLACE: Final = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f]")
"""Parts of a path for which deltalake opens another path, or none: it decodes ``%20``, and takes ``\\`` for ``/``."""


class DataFile(NamedTuple):
    """A data file of a table. ``path`` is below the directory of the table, and ``size`` is in bytes."""

    path: str
    day: date
    size: int
    rows: int

    @classmethod
    def at(cls, path: str, size: int, rows: int) -> Self:
        """Make a file from its path, which names the day."""
        return cls(path, date.fromisoformat(_part(path, "day")), size, rows)

    @property
    def batch_id(self) -> str:
        """The name of the batch that wrote the file. Each write of a batch adds another suffix to the folder."""
        return _part(self.path, "batch_id").partition(".")[0]

    @property
    def piece(self) -> int:
        """The first hour of the part of the day that the file holds; 0 if the file holds the whole day."""
        return int(_part(self.path, "piece") or 0)

    @property
    def partition(self) -> dict[str, str | None]:
        """The values of the partition columns, as the log of the table has them."""
        return {"day": self.day.isoformat()}


def _part(path: str, name: str) -> str:
    return next((part.removeprefix(f"{name}=") for part in path.split("/") if part.startswith(f"{name}=")), "")


def open_table(place: str, options: Mapping[str, str], version: int | None = None) -> "DeltaTable | None":
    """Open a table, by default its newest version; ``None`` if the place has no table.

    ``options`` are deltalake's ``storage_options``. Raises deltalake's ``DeltaError`` and OSError.
    """
    from deltalake.exceptions import DeltaError, TableNotFoundError
    from deltalake.schema import PrimitiveType

    if found := _OTHER_PLACE.search(place):
        raise DeltaError(f"the path has {found[0]!r}, which Delta tables cannot have in their path: use another one")
    if "://" not in place:
        try:
            Path(place, LOG).stat()  # deltalake does not tell a missing table from a missing permission
        except (FileNotFoundError, NotADirectoryError):
            return None
    try:
        table = _opened(place, version, options)
    except TableNotFoundError:
        # deltalake raises this error also for a version whose entries were deleted from the log. It is not empty.
        if version is None or open_table(place, options) is None:
            return None
        raise DeltaError(f"version {version} is not in its log any more: run the command again") from None
    if (needed := table.protocol().min_reader_version) > _READER:
        raise DeltaError(f"it needs version {needed} of Delta's readers, and Karrot reads version {_READER} only")
    days = [each.type for each in table.schema().fields if each.name == "day"]
    if "day" not in table.metadata().partition_columns or days != [PrimitiveType("date")]:
        raise DeltaError("it is not one of Karrot's tables, because its partition column is not the date day")
    return table


def _opened(place: str, version: int | None, options: Mapping[str, str], looks: int = _LOOKS) -> "DeltaTable":
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        return DeltaTable(place, version, dict(options))
    except DeltaError as error:
        if looks == 1 or "contiguous commit files" not in str(error):
            raise
        return _opened(place, version, options, looks - 1)


def data_files(table: "DeltaTable") -> Sequence[DataFile]:
    """List the data files of the version that the table was opened at, by their paths."""
    listed = table.get_add_actions(flatten=True)
    columns = ("path", "partition.day", "size_bytes", "num_records")
    found = zip(*(listed.column(name).to_pylist() for name in columns), strict=True)
    return sorted(DataFile(unquote(path), *more) for path, *more in found)


def why(error: Exception) -> str:
    """Return the first and the last line of deltalake's message, without colours and without its backtrace."""
    lines = [line.strip(" ↳") for line in _COLOUR.sub("", str(error)).partition("\n   0:")[0].splitlines()]
    said = [line for line in lines if line]
    return ": ".join(dict.fromkeys((said[0], said[-1]))) if said else type(error).__name__


@cache
def _session() -> "Session":
    from botocore.session import Session

    return Session()


forget_credentials: Final = _session.cache_clear


def s3_options(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the ``storage_options`` with which deltalake uses S3 as boto3 does: Region, endpoint and credentials.

    The credentials can expire, so the caller asks for each table that it opens. After an error, `forget_credentials`
    makes the next call read them again. Raises OSError if they cannot be read: PermissionError if they are missing or
    wrong.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    session = _session()
    try:
        credentials = session.get_credentials()
        keys = credentials and credentials.get_frozen_credentials()
    except (BotoCoreError, ClientError, OSError, ValueError) as error:
        fault = fault_of(error)
        is_refused = fault.kind in {FaultKind.CREDENTIALS, FaultKind.PERMISSION}
        raise (PermissionError if is_refused else OSError)(fault.text) from error
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or ""
    options = {
        "aws_region": environ.get("AWS_REGION", "").strip() or session.get_config_variable("region") or "us-east-1",
        "aws_endpoint_url": endpoint,
        "allow_http": str(endpoint.startswith("http://")).lower(),
    }
    if keys:
        options |= {"aws_access_key_id": keys.access_key, "aws_secret_access_key": keys.secret_key}
        options["aws_session_token"] = keys.token or ""
    return {name: value for name, value in options.items() if value}
