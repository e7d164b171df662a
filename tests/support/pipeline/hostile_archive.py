"""Writes an archive that no reporter should write, in three stages: each stage adds segments.

The archive has segments in any order, copied segments, segments that were cut in another way, lines twice in one
segment, late segments for past days, clocks that were set an hour back and two hours ahead, a second Karrot for the
same cluster, odd names, impossible lags, unknown statuses, partitions that come and go, a segment that is cut off, and
lines that cannot be read. Old segments arrive with old file times, as ``rsync -t`` copies them.
"""

import gzip
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

FIRST_DAY_MS = 1_794_614_400_000
"""2026-11-14 00:00 UTC."""

STAGES = 3
_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000
_BURSTS = (
    (10 * _HOUR, 45 * _MINUTE, 0),
    (23 * _HOUR + 30 * _MINUTE, _HOUR, 0),
    (_DAY + 12 * _HOUR, 25 * _MINUTE, -_HOUR),
    (_DAY + 12 * _HOUR + 25 * _MINUTE, 15 * _MINUTE, 2 * _HOUR),
    (_DAY + 23 * _HOUR + 40 * _MINUTE, 40 * _MINUTE, 0),
)
"""The times with events: start, duration, and how wrong the clock of Karrot is."""

_NAMES = (
    *("orders", "a/b", "100%", "{a}*?[b]", "a 'quoted' \"name\"", "🦄", "__HIVE_DEFAULT_PARTITION__", "day=2020-01-01"),
    *(" ", "line\nfeed\ttab", "ümlaut", "NULL", "nul\0", "back\\slash", "x" * 300),
)
_CLUSTERS = "prod", "{b}/%2F"
_TOPICS = "orders.v1", "t/%{}", "ünicode"
_IMPOSSIBLE_LAGS = 2**53 - 1, 2**53, 2**53 + 1, 2**60, 2**64 - 1
_STATUSES = "OK", "OK", "OK", "OK", "WARN", "STOP", "STALL", "REWIND", "ODD"
_MODES = "keeps up", "keeps up", "too slow", "stands still", "idle"


@dataclass(slots=True)
class _Partition:
    """A partition of a topic, as one group reads it."""

    topic: str
    number: int
    end: int
    committed: int
    mode: str
    since_ms: int
    history: list[tuple[int, int, int]] = field(default_factory=list)

    def move(self, rng: Random, now_ms: int) -> None:
        seconds, self.since_ms = (now_ms - self.since_ms) / 1000, now_ms
        if rng.random() < 0.05:
            self.mode = rng.choice(_MODES)
        if rng.random() < 0.004:
            self.end, self.committed, self.history = rng.randrange(50), 0, []  # the topic was created again
        if self.mode != "idle":
            self.end += int(seconds * rng.choice((0, 1, 5, 20)))
        if self.mode == "keeps up":
            self.committed = self.end - rng.choice((0, 0, 0, 3))
        elif self.mode == "too slow":
            self.committed = min(self.end, self.committed + int(seconds))
        if rng.random() < 0.01:
            self.committed = max(0, self.committed - 500)  # a rewind
        self.committed = max(0, self.committed)
        self.history = [*self.history[-9:], (now_ms - rng.randrange(3_000), self.committed, self.end - self.committed)]

    def told(self, rng: Random, owner: str | None) -> dict[str, Any]:
        (start_ms, start, start_lag), (end_ms, end, end_lag) = self.history[0], self.history[-1]
        lag: int | None = self.end - self.committed
        if rng.random() < 0.02:
            lag = rng.choice((None, *_IMPOSSIBLE_LAGS))
        return {
            "topic": self.topic,
            "partition": self.number,
            "status": rng.choice(_STATUSES),
            "owner": owner,
            "client_id": rng.choice((None, "client")),
            "start_offset": start,
            "start_ts_ms": start_ms if rng.random() < 0.98 else rng.choice((0, -1, 2**62)),
            "start_lag": start_lag if rng.random() < 0.9 else None,
            "end_offset": end if rng.random() < 0.995 else rng.choice((None, 2**63 - 1)),
            "end_ts_ms": end_ms,
            "end_lag": end_lag if rng.random() < 0.9 else None,
            "current_lag": lag,
            "complete": rng.choice((0.5, 1.0)),
        }


