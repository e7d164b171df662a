"""Renders the pipeline's tables as SQL for Amazon Athena, and the JSON topic of offsets as specs for Druid."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from karrot.render import validation
from karrot.render.jinja_templates import rendered, templates_dir
from karrot.settings import types
from karrot.settings.storage_place import Bucket

_MOST_DAYS = 36_500
_MOMENT = r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?Z?)?"
_INTERVAL = rf"{_MOMENT}/({_MOMENT}|P\w+)|P\w+/{_MOMENT}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Athena:
    """The location of the tables and the name of their database. Raises `ValueError` with one message per line.

    A query without a condition on the day reads the last ``days`` days, by default as many as compact keeps.
    """

    location: str
    database: str = "karrot"
    days: int = 400

    def __post_init__(self) -> None:
        validation.refuse(_athena_problems(self))


def athena(asked: Athena) -> str:
    """The SQL that creates the database and its tables. It needs no PySpark, because a template has the columns."""
    return rendered(
        "athena/tables.sql.j2",
        tables=_tables(),
        location=str(Bucket.parse(asked.location)),
        database=asked.database,
        days=asked.days,
    )


def _tables() -> Mapping[str, Any]:
    read: Mapping[str, Any] = yaml.safe_load((templates_dir() / "athena" / "columns.yaml").read_text(encoding="utf-8"))
    return read


def _athena_problems(asked: Athena) -> Iterator[str]:
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,127}", asked.database, re.ASCII):
        yield f"--database is {types.quoted(asked.database)}: it must be lower-case letters, digits and underscores"
    if not _is_in_s3(asked.location):
        yield f"--tables is {types.quoted(asked.location)}: it must be s3://bucket/prefix, the location of the tables"
    yield from validation.whole("--days", asked.days, 1, _MOST_DAYS)


def _is_in_s3(location: str) -> bool:
    """Whether the location is in S3 and fits into a quoted SQL string."""
    try:
        Bucket.parse(location)
    except ValueError:
        return False
    return "'" not in location


@dataclass(frozen=True, slots=True, kw_only=True)
class Druid:
    """The brokers, topic, data source, group and interval for Druid. Raises `ValueError` with one message per line."""

    bootstrap: str
    group: str
    topic: str = "consumer_offsets_json"
    datasource: str = "consumer_offsets"
    interval: str = "2017-01-01/2100-01-01"

    def __post_init__(self) -> None:
        validation.refuse(_druid_problems(self))


def druid_ingestion(asked: Druid) -> str:
    """The spec of a Druid supervisor. A row is a group, topic, partition and minute, as in ``offsets_minute``.

    A tombstone has neither an offset nor a time. It gets a substitute timestamp and is then filtered out.
    """
    return rendered(
        "druid/ingestion.json.j2", topic=asked.topic, datasource=asked.datasource, bootstrap=asked.bootstrap
    )


def druid_query(asked: Druid) -> str:
    """Druid's native query, as it was used in 2017: the sum of a group's offsets by minute, newest first."""
    return rendered("druid/query.json.j2", datasource=asked.datasource, group=asked.group, interval=asked.interval)


def _druid_problems(asked: Druid) -> Iterator[str]:
    yield from validation.of_kind(types.brokers, "--bootstrap-servers", asked.bootstrap)
    if re.search("[\ud800-\udfff]", asked.group):
        yield f"--group is {types.quoted(asked.group)}: it must be a text in UTF-8"
    yield from validation.matching("--json-topic", asked.topic, r"[a-zA-Z0-9._-]{1,249}", "the name of a topic")
    yield from validation.matching("--datasource", asked.datasource, r"[^/\s]+", "a name without slashes and spaces")
    yield from validation.matching(
        "--interval", asked.interval, _INTERVAL, "as 2026-11-20/2026-11-21 or P1D/2026-11-21"
    )
