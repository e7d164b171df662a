"""Reads the raw segments of an archive: the events, and the lines and segments that belong into quarantine."""

import base64
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.pipeline.expected_tables.calendar_ms import DAY_MS, END_OF_9999_MS, YEAR_2015_MS, day_text

_LARGEST_LAG = 2**53 - 1
_LONGEST_LINE = 32 << 20
_RAW_BYTES = 64 << 10
_SEGMENT = re.compile(r"[0-9a-f]+-\d+-\d+-(?P<lines>\d+)\.jsonl\.gz")

_INTEGER, _NUMBER = (int,), (int, float)
_PARTITION_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("partition", "start_offset", "start_ts_ms", "end_offset", "end_ts_ms"), _INTEGER),
    **dict.fromkeys(("start_lag", "end_lag", "current_lag", "complete"), _NUMBER),
}
_LINE_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("v", "seq", "received_at_ms", "observed_at_ms", "incident_start_ms"), _INTEGER),
    **dict.fromkeys(("partition_count", "bad_partitions", "lag_seconds_partition"), _INTEGER),
    **dict.fromkeys(("total_lag", "max_lag", "scalable_lag", "lag_seconds", "complete"), _NUMBER),
    **dict.fromkeys(("produce_rate", "consume_rate", "catch_up_seconds"), _NUMBER),
}
"""The types of a line's numbers. A text can have any type: instead of a text, its JSON is taken."""

_SMALL = ("partition", "bad_partitions", "lag_seconds_partition")
"""Numbers of 32 bits. All other integers have 64 bits."""

_REQUIRED = ("v", "event_id", "log_id", "seq", "received_at_ms", "cluster", "consumer", "status")