class _Group:
    """A consumer group with its verdicts. ``ids`` are the incident ids that it had."""

    def __init__(self, rng: Random, cluster: str, consumer: str) -> None:
        self.rng, self.cluster, self.consumer = rng, cluster, consumer
        self.members = rng.randint(1, 3)
        self.current: str | None = None
        self.ids: list[str] = []
        self.partitions = {
            (topic, number): _Partition(topic, number, 10_000, 10_000, rng.choice(_MODES), FIRST_DAY_MS)
            for topic in rng.sample(_TOPICS, rng.randint(1, 2))
            for number in range(rng.randint(1, 5))
        }

    def verdict(self, now_ms: int) -> dict[str, Any]:
        rng = self.rng
        if rng.random() < 0.02 and len(self.partitions) > 1:
            del self.partitions[rng.choice(list(self.partitions))]
        if rng.random() < 0.02:
            number = 10 + rng.randrange(3)
            place = "orders.v1", number
            self.partitions[place] = _Partition(*place, 5, 0, "too slow", now_ms)
        if rng.random() < 0.03:
            self.members = rng.randint(1, 3)
        for one in self.partitions.values():
            one.move(rng, now_ms)
        told = [one.told(rng, self._owner(one.number)) for one in self.partitions.values()]
        source = rng.choice(("webhook", "webhook", "webhook", "rest", "rest", "kafka"))
        listed = told if source != "webhook" else [one for one in told if one["status"] not in ("OK", "ODD")]
        known = [one for one in told if one["current_lag"] is not None]
        worst = max(known, key=lambda one: one["current_lag"], default=None) if rng.random() < 0.95 else None
        total = sum(one["current_lag"] for one in known) if rng.random() < 0.95 else None
        return {
            **self._says(now_ms),
            "source": source,
            "total_lag": total,
            "max_lag": worst["current_lag"] if worst else None,
            "scalable_lag": total,
            **self._seconds(worst),
            "produce_rate": rng.choice((None, 1.25)),
            "consume_rate": rng.choice((None, 0.0, 3.5)),
            "catch_up_seconds": rng.choice((None, 12.75)),
            "complete": rng.choice((None, 0.25, 1.0)),
            "partition_count": len(told) if rng.random() < 0.97 else None,
            "bad_partitions": sum(one["status"] not in ("OK", "ODD") for one in listed),
            "max_partition": worst,
            "partitions": listed,
        }

    def _owner(self, partition: int) -> str | None:
        return None if self.members == 3 and partition == 2 else f"/10.0.0.{partition % self.members}"

    def _seconds(self, worst: dict[str, Any] | None) -> dict[str, Any]:
        rng = self.rng
        kind = rng.choice((None, None, "exact", "extrapolated", "at_least"))
        place: tuple[str | None, int | None] = (None, None)
        if kind:
            place = (worst["topic"], worst["partition"]) if worst and rng.random() < 0.9 else ("elsewhere", 1)
        seconds = rng.choice((0.0, 31.5, 90.25, 4_000.125)) if kind or rng.random() < 0.7 else None
        return {
            "lag_seconds": seconds,
            "lag_seconds_kind": kind,
            "lag_seconds_topic": place[0],
            "lag_seconds_partition": place[1],
        }

    def _says(self, now_ms: int) -> dict[str, Any]:
        rng = self.rng
        status = rng.choice(
            ("OK", "OK", "OK", "OK", "WARN", "WARN", "WARN", "ERR", "ERR", "CLOSE", "NOTFOUND", "PANIC", "STOP")
        )
        start_ms = None
        if status in ("WARN", "ERR"):
            if self.current is None or rng.random() < 0.05:
                self.current = f"id-{len(self.ids)}" if not self.ids or rng.random() < 0.8 else rng.choice(self.ids)
                self.ids.append(self.current)
                start_ms = now_ms - rng.choice((0, 7_000, _HOUR, _DAY))
            named = self.current if rng.random() < 0.7 else None
            return {"status": status, "kind": "incident", "incident_id": named, "incident_start_ms": start_ms}
        kind = {"OK": "observation", "CLOSE": "close", "NOTFOUND": "deleted"}.get(status, "unknown")
        closes = (self.current or (rng.choice(self.ids) if self.ids else "unheard")) if kind == "close" else None
        if kind in ("observation", "close", "deleted"):
            self.current = None
        return {
            "status": "OK" if kind == "close" else status,
            "kind": kind,
            "incident_id": closes,
            "incident_start_ms": start_ms,
        }


@dataclass(frozen=True, slots=True)
class _Line:
    log_id: str
    seq: int
    received_ms: int
    text: bytes


