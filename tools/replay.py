"""Writes the tables of a day of commits with planted problems, and replays Burrow's rules on these commits.

Run ``PYTHONPATH=tests python tools/replay.py --rules … --rules …``. Unknown options go to ``karrot pipeline replay``.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random
from shutil import rmtree
from typing import Any

import click

from karrot.pipeline.schemas_and_conversions import STREAMED
from support.burrow.fake.simulated_kafka import ConsumerGroup, Deletion, SimulatedCommit
from support.pipeline.table_files import write_day
from tools.history_generator.history_scenario import CLUSTERS, DAY, consumer_groups, planted

_COMMITS_A_MINUTE, _LOOKS_A_MINUTE = 6, 2
_HEAD_MINUTES = 20

_Row = dict[str, Any]


@click.command(help=__doc__, context_settings={"ignore_unknown_options": True})
@click.option("--groups", type=click.IntRange(10), default=24, show_default=True, help="On each of 2 clusters.")
@click.option("--hours", type=click.IntRange(1, 168), default=24, show_default=True)
@click.option("--start", type=click.DateTime(["%Y-%m-%d"]), help="Yesterday if not given.")
@click.option("--directory", type=click.Path(path_type=Path), default=Path("build/replay"), show_default=True)
@click.argument("more", nargs=-1, type=click.UNPROCESSED)
def main(groups: int, hours: int, start: datetime | None, directory: Path, more: Sequence[str]) -> None:
    """Make all files below the directory again."""
    rmtree(directory, ignore_errors=True)
    midnight = (start or datetime.now(UTC) - timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    begin_ms = int(midnight.replace(tzinfo=UTC).timestamp()) * 1000
    days = -(-hours // 24)
    for cluster in CLUSTERS:
        cast = consumer_groups(cluster, groups, days, seed=7)
        rows: dict[str, list[_Row]] = {"commits": [], "ends": [], "members": []}
        for table, row in _simulated(cluster, cast, begin_ms, hours * 60):
            rows[table].append(row)
        for table, of_table in rows.items():
            _write(directory / "tables" / table, cluster, of_table)
        click.echo(f"{cluster}: {len(rows['commits']):,} commits, {len(rows['ends']):,} log ends")
    for each in planted(groups, days):
        if each.from_minute < hours * 60:
            told = f"{each.cluster}/{each.consumer} {each.cause}"
            click.echo(f"{told}: {_clock(each.from_minute)} for {each.to_minute - each.from_minute:.0f} minutes")
    command = ["karrot", "pipeline", "replay", "--tables", str(directory / "tables"), *more]
    click.secho(f"\n$ {' '.join(command)}", bold=True)
    sys.exit(subprocess.run([sys.executable, "-m", *command], check=False).returncode)


def _simulated(cluster: str, cast: Sequence[ConsumerGroup], begin_ms: int, minutes: int) -> Iterator[tuple[str, _Row]]:
    """Yield the records of each group every 10 s and the log ends every 30 s, in the order of time."""
    orders, random = count(), Random(cluster)  # noqa: S311 (a simulation)
    steps = range(-_HEAD_MINUTES * _COMMITS_A_MINUTE, minutes * _COMMITS_A_MINUTE)
    for step in steps:
        minute = step / _COMMITS_A_MINUTE
        if step % (_COMMITS_A_MINUTE // _LOOKS_A_MINUTE) == 0 and step >= 0:
            yield from _looks(cluster, cast, minute, begin_ms)
        for group in cast:
            at = minute + random.uniform(0.01, 0.15)
            for record in group.step(at):
                if step >= 0:
                    yield from _written(cluster, group.name, record, begin_ms + int(at * 60_000), next(orders))


def _looks(cluster: str, cast: Sequence[ConsumerGroup], minute: float, begin_ms: int) -> Iterator[tuple[str, _Row]]:
    at_ms = begin_ms + int(minute * 60_000)
    for topic in (topic for group in cast for topic in group.topics):
        for partition, end in enumerate(topic.ends(minute)):
            known = {"cluster": cluster, "topic": topic.name, "partition": partition}
            yield "ends", known | {"start_offset": 0, "end_offset": int(end), "observed_at_ms": at_ms}


def _written(cluster: str, group: str, record: object, at_ms: int, order: int) -> Iterator[tuple[str, _Row]]:
    place = {"cluster": cluster, "consumer": group, "log_offset": order, "log_ts_ms": at_ms}
    match record:
        case SimulatedCommit(topic, partition, offset):
            of_partition = {"topic": topic, "partition": partition, "offset": offset}
            yield "commits", place | of_partition | {"tombstone": False, "commit_ts_ms": at_ms, "log_partition": 0}
        case Deletion():
            yield "members", place | {"version": None}
        case _:
            return


def _write(table: Path, cluster: str, rows: Sequence[_Row]) -> None:
    """Add rows to a streamed table, with all of its columns."""
    columns = STREAMED[table.name].names
    by_day: dict[date, list[_Row]] = {}
    for row in rows:
        moments = {name: _moment(row.get(f"{name}_ms")) for name in columns if f"{name}_ms" in columns}
        day = datetime.fromtimestamp((row.get("observed_at_ms") or row["log_ts_ms"]) / 1000, UTC).date()
        by_day.setdefault(day, []).append(row | moments)
    for day, of_day in by_day.items():
        write_day(table.parent, table.name, day, of_day, batch=cluster)


def _moment(epoch_ms: int | None) -> datetime | None:
    return None if epoch_ms is None else datetime.fromtimestamp(epoch_ms / 1000, UTC)


def _clock(minute: float) -> str:
    return f"day {int(minute // DAY) + 1}, {int(minute % DAY // 60):02}:{int(minute % 60):02}"


if __name__ == "__main__":
    main()
