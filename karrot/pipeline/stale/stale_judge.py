"""Alerts on partitions whose committed offset does not move, from the batches of `karrot.pipeline.offsets.job`.

Spark judges all partitions. The driver writes the state of a batch, with all lines to deliver, before it delivers the
first line. So a restart loses no line. A line is repeated only if the driver dies after it delivers the line and before
it records the delivery.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
import numpy as np
from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F

from karrot.clock import Clock, SystemClock
from karrot.event import TopicPartition
from karrot.history.offsets_at_time import lag_at
from karrot.http_client import ACCEPTED, HttpClient, RequestFailed
from karrot.pipeline.offsets.job import OffsetsBatch
from karrot.pipeline.offsets.kept_log_ends import LOG_ENDS, KeptLogEnds
from karrot.pipeline.offsets.log_ends import LogEndLook
from karrot.pipeline.stale.stale_partition_rule import (
    FORGOTTEN_MS,
    GRAINS,
    PARTITION,
    SAMPLES,
    STANDINGS,
    forget_old_samples,
    held_until,
    judged,
    merged_standings,
    newest_commits,
)
from karrot.pipeline.store.hadoop_filesystem import literal
from karrot.pipeline.store.table_files import Tables
from karrot.pipeline.stream.streaming_queries import StateFolder, StateNote
from karrot.text import iso_ms

_MS: Final = timedelta(milliseconds=1)


def lines_of(row: Row, cluster: str) -> Iterator[str]:
    """Yield the lines of a row of `STANDINGS`: first the alert that the batch cleared, then the alert it opened."""
    if row.cleared_offset is not None:
        yield _line("cleared", row, cluster, (row.cleared_offset, row.cleared_since_ms))
    if row.fired:
        yield _line("stale", row, cluster, (row.offset, row.since_ms))


def _line(state: str, row: Row, cluster: str, alert: tuple[int, int]) -> str:
    """Make one line. The lines "stale" and "cleared" of an alert have the same ``id``."""
    key = {"cluster": cluster, "group": row.consumer, "topic": row.topic, "partition": row.partition}
    named = msgspec.json.encode(([*key.values()], alert))
    facts: dict[str, Any] = {
        "state": state,
        "id": hashlib.sha256(named).hexdigest()[:16],
        **key,
        "current_offset": row.offset,
        "log_end_offset": row.end_offset,
        "lag": None if row.offset is None else lag_at(row.end_offset, row.looked_at_ms, row.offset, row.at_ms),
        "since": iso_ms(alert[1]),
        "committed_at": iso_ms(row.at_ms),
        "looked_at": iso_ms(row.looked_at_ms),
    }
    return msgspec.json.encode(facts).decode()


MOST_UNSENT: Final = 10_000
"""The maximum number of lines that wait for a webhook. If more lines wait, the oldest lines are dropped."""

_MOST_S: Final = 30
"""How long a batch sends lines. The other lines wait, because a slow webhook would hold back the other judges."""


class DeliverySummary(NamedTuple):
    """The numbers of a batch's lines. ``delivered``: all receivers have them. ``problem``: why the others wait."""

    delivered: int = 0
    unsent: int = 0
    dropped: int = 0
    problem: str = ""


_VERSION: Final = 3


class StaleNote(StateNote):
    """The content of ``state.json``: the time of the newest sample, and the lines that are not delivered yet.

    While ``sampled_ms`` is before ``held_until_ms``, no partition becomes stale. ``polled_ms`` is the real time of the
    newest sample, which can be after the time of the batch. ``sent`` says how many of the first lines of ``unsent`` a
    receiver has, by its name.
    """

    sampled_ms: int = 0
    held_until_ms: int = 0
    unsent: list[str] = msgspec.field(default_factory=list)
    sent: dict[str, int] = msgspec.field(default_factory=dict)
    polled_ms: int = 0