def _no_number(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


_JSON = json.JSONDecoder(parse_constant=_no_number)


@dataclass(frozen=True, slots=True)
class Listed:
    """A partition in an event."""

    topic: str
    partition: int
    status: str
    owner: str | None
    committed: int | None
    lag: int | None
    columns: Mapping[str, Any] = field(repr=False)

    @property
    def is_bad(self) -> bool:
        """Whether the partition is worse than OK."""
        return self.status not in {"OK", "LEFT", "ABANDONED"}

    @property
    def log_end(self) -> int | None:
        """The newest commit plus the present lag; None if the sum does not fit into 64 bits."""
        if self.committed is None or self.lag is None or self.committed + self.lag >= 2**63:
            return None
        return self.committed + self.lag


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the archive. ``columns`` has all values of its line."""

    log_id: str
    seq: int
    received_ms: int
    observed_ms: int | None
    cluster: str
    consumer: str
    status: str
    kind: str | None
    incident_id: str | None
    incident_start_ms: int | None
    total_lag: int | None
    partitions: tuple[Listed, ...]
    worst: Listed | None
    lists_all: bool
    columns: Mapping[str, Any] = field(repr=False)

    @property
    def group(self) -> tuple[str, str]:
        """Cluster and consumer group."""
        return self.cluster, self.consumer

    @property
    def arrival(self) -> tuple[int, int]:
        """The place in the order of arrival."""
        return self.received_ms, self.seq


@dataclass(slots=True)
class Archive:
    """The contents of an archive: each event once, the rows of ``quarantine``, and counts of lines."""

    events: list[Event] = field(default_factory=list)
    quarantine: list[dict[str, Any]] = field(default_factory=list)
    lines: int = 0
    duplicates: int = 0


def read_archive(directory: Path) -> Archive:
    """Read all segments below a directory. Files whose name begins with a dot are not complete."""
    found, seen = Archive(), set[tuple[str, int]]()
    for path in sorted(directory.rglob("*")):
        if not path.is_file() or any(part.startswith((".", "_")) for part in path.relative_to(directory).parts):
            continue
        written_ms = path.stat().st_mtime_ns // 1_000_000
        lines = list(lines_of(path))
        for count, line in enumerate(lines, 1):
            reason, values = judged(line, written_ms)
            if reason is not None:
                raw = base64.b64encode(line[:_RAW_BYTES]).decode()
                found.quarantine.append(_bad(path, written_ms, reason, raw=raw, position=count))
            elif (place := (values["log_id"], values["seq"])) in seen:
                found.duplicates += 1
            else:
                seen.add(place)
                found.events.append(event_of(values))
        found.lines += len(lines)
        promised = _SEGMENT.fullmatch(path.name)
        if promised and len(lines) < int(promised["lines"]):
            missing = int(promised["lines"]) - len(lines)
            found.quarantine.append(_bad(path, written_ms, "short_segment", missing=missing))
    return found


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a segment. A line ends only at a line feed. In a damaged segment, the last line is lost."""
    data, is_whole = _unpacked(path.read_bytes())
    *lines, rest = data.split(b"\n")
    yield from lines
    if rest and is_whole:
        yield rest


def _unpacked(data: bytes) -> tuple[bytes, bool]:
    """Return the contents of a gzip file with any number of members, and whether the file is not damaged."""
    found = b""
    while data:
        member = zlib.decompressobj(wbits=31)
        try:
            found += member.decompress(data)
        except zlib.error:
            return found, False
        if not member.eof:
            return found, False
        data = member.unused_data
    return found, True


def judged(line: bytes, written_ms: int) -> tuple[str | None, dict[str, Any]]:
    """Return the reason why a line cannot be used, or None with the values of the line."""
    if len(line) > _LONGEST_LINE:
        return "too_long", {}
    try:
        values, _ = _JSON.raw_decode(line.decode(errors="replace").lstrip())
    except (ValueError, RecursionError):
        return "unreadable", {}
    if not isinstance(values, dict) or not _has_types(values, _LINE_TYPES) or not _has_sound_partitions(values):
        return "unreadable", {}
    return _why_unusable(values, written_ms), values


def _why_unusable(values: Mapping[str, Any], written_ms: int) -> str | None:
    if values.get("v") not in (None, 1):
        return "unknown_version"
    if any(values.get(name) is None for name in _REQUIRED):
        return "missing_field"
    is_possible = YEAR_2015_MS <= values["received_at_ms"] <= written_ms + DAY_MS
    return None if is_possible else "impossible_time"


def _has_types(values: Mapping[str, Any], types: Mapping[str, tuple[type, ...]]) -> bool:
    return all(values.get(name) is None or _has_type(values[name], kinds, name) for name, kinds in types.items())


def _has_type(value: Any, kinds: tuple[type, ...], name: str) -> bool:
    if isinstance(value, bool) or not isinstance(value, kinds):
        return False
    bits = 31 if name in _SMALL else 63
    return float in kinds or not isinstance(value, int) or -(2**bits) <= value < 2**bits


def _has_sound_partitions(values: Mapping[str, Any]) -> bool:
    listed = values.get("partitions", [])
    if listed is not None and not isinstance(listed, list):
        return False
    every = [one for one in (*(listed or ()), values.get("max_partition")) if one is not None]
    return all(isinstance(one, dict) and _has_types(one, _PARTITION_TYPES) for one in every)


def event_of(values: Mapping[str, Any]) -> Event:
    """Make the event of a good line. A lag of 2^53 or more is unknown, and so is an impossible time."""
    partitions = tuple(map(_listed, values.get("partitions") or ()))
    return Event(
        log_id=values["log_id"],
        seq=values["seq"],
        received_ms=values["received_at_ms"],
        observed_ms=moment(values.get("observed_at_ms")),
        cluster=values["cluster"],
        consumer=values["consumer"],
        status=values["status"],
        kind=values.get("kind"),
        incident_id=values.get("incident_id"),
        incident_start_ms=moment(values.get("incident_start_ms")),
        total_lag=lag(values.get("total_lag")),
        partitions=partitions,
        worst=_listed(values["max_partition"]) if values.get("max_partition") else None,
        lists_all=values.get("partition_count") is not None
        and sum(one.status != "LEFT" for one in partitions) == values["partition_count"] > 0,
        columns=values,
    )


def _listed(values: Mapping[str, Any]) -> Listed:
    return Listed(
        values["topic"],
        values["partition"],
        values["status"],
        values.get("owner"),
        values.get("end_offset"),
        lag(values.get("current_lag")),
        values,
    )


def lag(number: float | None) -> int | None:
    """Return a lag as it is in the tables."""
    return None if number is None or number > _LARGEST_LAG else int(number)


def moment(at_ms: int | None) -> int | None:
    """Return a time, or None if the number is no possible time."""
    return at_ms if at_ms is not None and 0 < at_ms < END_OF_9999_MS else None


def _bad(path: Path, written_ms: int, reason: str, **columns: Any) -> dict[str, Any]:
    row = {"source": path.name, "reason": reason, "raw": None, "position": None, "missing": None}
    return {**row, **columns, "day": day_text(written_ms)}


def events_rows(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Make the table ``events``."""
    return [_event_row(event) for event in events]


def _event_row(event: Event) -> dict[str, Any]:
    values = event.columns
    worst: Mapping[str, Any] = values.get("max_partition") or {}
    same = (
        *("event_id", "log_id", "seq", "received_at_ms", "observed_at_ms", "source", "cluster", "consumer", "status"),
        *("kind", "incident_id", "incident_start_ms", "lag_seconds", "produce_rate", "consume_rate"),
        *("catch_up_seconds", "complete", "partition_count", "bad_partitions"),
        *("lag_seconds_kind", "lag_seconds_topic", "lag_seconds_partition"),
    )
    return {
        **{name: values.get(name) for name in same},
        "received_at": moment(event.received_ms),
        "observed_at": event.observed_ms,
        "incident_start": event.incident_start_ms,
        **{name: lag(values.get(name)) for name in ("total_lag", "max_lag", "scalable_lag")},
        "max_lag_topic": worst.get("topic"),
        "max_lag_partition": worst.get("partition"),
        "max_lag_owner": worst.get("owner"),
        "max_lag_committed": worst.get("end_offset"),
        "max_lag_first_end": first_log_end(worst),
        "day": day_text(event.received_ms),
    }


def first_log_end(worst: Mapping[str, Any]) -> int | None:
    """Return the log end at the oldest commit that a verdict has of a partition."""
    offset, behind = worst.get("start_offset"), lag(worst.get("start_lag"))
    return None if offset is None or behind is None or offset + behind >= 2**63 else int(offset) + behind


def partitions_rows(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Make the table ``partitions``."""
    same = (
        "topic",
        "partition",
        "status",
        "owner",
        "client_id",
        "start_offset",
        "start_ts_ms",
        "end_offset",
        "end_ts_ms",
    )
    return [
        {
            **{
                name: event.columns.get(name) for name in ("event_id", "log_id", "seq", "source", "cluster", "consumer")
            },
            "received_at": moment(event.received_ms),
            "observed_at": event.observed_ms,
            **{name: one.columns.get(name) for name in same},
            "start_ts": moment(one.columns.get("start_ts_ms")),
            "end_ts": moment(one.columns.get("end_ts_ms")),
            **{name: lag(one.columns.get(name)) for name in ("start_lag", "end_lag", "current_lag")},
            "complete": one.columns.get("complete"),
            "day": day_text(event.received_ms),
        }
        for event in events
        for one in event.partitions
    ]
