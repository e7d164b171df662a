"""``make truth``: no false alarm and no silence, on a real broker.

Healthy groups that look odd and groups with a planted fault run side by side. Karrot watches them, and Prometheus
evaluates Karrot's own rules. The run fails unless no healthy group causes an incident or an alert, and each fault is
found in time, once, with its proof.
"""

import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from e2e.truth import explained, harmless, planted, report
from e2e.truth.judge import is_true, judged
from e2e.truth.observer import ITSELF, Observer
from e2e.truth.plan import WINDOW_S, Timetable
from e2e.truth.servers import Broker, running_broker, running_karrot
from e2e.truth.world import World

_DOWN_S = 20


def _scenarios(world: World, only: str, each: int, each_cause: int) -> dict[str, Iterator[None]]:
    found = {scenario.__name__: scenario(world) for scenario in harmless.SCENARIOS}
    found |= {plant.__name__: plant(world, each) for plant in planted.PLANTS}
    found |= {f"explain_{plant.__name__}": plant(world, each_cause) for plant in explained.PLANTS}
    return {name: run for name, run in found.items() if re.search(only, name)}


def _exhaust(run: Iterator[None]) -> None:
    """Run the rest of a scenario."""
    for _ in run:
        pass


def _wait(world: World, at: float) -> None:
    """Wait until a time of the run, and fail as soon as a scenario has failed."""
    while world.now() < at:
        for name, error in world.failures:
            raise RuntimeError(f"the scenario {name} failed at {world.now():.0f} s") from error
        world.until(min(at, world.now() + 1))


def _kill_broker(world: World, broker: Broker) -> None:
    broker.kafka.broker(1).kill()
    _wait(world, world.now() + _DOWN_S)
    broker.kafka.start_broker(1)
    broker.kafka.wait(within_s=240)
    world.renew()


def _run(timetable: Timetable, seed: int, only: str, logs: Path, **told: Any) -> tuple[World, Observer]:
    with running_broker(logs / "servers") as broker:
        world = World(broker, timetable, seed)
        scenarios = _scenarios(world, only, told["each"], told["each_cause"])
        for run in scenarios.values():
            next(run)
        _wait(world, 0)
        is_short = not world.cases
        groups = len(world.cases) + len(world.asked)
        click.echo(f"{groups} groups of {len(scenarios)} scenarios are ready; Karrot starts")
        world.harmless(ITSELF, ITSELF)
        try:
            with running_karrot(broker.kafka, logs) as (service, prometheus):
                world.begin()
                observer = Observer(world, service)
                world.go("observer", observer.run)
                world.go("asker", explained.Asker(world, service, told["out"] / "explained").run)
                for name, run in scenarios.items():
                    world.go(name, partial(_exhaust, run))
                if is_short:
                    _wait(world, timetable.asked)
                    return world, observer
                _wait(world, timetable.kill)
                click.echo(f"{world.now():.0f} s: the broker is killed")
                _kill_broker(world, broker)
                click.echo(f"{world.now():.0f} s: the broker answers again")
                _wait(world, timetable.end)
                observer.finish(prometheus)
        finally:
            world.stop()
    return world, observer


@click.command()
@click.option(
    "--minutes", type=click.FloatRange(14, 60), default=20, show_default=True, help="How long Karrot watches."
)
@click.option("--each", type=click.IntRange(1, 50), default=10, show_default=True, help="Groups of each planted kind.")
@click.option(
    "--each-cause", type=click.IntRange(1, 50), default=5, show_default=True, help="Groups of each explained kind."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Draws the small differences between the groups.")
@click.option("--only", default="", help="Only scenarios whose name (of the function) contains a match.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("build/truth"), show_default=True)
def main(minutes: float, seed: int, only: str, out: Path, **each: int) -> None:
    """Run all scenarios side by side, and write truth.md, truth.json and the logs."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # Karrot and Prometheus end with this process
    timetable = Timetable(minutes)
    with tempfile.TemporaryDirectory(prefix="karrot-truth-") as directory:
        try:
            world, observer = _run(timetable, seed, only, Path(directory), out=out, **each)
        finally:
            _keep_logs(Path(directory), out / "logs")
    found = judged(world.cases.values(), observer.sightings)
    facts = {
        "minutes": minutes,
        "seed": seed,
        "window": f"{WINDOW_S} s",
        "broker killed at": f"{timetable.kill:.0f} s",
        "longest silence of Karrot's API": f"{observer.silent_s:.0f} s",
        "seconds of a poll, average / longest": observer.polls_s,
    }
    click.echo(report.write(found, facts, out))
    click.echo(explained.report(world.asked))
    sys.stdout.flush()
    is_good = is_true(found) and explained.is_enough(world.asked)
    os._exit(0 if is_good else 1)  # the threads of the Kafka clients would wait for the broker


def _keep_logs(directory: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for each in directory.rglob("*.log"):
        if (
            "tsdb" not in each.parts
            and each.is_file()
            and each.parent.name in {"servers", directory.name, "prometheus"}
        ):
            shutil.copy(each, out / each.name)


if __name__ == "__main__":
    main()
