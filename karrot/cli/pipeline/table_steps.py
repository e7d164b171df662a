"""``karrot pipeline ingest``, ``derive``, ``compact`` and ``report``: each reads or writes the tables once.

``karrot pipeline run`` runs ``ingest``, ``derive`` and ``compact`` repeatedly.
"""

import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.errors import Refused, end_on_signals
from karrot.cli.options import Number, day_option, follow_option, json_option, option_set, read_span
from karrot.cli.pipeline import spark_options as shared
from karrot.cli.pipeline.job_errors import JobCommand
from karrot.text import counted_plain

if TYPE_CHECKING:
    from karrot.pipeline.derive.job import DeriveRules

keep_option = click.option(
    "--keep",
    default="400d",
    callback=read_span(10 * 365 * 86_400),
    help="Remove days that are older than this from every table.",
)


@click.command(cls=JobCommand)
@shared.spark_options
@keep_option
@shared.wait_option
@click.option("--convert", is_flag=True, help="First convert tables of Karrot 2.0.0a1. No other command may run.")
def compact(**asked: Any) -> None:
    """Merge the small files of each past day into one file, and remove old days and old versions of the tables.

    A query can read the version of a table that it began with for 24 hours. You can run this command at the same time
    as ingest. Only one derive or compact can write the same tables at the same time.

    The exit code is 1 if the command failed or if another command writes the tables.
    """
    with shared.started("compact", asked) as (spark, tables):
        from karrot.pipeline.store import compact_and_expire as job
        from karrot.pipeline.store.write_lease import DERIVED, writing

        shared.require_tables(spark, tables, asked)
        if asked["convert"]:
            with writing(spark, tables, DERIVED, "karrot pipeline compact", converts=True) as leased:
                click.echo(f"converted {counted_plain(job.convert(spark, leased), 'day')}", err=True)
        with writing(spark, tables, DERIVED, "karrot pipeline compact", wait=asked["wait"]) as leased:
            done = job.compact(spark, leased, keep=asked["keep"], today=datetime.now(UTC).date())
    click.echo(str(done))


_span = read_span(10 * 365 * 86_400)
_gap = read_span(86_400)  # at most a day, because derive reads a day with the days before and after it


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
"""The options for the rules of a derivation, which `rules_of` reads."""


def rules_of(asked: Mapping[str, Any]) -> "DeriveRules":
    from karrot.pipeline.derive.job import DeriveRules
    from karrot.pipeline.derive.slo_daily import Objective

    return DeriveRules(asked["silence"], asked["longest_gap"], Objective(asked["target_seconds"], asked["objective"]))


@click.command(cls=JobCommand)
@shared.spark_options
@shared.wait_option
@day_option("--day", "only", multiple=True, help="Derive only this day (UTC), even if it did not change. Repeatable.")
@derive_options
def derive(**asked: Any) -> None:
    """Write the derived tables again for the days that changed.

    The derived tables contain the lag, offsets, rates and skew of each minute, and also incidents, status intervals,
    rebalances and the SLO of each day. The command derives each day whose events or commits were added, removed or
    rewritten since the last run. If you change an option, the command derives all days again. Readers see either the
    old or the new version of a day in a table. Only one derive or compact can write the same tables at the same time.

    The exit code is 1 if the command failed or if another command writes the tables.
    """
    with shared.started("derive", asked) as (spark, tables):
        from karrot.pipeline.derive import job
        from karrot.pipeline.store.write_lease import DERIVED, writing

        only, tell = [day.date() for day in asked["only"]], partial(click.echo, err=True)
        shared.require_tables(spark, tables, asked)
        with writing(spark, tables, DERIVED, "karrot pipeline derive", wait=asked["wait"]) as leased:
            days = job.derive(spark, leased, rules_of(asked), only=only, on_progress=tell)
    click.echo(f"derived {counted_plain(len(days), 'day')}, {days[0]} to {days[-1]}" if days else "nothing changed")


@click.command(cls=JobCommand, short_help="Write new events from the archive or a topic to the tables.")
@shared.event_source_options
@shared.spark_options
@follow_option("Continue with new events until Ctrl-C.", default=False)
@shared.trigger_option(default="30s", help="With --follow: how often to read new events.")
@shared.checkpoint_option(help="Folder that records which events were read.  [default: a folder in the tables]")
@shared.wait_option
@json_option("Print the summary as one line of JSON.")
def ingest(**asked: Any) -> None:
    """Write new events from the archive or a topic to the tables "events", "partitions" and "quarantine".

    The command counts every line: lines read = events + quarantined + duplicates. You can run it again at any time,
    even after a crash. Only one ingest can write the same tables at the same time.

    The exit code is 1 if a batch failed, if Kafka does not answer or if another command writes the tables. It is 2 if
    Spark cannot run here or there is nothing to read.
    """
    source = shared.event_source_of(asked)
    follow, as_json = asked["follow"], asked["as_json"]
    tell = click.echo if follow and not as_json else lambda _summary: None
    with shared.started("ingest", asked) as (spark, tables):
        from karrot.pipeline.ingest.job import Ingest
        from karrot.pipeline.store.hadoop_filesystem import place_for
        from karrot.pipeline.store.write_lease import EVENTS, writing

        stop = threading.Event()
        if follow:
            end_on_signals(stop)
        with writing(spark, tables, EVENTS, "karrot pipeline ingest", wait=asked["wait"], stop=stop) as leased:
            checkpoint = place_for(spark, asked["checkpoint"] or "")
            job = Ingest(spark, source(), leased, checkpoint=checkpoint, tell=tell)
            total = job.run(asked["every"] if follow else None, stop)
    click.echo(json.dumps(total.as_dict()) if as_json else str(total))


_LONGEST = timedelta(days=3_660)


@click.command(cls=JobCommand)
@shared.spark_options
@day_option("--from", "first", help="First day (UTC).  [default: six days before --to]")
@day_option("--to", "last", help="Last day, included.  [default: the newest day in the tables]")
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), default=Path("report.html"), help="The file to write."
)
def report(**asked: Any) -> None:
    """Write a report about a range of days, as a single, self-contained HTML file.

    The report shows the groups that were furthest behind, the incidents, the use of the error budget, topics with skew,
    groups whose capacity runs out, and the next steps.

    The exit code is 2 if the tables have none of these days.
    """
    first, last, output = asked["first"], asked["last"], asked["output"]
    if first and last and first > last:
        raise Refused(f"--from {first:%Y-%m-%d} is after --to {last:%Y-%m-%d}")
    if first and last and last - first >= _LONGEST:
        raise Refused(f"--from {first:%Y-%m-%d} to {last:%Y-%m-%d}: a report has at most {_LONGEST.days:,} days")
    with shared.started("report", asked) as (spark, tables):
        from karrot.pipeline.report import job
        from karrot.pipeline.report.html_page import page

        try:
            kept = tables.together(spark)
            period = job.period_of(spark, kept, first and first.date(), last and last.date())
            findings = job.find(spark, kept, period)
        except job.NothingToReportError as error:
            raise Refused(str(error)) from error
    written = page(findings, made_at=datetime.now(UTC))
    try:
        output.write_text(written.html, encoding="utf-8")
    except OSError as error:
        raise Refused(str(error)) from error
    click.echo(f"{output}: {written.headline}")
