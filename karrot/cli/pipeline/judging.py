"""Makes the judges of ``karrot pipeline offsets`` and the receivers of their verdicts and alerts from the options."""

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, Final

import click

from karrot.cli.errors import Refused, stated
from karrot.cli.options import secret
from karrot.cli.print_table import shown
from karrot.text import counted

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from karrot.eventlog.base import StoredEvent
    from karrot.pipeline.evaluate.burrow_judge import JudgedBatch
    from karrot.pipeline.evaluate.metrics_and_health import EvaluateMetrics
    from karrot.pipeline.evaluate.verdict_destinations import Deliver, RefusedVerdict
    from karrot.pipeline.offsets.job import Judge
    from karrot.pipeline.publish_to_cloudwatch import Publisher
    from karrot.pipeline.stale.stale_judge import DeliverySummary
    from karrot.pipeline.store.table_files import Tables
    from karrot.settings.options import CloudWatch

    MakeJudges = Callable[[SparkSession, Tables, str, EvaluateMetrics, Event], list[Judge]]

BURROW: Final = "burrow"
STALE: Final = "stale"
JUDGES: Final = (BURROW, STALE)
STDOUT: Final = "stdout"
TABLES: Final = "tables"
CLOUDWATCH: Final = "cloudwatch"
_RECEIVERS: Final = {
    "karrot": (BURROW, "karrot=URL"),
    "kafka": (BURROW, "kafka=TOPIC"),
    TABLES: (BURROW, TABLES),
    CLOUDWATCH: (BURROW, CLOUDWATCH),
    "webhook": (STALE, "webhook=URL"),
    STDOUT: (None, STDOUT),
}
"""The receivers: the judge that sends to each (stdout: all judges), and how the receiver is written."""

WEBHOOK: Final = "KARROT_STALE_WEBHOOK"
"""The variable with the address of the webhook, which may be a secret."""

_TWICE: Final = (
    "KARROT_REPORTERS has cloudwatch, so the service publishes to CloudWatch already, and every sample would count "
    "twice: remove cloudwatch from KARROT_REPORTERS"
)


def read_receivers(_context: click.Context, option: click.Parameter, text: str | None) -> dict[str, str]:
    """Return the places of the receivers by their names. The URL of a webhook may contain commas."""
    found = dict[str, str]()
    before_a_receiver = rf",(?=\s*(?:{'|'.join(_RECEIVERS)})\s*(?:[=,]|$))"
    for part in [] if text is None else re.split(before_a_receiver, text):
        name, _, place = part.strip().partition("=")
        written = _RECEIVERS.get(name, (None, ""))[1]
        needs_place = "=" in written and not (name == "webhook" and WEBHOOK in os.environ)
        has_rest = "," in place and name != "webhook"
        if not written or bool(place) < needs_place or (place and "=" not in written) or has_rest:
            every = ", ".join(written for _, written in _RECEIVERS.values())
            said = f"{name}=…" if place else part.strip()  # the place can be a secret
            raise click.BadParameter(f"{said!r} is no receiver: write some of {every}", param=option)
        if name in found:
            raise click.BadParameter(f"{name} is there twice", param=option)
        found[name] = place or os.environ.get(WEBHOOK, "")
    return found


def require_judges(judges: list[str], receivers: Mapping[str, str]) -> None:
    """Raise Refused if a receiver gets nothing."""
    for name in receivers:
        judge, _ = _RECEIVERS[name]
        if not judges or (judge is not None and judge not in judges):
            raise Refused(f"--to {name} needs --judge {judge or f'{BURROW} or {STALE}'}")


def prints(judge: str, receivers: Mapping[str, str]) -> bool:
    """Whether a judge writes to standard output: if asked to, or if it has no other receiver."""
    return STDOUT in receivers or not any(_RECEIVERS[name][0] == judge for name in receivers)


def _verdict_receivers(asked: Mapping[str, Any]) -> "dict[str, Deliver]":
    """Return the receivers of verdicts that need no Spark. Raises Refused or ValueError."""
    from karrot.pipeline.evaluate.verdict_destinations import to_karrot

    receivers, found = asked["receivers"], dict[str, "Deliver"]()
    if prints(BURROW, receivers):
        found[STDOUT] = _print
    if url := receivers.get("karrot"):
        found["karrot"] = to_karrot(url, secret("KARROT_BURROW_TOKEN"), lists_all=asked["partitions"] == "all")
    if topic := receivers.get("kafka"):
        found["kafka"] = _topic(topic, asked)
    return found


def _print(several: "Iterable[StoredEvent]") -> "Sequence[RefusedVerdict]":
    for each in several:
        click.echo(each.body)
    return ()


def _alert_receivers(receivers: Mapping[str, str]) -> dict[str, Callable[[str], object]]:
    """Return the functions that send a line of the judge ``stale``. Raises ValueError for a wrong address."""
    from karrot.pipeline.stale.stale_judge import to_webhook

    webhook = {"webhook": to_webhook(receivers["webhook"])} if "webhook" in receivers else {}
    return webhook | ({STDOUT: click.echo} if prints(STALE, receivers) else {})


