"""The pipeline's tables as Spark DataFrames, and the transforms that make them, for notebooks and your own Spark jobs.

```
spark = karrot.tables.session()
tables = karrot.tables.open(spark, "s3://lag/tables")
tables["lag_minute"].where("lag_max > 1000").show()
karrot.tables.lag_minute(tables["events"]).show()
```

A transform takes DataFrames and returns a DataFrame; ``help(karrot.tables.lag_minute)`` says what it needs. The first
use of a name imports pyspark.
"""
# ruff: noqa: PLC0414 (the names are for users)

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from karrot.pipeline.derive.incidents import incidents as incidents
    from karrot.pipeline.derive.incidents import without_summary as without_summary
    from karrot.pipeline.derive.lag_minute import lag_minute as lag_minute
    from karrot.pipeline.derive.rates_minute import rates_minute as rates_minute
    from karrot.pipeline.derive.rates_minute import whole_listings as whole_listings
    from karrot.pipeline.derive.skew_minute import skew_minute as skew_minute
    from karrot.pipeline.derive.slo_daily import Objective as Objective
    from karrot.pipeline.derive.slo_daily import slo_daily as slo_daily
    from karrot.pipeline.derive.status_intervals import status_intervals as status_intervals
    from karrot.pipeline.derive.status_intervals import verdict_runs as verdict_runs
    from karrot.pipeline.offsets.commits import commits as commits
    from karrot.pipeline.offsets.commits import decode_offsets as decode_offsets
    from karrot.pipeline.offsets.members import members as members
    from karrot.pipeline.offsets.members import members_of as members_of
    from karrot.pipeline.spark_session import session as session
    from karrot.pipeline.store.table_files import Tables

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "derive.incidents": ("incidents", "without_summary"),
    "derive.lag_minute": ("lag_minute",),
    "derive.rates_minute": ("rates_minute", "whole_listings"),
    "derive.skew_minute": ("skew_minute",),
    "derive.slo_daily": ("Objective", "slo_daily"),
    "derive.status_intervals": ("status_intervals", "verdict_runs"),
    "offsets.commits": ("commits", "decode_offsets"),
    "offsets.members": ("members", "members_of"),
    "spark_session": ("session",),
}


class SessionNotUtc(ValueError):  # noqa: N818 (names the state of the session)
    """The time zone of the Spark session is not UTC, so rows would get the wrong day. The message has the cure."""


@dataclass(frozen=True)
class OpenTables(Mapping[str, "DataFrame"]):
    """A DataFrame of each table, by its name. A table without rows is empty."""

    spark: "SparkSession"
    tables: "Tables"

    def __getitem__(self, name: str) -> "DataFrame":
        return self.tables.read_files(self.spark, name, self.tables.kept[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables.kept)

    def __len__(self) -> int:
        return len(self.tables.kept)


def open(spark: "SparkSession", place: "str | Path") -> OpenTables:  # noqa: A001 (karrot.tables.open)
    """Open the tables at a local path or a URL (``s3://…``, ``hdfs://…``), all as the last ``derive`` left them.

    They do not change any more, but ``karrot pipeline run`` deletes the files of old versions after 24 hours. Raises
    `SessionNotUtc`, FileNotFoundError without tables, and `karrot.pipeline.store.table_files.UnreadableTable`. Spark
    Connect has no JVM with Hadoop's file systems, so it raises an error of pyspark.
    """
    from karrot.pipeline.store.table_files import Tables  # noqa: PLC0415 (pyspark is an extra)

    _require_utc(spark)
    found = Tables.at(spark, str(place)).together(spark)
    if not any(found.kept.values()):
        raise FileNotFoundError(f"{place} has no tables with rows: give it --tables of karrot pipeline run")
    return OpenTables(spark, found)


def __getattr__(name: str) -> Any:
    home = next((home for home, names in _NAMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"karrot.pipeline.{home}"), name)

    @wraps(found)
    def transform(first: "DataFrame", *more: Any, **named: Any) -> Any:
        _require_utc(first.sparkSession)
        return found(first, *more, **named)

    transform.__module__ = __name__  # help() lists only this module's functions
    return transform if home != "spark_session" and not isinstance(found, type) else found


def __dir__() -> list[str]:
    return ["OpenTables", "SessionNotUtc", "open", *(name for names in _NAMES.values() for name in names)]


def _require_utc(spark: "SparkSession") -> None:
    if (zone := spark.conf.get("spark.sql.session.timeZone")) not in ("UTC", "Etc/UTC", "GMT", "Z", "+00:00"):
        cure = 'spark.conf.set("spark.sql.session.timeZone", "UTC")'
        raise SessionNotUtc(f"the time zone of the Spark session is {zone}, so rows would get the wrong day: {cure}")
