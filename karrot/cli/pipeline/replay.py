"""``karrot pipeline replay``: other rules of Burrow's, tried on what was committed."""

import json
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click

from karrot.cli.errors import NotDone, Refused, valid
from karrot.cli.pipeline.spark_session import spark_options, started

__all__ = ["replay"]


@click.command()
@spark_options
@click.option(
    "--rules",
    "texts",
    multiple=True,
    metavar="[NAME:]RULE=VALUE,...",
    help="A set of rules: intervals, allowed_lag (messages), min_distance (60s, 5m), minimum_complete (0 to 1). Can be "
    "given again; the first is what the others are compared with.  [default: Burrow's defaults]",
)
@click.option(
    "--from", "since", help="ISO 8601 (UTC), or so long ago: 90m, 24h, 7d; the first look at log ends if not given."
)
@click.option("--to", "until", help="Up to, as --from; the last look if not given.")
@click.option("--cluster", "clusters", multiple=True, help="Of this cluster alone; can be given again.")
@click.option("--group", "groups", multiple=True, help="This group alone; can be given again.")
@click.option("--every", default="60s", show_default=True, help="How often to judge: the notifiers' interval.")
@click.option("--expire-group", default="7d", show_default=True, help="Burrow's expire-group: silent so long is gone.")
@click.option(
    "--stood-still", default="2m", show_default=True, help="A partition that does not move for so long is in trouble."
)
@click.option("--flap", default="30m", show_default=True, help="An incident so soon after another is a flap.")
@click.option("--output", metavar="DIR", help="Write the tables statuses and standstills there: a directory or a URL.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON instead of tables and sentences.")
def replay(directory: str, master: str | None, conf: dict[str, str], **asked: Any) -> None:
    """Judge the commits and log ends of the tables by several sets of Burrow's rules, and compare these.

    Tells for each set how many incidents there would have been, how many of them flap, for how many minutes groups
    would have been not OK, and how long it would have taken to find the partitions that truly stood still.

    Exit code 1 if there is nothing to replay, 2 if it is unclear what is asked or Spark cannot run here.
    """
    given = valid(partial(_read, asked))
    since, until = given["first"], given["last"]
    if since and until and since >= until:
        raise Refused(f"--from {since:%Y-%m-%d %H:%M} is not before --to {until:%Y-%m-%d %H:%M}")
    spark = started("replay", master, conf)
    from karrot.cli.pipeline.replay_output import replayed_json, replayed_lines
    from karrot.pipeline.replay import job
    from karrot.pipeline.store.tables import Tables

    request = job.Request(**given, clusters=asked["clusters"], groups=asked["groups"])
    try:
        done = job.replay(spark, Tables(directory), request, asked["output"])
    except job.NothingToReplayError as error:
        raise NotDone(str(error)) from error
    finally:
        spark.stop()
    for line in [json.dumps(replayed_json(done))] if asked["as_json"] else replayed_lines(done):
        click.echo(line)


def _read(asked: dict[str, Any]) -> dict[str, Any]:
    """The rules and the times as a request has them. Raises `ValueError` with a sentence."""
    from karrot.history import moment
    from karrot.pipeline.replay.rules import read_rule_sets
    from karrot.settings.types import checked, duration

    now = datetime.now(UTC)
    times = {name: asked[option] and moment(asked[option], now) for name, option in _TIMES.items()}
    spans = {
        name: checked(duration(*bounds), f"--{name.replace('_', '-')}", asked[name]) for name, bounds in _SPANS.items()
    }
    return {"rule_sets": read_rule_sets(asked["texts"]), **times, **spans}


_DAY = 86_400
_TIMES = {"first": "since", "last": "until"}
_SPANS = {"every": (1, _DAY), "expire_group": (60, 3650 * _DAY), "stood_still": (1, _DAY), "flap": (0, 7 * _DAY)}
