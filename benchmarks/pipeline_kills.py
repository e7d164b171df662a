"""Kills commands of the pipeline at random moments, on a local disk, S3 and HDFS, and compares the tables at the end.

``--place kafka`` kills ``karrot pipeline offsets`` instead: see `harness.offsets_kills`.

For each kill, the tables are put back to their state before a random command. This command runs in a process of its own
and is killed: at any moment, or just after a new data file, that is before or within its commit, or just after a new
entry of a log. Then it runs again, and so do all commands after it. The newest versions of the tables must have the
rows of an undisturbed run. A command that ends before its kill does not count, and another kill is drawn.

    PYTHONPATH=tests python benchmarks/pipeline_kills.py [--kills 30] [--place local]
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import click
from harness.offsets_kills import kill_offsets

from e2e.pipeline_hdfs import hdfs
from e2e.pipeline_inputs import table_rows, write_inputs
from e2e.pipeline_s3 import s3_server
from e2e.pipeline_stores import Commands, LocalDisk, Store, downloaded, upload
from karrot.pipeline.schemas_and_conversions import TABLES

STEPS = (
    ("--only", "events", "--archive", "{inputs}/first"),
    ("--only", "derive"),
    ("--compact-at", "never", "--archive", "{inputs}/second", "--checkpoint", "{place}/second"),
    ("--only", "compact", "--keep", "3650d"),
    ("--only", "derive"),
)
"""The options of each ``karrot pipeline run --once``, in order."""


@dataclass(frozen=True)
class Road:
    """The inputs and a place for tables on a store. ``scratch`` is a local folder."""

    store: Store
    scratch: Path

    def arguments(self, step: int, name: str) -> list[str]:
        """The command of a step, for the tables ``name``."""
        inputs, place = self.store.url, f"{self.store.url}/{name}"
        options = (part.format(inputs=inputs, place=place) for part in STEPS[step])
        return ["run", "--once", "--tables", f"{place}/tables", "--wait", "3m", *options]

    def copy(self, source: str, target: str) -> None:
        """Copy all that a run has written."""
        for key in self.store.listed(f"{source}/"):
            self.store.write(target + key.removeprefix(source), self.store.read(key) or b"")

    def lease(self, name: str) -> list[str]:
        """What changes when a command takes its lease: names of files, or the texts of the local locks."""
        files = self.store.listed(f"{name}/tables/_leases/")
        return sorted(f"{key} {(self.store.read(key) or b'').decode()}" for key in files)

    def written(self, name: str, what: str) -> int:
        """The number of data files in the folders of the tables, or of commits."""
        below = (key.removeprefix(f"{name}/tables/") for key in self.store.listed(f"{name}/tables/"))
        if what == "commit":
            return sum("/_delta_log/" in key and key.endswith(".json") for key in below)
        return sum(key.endswith(".parquet") and "/_" not in key and "/." not in key for key in below)

    def rows(self, name: str) -> dict[str, list[str]]:
        """The rows of every table."""
        tables = downloaded(self.store, f"{name}/tables", self.scratch / "read" / name)
        return {table: table_rows(tables, table) for table in TABLES}


def killed(command: list[str], environment: dict[str, str], is_time: Callable[[], bool], after_s: float) -> bool:
    """Run a command, and kill its process and its JVM this time after ``is_time``.

    Returns whether the command was still running.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)
        while not is_time() and process.poll() is None:
            time.sleep(0.005)
        try:
            process.wait(after_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True
    return False


def moment(road: Road, name: str, what: str, number: int) -> Callable[[], bool]:
    """Whether a command that begins now has taken its lease, or written this number of data files or commits."""
    if what == "lease":
        before = road.lease(name)
        return lambda: road.lease(name) != before
    already = road.written(name, what)
    return lambda: road.written(name, what) >= already + number


_STORES: Mapping[str, Callable[[Path], AbstractContextManager[Store]]] = MappingProxyType(
    {
        "local": lambda directory: nullcontext(LocalDisk(directory)),
        "s3": lambda _: s3_server(),
        "hdfs": hdfs,
    }
)


@click.command()
@click.option("--kills", default=30, show_default=True, help="How many in each place.")
@click.option("--place", "places", multiple=True, type=click.Choice([*_STORES, "kafka"]), default=["local", "s3"])
@click.option("--seed", type=int, default=None, help="Repeat the kills of a run.")
def main(kills: int, places: tuple[str, ...], seed: int | None) -> None:
    """Kill commands of the pipeline. The exit code is 1 if tables differ from the undisturbed ones."""
    seed = random.randrange(1 << 30) if seed is None else seed
    chance, found = random.Random(seed), Counter[str]()
    click.echo(f"seed {seed}")
    for place in places:
        if place == "kafka":
            with tempfile.TemporaryDirectory() as directory:
                found += kill_offsets(Path(directory), chance, kills)
            continue
        with tempfile.TemporaryDirectory() as directory, _STORES[place](Path(directory, "store")) as store:
            scratch = Path(directory)
            write_inputs(scratch)
            for name in ("first", "second"):
                upload(store, scratch / name, name)
            click.echo(f"{place}:")
            with Commands.started(store, scratch / "spark.log") as commands:
                found += _kill_often(Road(store, scratch), commands, chance, kills)
    for what, count in sorted(found.items()):
        click.echo(f"{count:4} {what}")
    sys.exit(any("differ" in what for what in found))


def _kill_often(road: Road, commands: Commands, chance: random.Random, kills: int) -> Counter[str]:
    """Run undisturbed, then kill and compare. Returns how often each outcome came."""
    took, found = list[float](), Counter[str]()
    for step in range(len(STEPS)):
        if step:
            road.copy(f"step-{step - 1}", f"step-{step}")
        began = time.monotonic()
        commands.run(*road.arguments(step, f"step-{step}"))
        took.append(time.monotonic() - began)
    undisturbed = road.rows(f"step-{len(STEPS) - 1}")
    alone = [sys.executable, "-m", "karrot", "pipeline"]
    environment = os.environ | road.store.environment
    done = drawn = 0
    while done < kills:
        step, drawn = chance.randrange(len(STEPS)), drawn + 1
        name = f"kill-{drawn}"
        if step:
            road.copy(f"step-{step - 1}", name)
        command, *options = road.arguments(step, name)
        what = chance.choice(("lease", "data file", "commit"))
        made = road.written(f"step-{step}", what) - road.written(name, what)
        number = chance.randint(1, max(made, 1))
        # A command in a JVM of its own takes longer than one in a JVM that is warm.
        after_s = chance.random() * (2 * took[step] if what == "lease" else 0.05)
        is_time = moment(road, name, what, number)
        if not killed([*alone, command, *commands.options, *options], environment, is_time, after_s):
            continue
        for again in range(step, len(STEPS)):
            commands.run(*road.arguments(again, name))
        rows = road.rows(name)
        differing = [table for table in TABLES if rows[table] != undisturbed[table]]
        outcome = f"differ in {', '.join(differing)}" if differing else "equal"
        done += 1
        found[f"step {step}: {outcome}"] += 1
        since = "its lease" if what == "lease" else f"{what} {number} of {made}"
        click.echo(f"kill {done}: step {step} {after_s:.2f} s after {since}: {outcome}")
    return found


if __name__ == "__main__":
    main()
