"""Makes rows of the table ``events``, and of ``partitions`` for the partitions that they list."""

import datetime as dt
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from karrot.pipeline.schemas_and_conversions import EVENTS, PARTITIONS, with_day
from support.pipeline.expected_tables.archive_lines import Event, event_of
from support.pipeline.row_times import epoch_ms, second_at
from support.pipeline.table_files import write_rows

_SEQ = itertools.count(1)


class KindAndStatus(NamedTuple):
    """An event kind and its status."""

    kind: str
    status: str


_KINDS = {
    "ok": KindAndStatus("observation", "OK"),
    "warn": KindAndStatus("incident", "WARN"),
    "err": KindAndStatus("incident", "ERR"),
    "close": KindAndStatus("close", "OK"),
    "gone": KindAndStatus("deleted", "NOTFOUND"),
    "odd": KindAndStatus("unknown", "PANIC"),
}


def event_row(seconds: float, word: str, incident_id: str | None = None, **columns: Any) -> dict[str, Any]:
    """Make a row of ``events``: an event of group ``g`` that many seconds after `MIDNIGHT`.

    ``word`` is ``ok``, ``warn``, ``err``, ``close``, ``gone`` or ``odd``. ``late`` is the seconds between observation
    and arrival. ``topics`` has the topics of its bad partitions.
    """
    seq, received = columns.pop("seq", None) or next(_SEQ), second_at(seconds)
    observed = received - dt.timedelta(milliseconds=round(columns.pop("late", 0) * 1_000))
    start: dt.datetime | None = columns.get("incident_start")
    kind = _KINDS[word]
    row = {
        "event_id": f"log-{seq}",
        "log_id": "log",
        "seq": seq,
        "received_at": received,
        "received_at_ms": epoch_ms(received),
        "observed_at": observed,
        "observed_at_ms": epoch_ms(observed),
        "source": "webhook",
        "cluster": "c",
        "consumer": "g",
        "status": kind.status,
        "kind": kind.kind,
        "incident_id": incident_id,
        "incident_start_ms": None if start is None else epoch_ms(start),
        "bad_partitions": 0,
        "day": received.date(),
    }
    return row | columns


def events_frame(spark: SparkSession, rows: Iterable[dict[str, Any]]) -> DataFrame:
    """Make a frame of events with their days from the rows."""
    return frame_of_rows(spark, with_day(EVENTS), rows)


def partitions_frame(spark: SparkSession, rows: Iterable[dict[str, Any]]) -> DataFrame:
    """Make a frame of the events' partitions, from each row's ``topics`` (bad ones) or its ``listed`` columns."""
    return frame_of_rows(spark, with_day(PARTITIONS), itertools.chain.from_iterable(map(_listed, rows)))


def write_events(tables: Path, batch: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write events and their partitions as a batch of both tables, without Spark."""
    write_rows(tables, "events", rows, batch=batch)
    write_rows(tables, "partitions", itertools.chain.from_iterable(map(_listed, rows)), batch=batch)


def event_of_row(row: dict[str, Any]) -> Event:
    """The event of a row and its partitions, for `support.pipeline.expected_tables`."""
    return event_of(row | {"partitions": _listed(row)})


def _listed(row: dict[str, Any]) -> Sequence[dict[str, Any]]:
    bad = [{"topic": topic, "partition": 0, "status": "STALL"} for topic in row.get("topics", ())]
    return [row | {"status": "OK"} | one for one in [*bad, *row.get("listed", ())]]


def frame_of_rows(spark: SparkSession, schema: StructType, rows: Iterable[dict[str, Any]]) -> DataFrame:
    """Make a frame with the columns of a schema; missing values are NULL. Arrow avoids the start of Python workers."""
    return spark.createDataFrame(pa.Table.from_pylist(list(rows), to_arrow_schema(schema, timezone="UTC")), schema)
