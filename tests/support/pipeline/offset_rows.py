"""Makes rows of the tables ``commits``, ``ends`` and ``members``; seconds count from `row_times.MIDNIGHT`."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from support.pipeline.row_times import epoch_ms, second_at

_OFFSETS = itertools.count(1)


def commit_row(
    seconds: float, consumer: str, offset: int | None, topic: str = "t", partition: int = 0
) -> dict[str, Any]:
    """Make a row of ``commits``, or a tombstone without an offset. Later rows have higher log offsets."""
    tombstone = offset is None
    told = {
        "version": 3,
        "offset": offset,
        "commit_ts": second_at(seconds),
        "commit_ts_ms": epoch_ms(second_at(seconds)),
    }
    row = {"consumer": consumer, "topic": topic, "partition": partition, "tombstone": tombstone}
    return _record(seconds) | row | ({} if tombstone else told)


def member_rows(
    seconds: float, consumer: str, generation: int, assigned: Mapping[str, Sequence[int | tuple[str, int]]]
) -> list[dict[str, Any]]:
    """Make the rows of ``members`` of one record: each member with its partitions, by default of topic ``t``."""
    record = _record(seconds) | {"consumer": consumer, "generation": generation, "protocol": "range"}
    told = [
        record | {"leader": min(assigned), "member_id": name, "client_host": f"/{name}"} | had
        for name, partitions in assigned.items()
        for places in [[("t", one) if isinstance(one, int) else one for one in partitions]]
        for had in [{"topic": topic, "partition": one} for topic, one in places] or [{}]
    ]
    return told or [record]


def log_end_row(
    seconds: float, end_offset: int, topic: str = "t", partition: int = 0, *, start: int = 0
) -> dict[str, Any]:
    """Make a row of ``ends``."""
    return {
        "cluster": "c",
        "topic": topic,
        "partition": partition,
        "start_offset": start,
        "end_offset": end_offset,
        "observed_at": second_at(seconds),
        "observed_at_ms": epoch_ms(second_at(seconds)),
        "day": second_at(seconds).date(),
    }


def _record(seconds: float) -> dict[str, Any]:
    place = {
        "log_partition": 7,
        "log_offset": next(_OFFSETS),
        "log_ts": second_at(seconds),
        "log_ts_ms": epoch_ms(second_at(seconds)),
    }
    return {"cluster": "c", "day": second_at(seconds).date()} | place