@dataclass(slots=True)
class StaleJudge:
    """Finds the partitions whose committed offset did not move for ``length``, and delivers a line for each alert.

    Each of the ``receivers``, by name, sends a line or raises `Undelivered`. The judge calls ``tell`` with the summary
    of each batch. In its first batch, it reads the tables since the day ``since``, so that the first alerts need not
    wait for ``length``.
    """

    spark: SparkSession
    cluster: str
    tables: Tables
    place: str
    length: timedelta
    since: date
    receivers: Mapping[str, Callable[[str], object]]
    tell: Callable[[DeliverySummary], object] = lambda _summary: None
    clock: Clock = field(default_factory=SystemClock)
    name: str = field(default="stale", init=False)
    folder: StateFolder[StaleNote] = field(init=False)
    _samples: KeptLogEnds | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.folder = StateFolder(self.spark, self.tables, self.place, StaleNote(_VERSION, cluster=self.cluster))

    def last_batch(self) -> int:
        return self.folder.note().batch

    def topics(self) -> Collection[str]:
        return {place.topic for place in self.samples().places}

    def take(self, batch: OffsetsBatch) -> None:
        note, dropped = self.folder.note(), 0
        if batch.number > note.batch:
            new_note, total = self.advance(batch)
            new = self.lines(batch.number, MOST_UNSENT) if total else []
            unsent = [*note.unsent, *new][-MOST_UNSENT:]
            dropped = len(note.unsent) + total - len(unsent)
            sent = {name: max(0, count - dropped) for name, count in note.sent.items()}
            note = self.folder.remember(msgspec.structs.replace(new_note, unsent=unsent, sent=sent))
        sent, problem = {name: note.sent.get(name, 0) for name in self.receivers}, ""
        for name, deliver in self.receivers.items():
            began_ms = self.clock.boot_ms()
            try:
                for line in note.unsent[sent[name] :]:
                    if self.clock.boot_ms() - began_ms > _MOST_S * 1000:
                        problem = f"it took more than {_MOST_S} s"
                        break
                    deliver(line)
                    sent[name] += 1
            except Undelivered as error:
                problem = str(error)
        delivered = min(sent.values())
        sent = {name: count - delivered for name, count in sent.items()}
        if (unsent := note.unsent[delivered:], sent) != (note.unsent, note.sent):
            self.folder.remember(msgspec.structs.replace(note, unsent=unsent, sent=sent))
        self.tell(DeliverySummary(delivered, len(unsent), dropped, problem))

    def advance(self, batch: OffsetsBatch) -> tuple[StaleNote, int]:
        """Judge the records of a batch and write the state. Return the note without the new lines, and their number."""
        note, samples, length_ms = self.folder.note(), self.samples(), self.length // _MS
        commits, look = _commits(batch.records), batch.look
        if note.batch < 0:
            known, look = self._of_tables()
            commits = commits.unionByName(known)  # the batch can have older commits than ``since``
        # The batch has the commits until ``now_ms``. So a later sample counts as one of that time.
        now_ms = min(max(batch.now_ms, note.sampled_ms), self.clock.wall_ms())
        before_ms = sampled_ms = min(note.sampled_ms, now_ms)
        polls_ms = [min(note.polled_ms or note.sampled_ms, self.clock.wall_ms())]
        if look is not None:
            samples.add(look, now_ms)
            polls_ms += (each for each in np.unique(look.at_ms).tolist() if each > polls_ms[0])
            sampled_ms = max(before_ms, min(now_ms, int(look.at_ms.max(initial=0))))
        of_logs = self.spark.createDataFrame(forget_old_samples(samples, length_ms), SAMPLES)
        times_ms = before_ms, sampled_ms
        held_ms = held_until(note.held_until_ms, times_ms, polls_ms, batch.newest_ms, length_ms, is_last=batch.is_last)
        new = newest_commits(commits.withColumn("at_ms", self._not_ahead("at_ms")))
        standings, oldest_ms = merged_standings(self.standings(), new), sampled_ms - FORGOTTEN_MS
        changed, seen = judged(standings, of_logs, length_ms, oldest_ms, may_fire=sampled_ms >= held_ms), Observation()
        counts = F.count("cleared_offset").alias("cleared"), F.count_if("fired").alias("fired")
        self.folder.write(changed.observe(seen, *counts), batch.number, "standings")
        self.folder.write(self.spark.createDataFrame(samples.to_table()), batch.number, "samples")
        times = {"sampled_ms": sampled_ms, "held_until_ms": held_ms, "polled_ms": polls_ms[-1]}
        return msgspec.structs.replace(note, batch=batch.number, **times), sum(seen.get.values())

    def lines(self, batch: int, most: int) -> list[str]:
        """Return the last ``most`` lines of a batch, sorted by partition."""
        written = self.spark.read.schema(STANDINGS).parquet(literal(self.folder.of_batch(batch, "standings")))
        changed = written.where(F.col("looked_at_ms").isNotNull())
        last = changed.orderBy(*(F.desc(name) for name in PARTITION)).limit(most).collect()
        return [line for row in reversed(last) for line in lines_of(row, self.cluster)][-most:]

    def standings(self) -> DataFrame:
        sampled_ms = min(self.folder.note().sampled_ms, self.clock.wall_ms())
        is_kept = F.col("at_ms") >= sampled_ms - FORGOTTEN_MS
        times = {name: self._not_ahead(name) for name in ("at_ms", "since_ms", "alert_since_ms")}
        return self.folder.read(STANDINGS, "standings").where(is_kept).withColumns(times)

    def samples(self) -> KeptLogEnds:
        if self._samples is None:
            self._samples = KeptLogEnds().load(self.folder.read(LOG_ENDS, "samples").toArrow())
        return self._samples

    def _of_tables(self) -> tuple[DataFrame, LogEndLook]:
        """Return the commits and log ends in the tables, which already have the log ends of the first batch."""
        commits, ends = (self._since(name) for name in ("commits", "ends"))
        grain = F.floor(F.col("observed_at_ms") / max(1, self.length // _MS // GRAINS))
        start = F.coalesce("start_offset", F.lit(-1)).alias("start")
        newest = F.max(F.struct("observed_at_ms", "end_offset", start)).alias("newest")
        found = ends.groupBy("topic", "partition", grain).agg(newest)
        topic, partition, at_ms, offset, start_at = found.select("topic", "partition", "newest.*").toArrow().columns
        places = [*map(TopicPartition, topic.to_pylist(), partition.to_pylist())]
        return _commits(commits), LogEndLook(places, at_ms.to_numpy(), offset.to_numpy(), start_at.to_numpy(), ())

    def _since(self, name: str) -> DataFrame:
        days = [day for day in self.tables.days(self.spark, name) if day >= self.since]
        return self.tables.read(self.spark, name, days=days).where(F.col("cluster") == self.cluster)

    def _not_ahead(self, name: str) -> Column:
        """A timestamp in the future counts as the present, so that it does not stay the newest timestamp."""
        now_ms = self.clock.wall_ms()
        return F.when(F.col(name) > now_ms, now_ms).otherwise(F.col(name))


def _commits(records: DataFrame) -> DataFrame:
    """Select the commits and tombstones. A tombstone has no ``offset``."""
    chosen = records.where(F.col("tombstone").isNotNull())
    offset = F.when(~F.col("tombstone"), F.col("offset")).alias("offset")
    return chosen.select(*PARTITION, offset, F.col("log_ts_ms").alias("at_ms"), "log_offset")


class Undelivered(Exception):  # noqa: N818 (names what happened)
    """A line could not be delivered, and waits for the next batch. The message gives the reason without the address."""


def to_webhook(url: str) -> Callable[[str], None]:
    """Return a function that sends a line as the JSON body of a POST. Raises `ValueError` if ``url`` is not an address.

    The function raises `Undelivered` if the answer is not 2xx, and does not follow redirects. No message contains the
    address, because the address may be a secret.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("--to webhook= must be an http:// or https:// address")
    client = HttpClient(url)

    def deliver(line: str) -> None:
        try:
            answer = client.post("", line.encode())
        except RequestFailed as error:
            raise Undelivered(type(error.__cause__ or error).__name__) from error
        if answer.status not in ACCEPTED:
            raise Undelivered(f"HTTP {answer.status}")

    return deliver
