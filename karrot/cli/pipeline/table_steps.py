"""``karrot pipeline ingest``, ``derive`` and ``compact``: the steps that ``karrot pipeline run`` runs in turns."""

import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.errors import end_on_signals
from karrot.cli.options import Number, day_option, follow_option, option_set, read_span
from karrot.cli.pipeline.job_errors import errors_as_sentences
from karrot.cli.pipeline.spark_options import (
    checkpoint_option,
    event_source_of,
    event_source_options,
    spark_options,
    started,
    tables_in,
    trigger_option,
    wait_option,
)
from karrot.text import counted_plain

if TYPE_CHECKING:
    from karrot.pipeline.derive.job import DeriveRules

keep_option = click.option(
    "--keep",
    default="400d",
    callback=read_span(10 * 365 * 86_400),
    help="Remove days that are older than this from every table.",
)


@click.command()
@spark_options
@keep_option
@wait_option
def compact(directory: str, master: str | None, conf: dict[str, str], keep: timedelta, wait: timedelta | None) -> None:
    """Merge the small files of each past day into one file, and remove old days.

    You can run it at the same time as ingest. Only one derive or compact can write the same tables at the same time.

    The exit code is 1 if the command failed or if another command writes the tables.
    """
    with started("compact", master, conf) as spark, errors_as_sentences():
        from karrot.pipeline.store import compact as job
        from karrot.pipeline.store.lease import DERIVED, writing

        tables = tables_in(spark, directory)
        with writing(spark, tables, DERIVED, "karrot pipeline compact", wait=wait) as leased:
            done = job.compact(spark, leased, keep=keep, today=datetime.now(UTC).date())
    click.echo(str(done))


_span = read_span(10 * 365 * 86_400)
_gap = read_span(86_400)  # derive reads a day and the days before and after it


derive_options = option_set(
    click.option(
        "--stale-after",
        "silence",
        default="300s",
        callback=_span,
        help="How long a verdict is valid. Use the value of the service's KARROT_STALE_AFTER.",
    ),
    click.option(
        "--longest-gap",
        default="600s",
        callback=_gap,
        help="Longest time between two samples of a partition from which a rate is calculated.",
    ),
    click.option(
        "--max-lag-seconds", "target_seconds", type=Number(0), default=60, help="SLO: largest allowed lag in seconds."
    ),
    click.option(
        "--objective",
        type=Number(0, 1, max_open=True),
        default=0.99,
        help="SLO: share of the minutes in which the lag must not be above --max-lag-seconds.",
    ),
)
"""The options for the rules of a derivation. `rules_of` reads them."""


def rules_of(asked: Mapping[str, Any]) -> "DeriveRules":
    from karrot.pipeline.derive.job import DeriveRules
    from karrot.pipeline.derive.slo_daily import Objective

    return DeriveRules(asked["silence"], asked["longest_gap"], Objective(asked["target_seconds"], asked["objective"]))


@click.command()
@spark_options
@wait_option
@day_option("--day", "only", multiple=True, help="Derive only this day (UTC), even if it did not change. Repeatable.")
@derive_options
def derive(directory: str, master: str | None, conf: dict[str, str], **asked: Any) -> None:
    """Write the derived tables again for the days that changed.

    The derived tables contain the lag, offsets, rates and skew of each minute, and also incidents, status intervals,
    rebalances and the SLO of each day. The command derives each day whose events or commits were added, removed or
    rewritten since the last run. If you change an option, the command derives all days again. Readers see either the
    old or the new version of a day in a table. Only one derive or compact can write the same tables at the same time.

    The exit code is 1 if the command failed or if another command writes the tables.
    """
    with started("derive", master, conf) as spark, errors_as_sentences():
        from karrot.pipeline.derive import job
        from karrot.pipeline.store.lease import DERIVED, writing

        only, tell = [day.date() for day in asked["only"]], partial(click.echo, err=True)
        tables = tables_in(spark, directory)
        with writing(spark, tables, DERIVED, "karrot pipeline derive", wait=asked["wait"]) as leased:
            days = job.derive(spark, leased, rules_of(asked), only=only, on_progress=tell)
    click.echo(f"derived {counted_plain(len(days), 'day')}, {days[0]} to {days[-1]}" if days else "nothing changed")


@click.command(short_help="Write new events from the archive or a topic to the tables.")
@event_source_options
@spark_options
@follow_option("Continue with new events until Ctrl-C.", default=False)
@trigger_option(default="30 seconds", help="With --follow: how often to read new events.")
@checkpoint_option(help="Folder that records which events were read.  [default: a folder in the tables]")
@wait_option
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one line of JSON.")
def ingest(directory: str, master: str | None, conf: dict[str, str], **asked: Any) -> None:
    """Write new events from the archive or a topic to the tables "events", "partitions" and "quarantine".

    The command counts every line: lines read = events + quarantined + duplicates. You can run it again at any time,
    even after a crash. Only one ingest or stream can write the same tables at the same time.

    The exit code is 1 if a batch failed, if Kafka does not answer or if another command writes the tables. It is 2 if
    Spark cannot run here or there is nothing to read.
    """
    source = event_source_of(asked)
    follow, as_json = asked["follow"], asked["as_json"]
    tell = click.echo if follow and not as_json else lambda _summary: None
    with started("ingest", master, conf) as spark, errors_as_sentences(asked):
        from karrot.pipeline.ingest.job import Ingest
        from karrot.pipeline.store.filesystem import place_for
        from karrot.pipeline.store.lease import EVENTS, writing
        from karrot.pipeline.store.table_files import Tables

        stop, tables = threading.Event(), Tables.at(spark, directory)
        if follow:
            end_on_signals(stop)
        with writing(spark, tables, EVENTS, "karrot pipeline ingest", wait=asked["wait"], stop=stop) as leased:
            checkpoint = place_for(spark, asked["checkpoint"] or "")
            job = Ingest(spark, source(), leased, checkpoint=checkpoint, tell=tell)
            total = job.run(asked["trigger"] if follow else None, stop)
    click.echo(json.dumps(total.as_dict()) if as_json else str(total))
