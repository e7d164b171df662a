"""Writes the archive of a simulated week, runs the pipeline over it, and renders the report.

Run ``make history``, or ``make history ARGS="--groups 10 --days 1"`` for less data. The script compares the incidents
in the tables with the simulated incidents. The exit code is 1 if they differ, or the exit code of a failed command.
"""

import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import rmtree

import click
import duckdb

from karrot.cli import main as karrot
from karrot.pipeline.spark_session import SparkUnavailable, require_java
from support.pipeline.duckdb_scan import scan
from tools.history_generator.history_scenario import CLUSTERS
from tools.history_generator.history_writer import Told, read_truth, write_history

_HOURS = 24
_POLL_S = 0.3
_SPARK = ("--conf", "spark.driver.memory=2g")
_INCIDENTS = """
    SELECT incident_id, cluster, consumer, epoch_ms(started_at), epoch_ms(ended_at), ended_by, worst_status, peak_lag
    FROM {incidents}
"""


@click.command(help=__doc__)
@click.option(
    "--groups", type=click.IntRange(10), default=100, show_default=True, help="Consumer groups, on 2 clusters."
)
@click.option(
    "--days", type=click.IntRange(1, 7), default=7, show_default=True, help="Up to the midnight (UTC) before now."
)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("build/history"), show_default=True)
def main(groups: int, days: int, directory: Path) -> None:
    """Make all files below the directory again."""
    try:
        require_java()  # before the tables of an earlier run are removed
    except SparkUnavailable as error:
        raise click.ClickException(str(error)) from error
    began = time.monotonic()
    last = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    archive, tables, report = directory / "archive", directory / "tables", directory / "report.html"
    rmtree(directory, ignore_errors=True)
    _simulate(archive, directory, last - timedelta(days=days), groups, days)
    # All groups in this history commit once per minute, so healthy groups can be behind by a minute.
    spark = ("--max-lag-seconds", "120", *_SPARK)
    _run("pipeline", "run", "--once", "--archive", str(archive), "--tables", str(tables), *spark)
    between = (f"{last - timedelta(days=days):%F}", f"{last - timedelta(days=1):%F}")
    _run(
        "history", "report", "--tables", str(tables), "--from", between[0], "--to", between[1], "--output", str(report)
    )
    truth = [told for cluster in CLUSTERS for told in read_truth(_truth(directory, cluster))]
    same = _compared(truth, tables)
    click.echo(f"{same} of {len(truth)} incidents are in the tables with their start, end, worst status and peak")
    click.echo(f"{report.resolve().as_uri()}\n{time.monotonic() - began:.0f} s in all")
    click.echo(f"query the tables: .venv/bin/karrot history incidents --from {days + 2}d --tables {tables}")
    sys.exit(0 if same == len(truth) else 1)


def _simulate(archive: Path, directory: Path, start: datetime, groups: int, days: int) -> None:
    """Simulate both clusters at the same time. The progress bar counts the hours that both have archived."""
    archive.mkdir(parents=True)
    start_ms = int(start.timestamp()) * 1000
    with ProcessPoolExecutor(len(CLUSTERS)) as pool, _bar(days) as bar:
        writing = [
            pool.submit(
                write_history,
                archive / cluster,
                _truth(directory, cluster),
                cluster,
                start_ms=start_ms,
                groups=groups // len(CLUSTERS),
                days=days,
            )
            for cluster in CLUSTERS
        ]
        while wait(writing, _POLL_S).not_done:
            bar.update(_archived_hours(archive) - bar.pos)
        bar.update(bar.length - bar.pos if bar.length else 0)
    click.echo(f"{sum(map(Future.result, writing)):,} events of {groups} groups in {days} day{'s' if days > 1 else ''}")


def _bar(days: int) -> "click._termui_impl.ProgressBar[int]":
    return click.progressbar(length=days * _HOURS, label="simulating", show_pos=True, item_show_func=lambda _: "hours")


def _archived_hours(archive: Path) -> int:
    return min(sum(1 for _ in archive.glob(f"{cluster}/day=*/hour=*")) for cluster in CLUSTERS)


def _truth(directory: Path, cluster: str) -> Path:
    return directory / f"incidents-{cluster}.jsonl"


def _run(*command: str) -> None:
    """Print a command, run it in this process and print its time."""
    click.secho(f"\n$ karrot {' '.join(command)}", bold=True)
    began = time.monotonic()
    karrot(command, standalone_mode=False)
    click.echo(f"{time.monotonic() - began:.0f} s")


def _compared(truth: Sequence[Told], tables: Path) -> int:
    """Return how many incidents are the same in the table. Print the incidents that differ."""
    found = {row[0]: row for row in duckdb.execute(_INCIDENTS.format(incidents=scan(tables, "incidents"))).fetchall()}
    same = 0
    for told in truth:
        row = found.get(told.incident_id)
        expected = (told.incident_id, told.cluster, told.consumer, told.started_at_ms, told.ended_at_ms, told.ended_by)
        if row == (*expected, told.worst_status, told.peak_lag):
            same += 1
        else:
            click.echo(f"told was {told}, the table has {row}", err=True)
    return same


if __name__ == "__main__":
    main()
