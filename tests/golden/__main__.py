"""Writes what Karrot puts out for one recorded day, so that two versions of Karrot can be compared.

```
make golden ARGS="record build/day"                 write the day once; both versions use it
make golden ARGS="run build/day build/before"       write the output of this version, as text files
diff -r build/before build/after
```

The day has two clusters with their incidents, as Burrow's posts and answers, and Burrow's recorded bodies, good and
bad. The output is: help texts, renderings, ``/metrics``, the API and the pages every three hours, all data that
CloudWatch got, the lines of the archive and, with Java, the rows of all tables. Durations, the random id of the event
log and the size of compressed files are left out.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from shutil import rmtree, which
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

import click
import msgspec
from click.testing import CliRunner
from pytest import MonkeyPatch  # noqa: PT013 - this is no test

from karrot.cli import main as karrot
from karrot.event_json_line import EventLine
from karrot.pipeline.schemas_and_conversions import TABLES
from support.burrow.recorded_bodies import expected_events, recorded_body
from support.manual_clock import ManualClock
from support.pipeline.expected_tables.comparison import table_rows
from support.reporters.archive_folder import archive_feed, read_archive, segment_lines
from support.reporters.cloudwatch_reporter_rig import CloudWatchRig, point_aws_at
from support.reporters.scripted_cloudwatch import ScriptedCloudWatch
from support.web.website import Website, make_website
from tools.history_generator.history_scenario import CLUSTERS
from tools.history_generator.history_writer import write_history

_START_MS = int(datetime(2026, 11, 14, tzinfo=UTC).timestamp()) * 1000
_GROUPS = 5
_STEP_MS, _LOOK_MS = 15_000, 3 * 3_600_000
_PATHS = ("/", "/rejects", "/runbooks", "/config", "/reporters", "/heartbeat", "/readyz", "/openapi.json")
_API = ("groups", "reporters", "event-log", "rejects")
_DURATIONS = re.compile(rb"^karrot_((event_handling|http)_seconds|reporter_archive_bytes_total).*\n", re.MULTILINE)
_BROKER, _AWS = ("--bootstrap-servers", "kafka:9092"), ("--region", "eu-west-1")
_SCALED = ("--cluster", "prod-eu", "--group", "orders-svc", "--ecs-cluster", "main", "--service", "orders")
_WITHIN = ("--max-lag-seconds", "60")
_RENDERINGS: dict[str, list[tuple[str, ...]]] = {
    "alert-rules": [()],
    "athena": [("--tables", "s3://bucket/tables")],
    "cloudwatch-dashboard": [("--region", "eu-west-1")],
    "dashboard": [("overview",), ("group",), ("itself",)],
    "ecs-autoscaling": [("--recipe", each, *_SCALED, *_WITHIN) for each in ("from-zero", "step", "target-tracking")],
    "recording-rules": [()],
}
_BAD_BODIES = (b"", b"text", b"[]", b"{}", b"\xff", b'{"Event": {}}', b'{"Event": null}')


@click.group(help=__doc__)
def main() -> None:
    """Record or run."""


@main.command()
@click.argument("day", type=click.Path(path_type=Path))
def record(day: Path) -> None:
    """Write the archive of the day."""
    for cluster in CLUSTERS:
        truth = day / f"{cluster}.jsonl"
        click.echo(write_history(day / cluster, truth, cluster, start_ms=_START_MS, groups=_GROUPS, days=1))


@main.command()
@click.argument("day", type=click.Path(path_type=Path, exists=True))
@click.argument("out", type=click.Path(path_type=Path))
def run(day: Path, out: Path) -> None:
    """Write the output of this version."""
    rmtree(out, ignore_errors=True)
    for path, content in (*_helps(karrot, "karrot"), *_renderings(), *_service(day)):
        place = out / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    if which("java"):
        _tables(day, out / "tables")


def _helps(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[tuple[str, bytes]]:
    context = click.Context(command, parent, name, terminal_width=100, max_content_width=100, show_default=True)
    yield f"help/{context.command_path.replace(' ', '-')}.txt", command.get_help(context).encode()
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            child = command.get_command(context, each)
            assert child is not None
            yield from _helps(child, each, context)


def _renderings() -> Iterator[tuple[str, bytes]]:
    for name, variants in _RENDERINGS.items():
        for arguments in variants:
            said = CliRunner().invoke(karrot, ["render", name, *arguments], catch_exceptions=False)
            yield f"render/{'-'.join([name, *arguments[:2]]).replace('/', '_')}.txt", said.output.encode()


def _service(day: Path) -> Iterator[tuple[str, bytes]]:
    clock = ManualClock(wall=_START_MS)
    lines = sorted(_lines(day), key=lambda line: (line.received_at_ms, line.cluster, line.seq))
    bodies = iter([*map(recorded_body, expected_events()), *_BAD_BODIES])
    with (
        MonkeyPatch.context() as patch,
        ScriptedCloudWatch(clock_ms=clock.wall_ms) as aws,
        TemporaryDirectory() as folder,
    ):
        point_aws_at(aws, patch)
        rig = CloudWatchRig(aws, clock, {"metrics": "Lag,LagSeconds,Status"})
        site = make_website(clock=clock, log=rig.log)
        archive = archive_feed(rig.log, clock, folder)
        looked_ms = _START_MS
        for line in lines:
            while clock.wall < line.received_at_ms:
                clock.advance(min(_STEP_MS, line.received_at_ms - clock.wall))
                for feed in (rig.feed, archive):
                    while feed.step() == 0:
                        pass
            if clock.wall >= looked_ms + _LOOK_MS:
                looked_ms += _LOOK_MS
                for path, content in _pages(site, f"{(looked_ms - _START_MS) // 3_600_000:02}h"):
                    yield path, content.replace(rig.log.log_id.encode(), b"LOG")
            assert line.body is not None
            site.context.intake.begin(line.body.encode(), line.source).wait()
            if (body := next(bodies, None)) is not None:
                site.client.post("/burrow", data=body)
        clock.advance(600_000)
        for feed in (rig.feed, archive):
            feed.step()
        archive.close()
        for metric in aws.as_json()["metrics"]:
            name = "-".join([metric["metric"], *metric["dimensions"].values()])
            yield f"cloudwatch/{re.sub('[^a-zA-Z0-9-]', '_', name)}.json", json.dumps(metric, indent=0).encode()
        archived = (msgspec.json.encode(each, order="sorted") for each in read_archive(Path(folder)))
        yield "archive.jsonl", b"\n".join(archived).replace(rig.log.log_id.encode(), b"LOG")


def _lines(day: Path) -> Iterator[EventLine]:
    for segment in day.rglob("*.gz"):
        yield from segment_lines(segment.read_bytes())


def _pages(site: Website, hour: str) -> Iterator[tuple[str, bytes]]:
    get = partial(site.client.get, headers={"Accept-Encoding": "identity"})
    yield f"service/{hour}/metrics.prom", _DURATIONS.sub(b"", get("/metrics").data)
    for path in (*_PATHS, *(f"/api/v1/{each}" for each in _API)):
        yield f"service/{hour}/{path.strip('/').replace('/', '-') or 'index'}", get(path).data
    for group in json.loads(get("/api/v1/groups?limit=500").data)["groups"]:
        named = urlencode({"cluster": group["cluster"], "consumer": group["consumer"]})
        name = re.sub("[^a-zA-Z0-9-]", "_", f"{group['cluster']}-{group['consumer']}")
        yield f"service/{hour}/group-{name}.html", get(f"/group?{named}").data
        yield f"service/{hour}/group-{name}.json", get(f"/api/v1/group?{named}").data


def _tables(day: Path, out: Path) -> None:
    with TemporaryDirectory() as folder:
        arguments = ["pipeline", "run", "--once", "--archive", str(day), "--tables", folder]
        CliRunner().invoke(karrot, arguments, catch_exceptions=False)
        out.mkdir(parents=True)
        for table in TABLES:
            texts = sorted(json.dumps(row, default=str, sort_keys=True) for row in table_rows(Path(folder), table))
            (out / f"{table}.jsonl").write_text("\n".join(texts))


if __name__ == "__main__":
    main()