def cloudwatch_options(config: "Path | None") -> "CloudWatch":
    """Return the cloudwatch reporter's settings. Raises Refused if they are wrong, or if the service also publishes."""
    from karrot import logs
    from karrot.settings.loading import SettingsError, load

    # The Spark jobs accept any URL in KARROT_TABLES_DIR, but the service's settings accept only a folder or S3.
    environ = {name: text for name, text in os.environ.items() if name != "KARROT_TABLES_DIR"}
    # Not strict, because the service's file may have settings of reporters that are not installed on this machine.
    loaded = stated(partial(load, environ, config=config, overrides={"reporters": "cloudwatch"}, strict=False))
    with suppress(SettingsError):  # the settings were valid with the reporter on, so it is off here
        if "cloudwatch" in load(environ, config=config, strict=False).settings.reporters:
            raise Refused(_TWICE)
    logs.configure(loaded.settings.log, sys.stderr)
    return loaded.settings.cloudwatch


def _topic(topic: str, asked: Mapping[str, Any]) -> "Deliver":
    """Return the receiver for a topic, which connects only later. Raises Refused or ValueError."""
    from karrot.kafka import client_properties
    from karrot.pipeline.evaluate.verdict_destinations import to_topic
    from karrot.reporters.kafka.producer import KafkaTopic
    from karrot.settings import types
    from karrot.settings.options import Kafka

    topic = types.checked(types.topic, "--to kafka=", topic)
    options = Kafka(asked["bootstrap_servers"], topic, asked["command_config"])
    client_properties.read(options.properties)
    return to_topic(partial(KafkaTopic, options))


def judges_of(asked: Mapping[str, Any], unsent: dict[str, str]) -> "MakeJudges":
    """Read the options, and return a function that makes the judges when Spark runs. Raises Refused or ValueError.

    ``unsent`` has a text for each judge with verdicts or alerts that wait after its last batch.
    """
    from karrot.burrow.notification_rules import NameFilter, NotifierSettings
    from karrot.pipeline.evaluate.bucket_state import EvaluateRules

    interval_s = asked["send_interval"].total_seconds() if asked["send_interval"] else 0
    rules = EvaluateRules(
        asked["rules"],
        NotifierSettings(asked["threshold"], send_interval=interval_s, send_close=True),
        int(asked["expire_group"].total_seconds()),
        lists_all=asked["partitions"] == "all",
        groups=NameFilter.of(asked["group_allowlist"], asked["group_denylist"]),
    )
    receivers, cluster = asked["receivers"], asked["cluster"]
    options = cloudwatch_options(asked["config"]) if CLOUDWATCH in receivers else None
    verdicts, alerts = _verdict_receivers(asked), _alert_receivers(receivers)

    def made(
        spark: "SparkSession", tables: "Tables", checkpoint: str, metrics: "EvaluateMetrics", stop: Event
    ) -> "list[Judge]":
        from karrot.clock import SystemClock
        from karrot.pipeline.evaluate.burrow_judge import BurrowJudge, to_tables
        from karrot.pipeline.publish_to_cloudwatch import publisher_beside
        from karrot.pipeline.stale.stale_judge import StaleJudge

        if TABLES in receivers:
            verdicts[TABLES] = to_tables(spark, tables, SystemClock())
        if options is not None:
            verdicts[CLOUDWATCH] = partial(_to_cloudwatch, publisher_beside(spark, checkpoint, options, stop))
        burrow, stale = (f"{checkpoint}/{name}" for name in (BURROW, STALE))
        since, tell = (datetime.now(UTC) - asked["look_back"]).date(), partial(_tell_alerts, unsent)
        seen = partial(_seen, metrics, unsent, burrow)
        judges: dict[str, Judge] = {
            BURROW: BurrowJudge(spark, cluster, tables, burrow, rules, verdicts, seen=seen),
            STALE: StaleJudge(spark, cluster, tables, stale, asked["length"], since, alerts, tell),
        }
        return [judges[name] for name in asked["judges"]]

    return made


def _to_cloudwatch(publisher: "Publisher", several: "Iterable[StoredEvent]") -> "Sequence[RefusedVerdict]":
    if problem := publisher.publish(several):
        click.echo(f"karrot: {problem}", err=True)
    return ()


def _seen(metrics: "EvaluateMetrics", unsent: dict[str, str], place: str, batch: "JudgedBatch") -> None:
    metrics.judged(batch)
    _tell_waiting(unsent, BURROW, counted(batch.waiting, "verdict"), batch.problem)
    for receiver in sorted({each.receiver for each in batch.refused}):
        refused = [each for each in batch.refused if each.receiver == receiver]
        codes = ", ".join(f"{code} {count}" for code, count in sorted(Counter(each.code for each in refused).items()))
        one = shown(refused[0].consumer, getattr(sys.stderr, "encoding", None) or "utf-8")
        said = f"{receiver} refused {len(refused)} verdicts ({codes}), one of {one}; they are in {place}/refused"
        click.echo(f"karrot: {said}", err=True)


def _tell_alerts(unsent: dict[str, str], summary: "DeliverySummary") -> None:
    dropped = f", {summary.dropped:,} older ones were dropped" if summary.dropped else ""
    _tell_waiting(unsent, STALE, f"{counted(summary.unsent, 'alert')}{dropped}", summary.problem)


def _tell_waiting(unsent: dict[str, str], judge: str, said: str, problem: str) -> None:
    unsent.pop(judge, None)
    if problem:
        unsent[judge] = f"waiting for the next batch or start: {said} ({problem})"
        click.echo(f"karrot: {unsent[judge]}", err=True)