def _events(rng: Random, groups: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of the burst, and the values of a line without its log."""
    every = [_Group(rng, cluster, name) for cluster in _CLUSTERS for name in _NAMES][:groups]
    for number, (start, duration, wrong_ms) in enumerate(_BURSTS):
        due = [(FIRST_DAY_MS + start + rng.randrange(_MINUTE), place) for place in range(len(every))]
        while due:
            now_ms, place = min(due)
            due.remove((now_ms, place))
            if now_ms >= FIRST_DAY_MS + start + duration:
                continue
            due.append((now_ms + rng.choice((1, 15_000, 60_000, 60_000, 61_500, 200_000, 400_000)), place))
            group = every[place]
            received_ms = now_ms + wrong_ms
            late_ms = rng.choice((0, 0, 0, 0, 40, 3_000, 20_000, -500, 2 * _DAY))
            yield (
                number,
                {
                    "received_at_ms": received_ms,
                    "observed_at_ms": received_ms - late_ms,
                    "cluster": group.cluster,
                    "consumer": group.consumer,
                    **group.verdict(received_ms),
                    "body": "{}",
                },
            )


class _Log:
    def __init__(self, log_id: str) -> None:
        self.log_id, self.seq = log_id, 0

    def line(self, values: dict[str, Any]) -> _Line:
        self.seq += 1
        named = {"v": 1, "event_id": f"{self.log_id}-{self.seq}", "log_id": self.log_id, "seq": self.seq}
        text = json.dumps(named | values, ensure_ascii=self.seq % 2 == 0).encode()
        return _Line(self.log_id, self.seq, values["received_at_ms"], text)


def bad_lines(good: bytes) -> list[bytes]:
    """Return lines that cannot be used, made from a good line."""
    values = json.loads(good)

    def changed(**other: Any) -> bytes:
        return json.dumps(values | other).encode()

    required = "event_id", "log_id", "seq", "received_at_ms", "cluster", "consumer", "status"
    too_large = {"topic": "t", "partition": 2**31, "status": "OK"}
    no_lists: tuple[Any, ...] = ({}, [1], "x", [too_large])
    no_texts: tuple[Any, ...] = (1, {}, [])
    return [
        *(
            b"",
            b"garbage",
            b"[]",
            b"{}",
            b"null",
            b"7",
            b"{" * 2_000,
            good[: len(good) // 2],
            good + b"}",
            b"\xff\xfe{}",
        ),
        good.replace(b'"consumer": "', b'"consumer": "\xff\xc3'),
        *(changed(v=version) for version in (2, 0, None)),
        *(changed(**{name: None}) for name in required),
        *(changed(received_at_ms=at) for at in (-1, 0, 1_420_070_399_999, 2**62)),
        *(changed(seq=seq) for seq in ("1", 1.5, 2**63, True, [1])),
        *(changed(partitions=listed) for listed in no_lists),
        *(changed(cluster=cluster) for cluster in no_texts),
        *(changed(lag_seconds=number) for number in ("1", float("nan"), float("inf"))),
    ]


def write_archive(directory: Path, seed: int, groups: int = 2 * len(_NAMES)) -> Callable[[int], None]:
    """Make the segments of all stages. Return a function that writes the segments of a stage below the directory."""
    rng = Random(seed)
    logs = _Log("a" * 32), _Log("b" * 32)
    bursts: list[list[_Line]] = [[] for _ in _BURSTS]
    for number, values in _events(rng, groups):
        bursts[number].append(logs[0].line(values))
        if values["cluster"] == _CLUSTERS[0] and rng.random() < 0.4:  # a second Karrot, 40 ms later
            moments = {name: values[name] + 40 for name in ("received_at_ms", "observed_at_ms")}
            bursts[number].append(logs[1].line(values | moments))
    cuts = [[*_cut(rng, lines)] for lines in bursts]
    late = rng.sample(cuts[0], len(cuts[0]) // 3) + rng.sample(cuts[1], len(cuts[1]) // 3)
    early = [lines for lines in cuts[0] + cuts[1] if lines not in late]
    stages = [early, late[::2] + cuts[2] + cuts[3], late[1::2] + cuts[4]]
    stages[1] += rng.sample(stages[0], 3)  # copied
    stages[2] += [*_cut(rng, bursts[0]), *_cut(rng, bursts[3])]  # cut in another way
    for number, stage in enumerate(stages):
        stage += [[*lines, *lines[::3]] for lines in rng.sample(stage, 2)]  # lines twice in one segment
        rng.shuffle(stage)
        bad = [_Line("c" * 32, 1, FIRST_DAY_MS, text) for text in bad_lines(early[0][number].text)]
        stage.append(bad)

    def write(stage: int) -> None:
        for number, lines in enumerate(stages[stage]):
            _write(directory / f"copy-{stage}", lines, stage, number, is_cut_off=number % 7 == 6)

    return write


def _cut(rng: Random, lines: list[_Line]) -> Iterator[list[_Line]]:
    """Cut the lines of each log into segments."""
    for log_id in sorted({line.log_id for line in lines}):
        of_log = [line for line in lines if line.log_id == log_id]
        while of_log:
            size = rng.randint(20, 120)
            yield of_log[:size]
            of_log = of_log[size:]


def _write(directory: Path, lines: list[_Line], stage: int, number: int, *, is_cut_off: bool) -> None:
    first, last = lines[0], lines[-1]
    hour = first.received_ms // _HOUR % 24
    folder = directory / f"day={(first.received_ms - FIRST_DAY_MS) // _DAY}" / f"hour={hour:02}" / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{first.log_id}-{first.seq}-{last.seq}-{len(lines)}.jsonl.gz"
    data = gzip.compress(b"".join(line.text + b"\n" for line in lines), mtime=0)
    path.write_bytes(data[: len(data) * 2 // 3] if is_cut_off else data)
    # The newest file of the first stages is more than a week newer than the late segments of the last stage.
    written_ms = FIRST_DAY_MS + (12 if stage == 1 and number == 0 else 2) * _DAY + number * 1_000
    os.utime(path, (written_ms / 1000, written_ms / 1000))
