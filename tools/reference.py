"""Writes ``docs/reference/`` and the template of `karrot render athena` from the code: ``make docs``."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import click
from prometheus_client import Metric as PrometheusMetric
from prometheus_client.process_collector import ProcessCollector
from pyspark.sql.types import StructType

from karrot import cli, telemetry
from karrot.burrow.payload import BOUNDS
from karrot.cli.pipeline.offsets import offsets
from karrot.cli.pipeline.run import run
from karrot.doctor.run_all_checks import all_checks
from karrot.eventlog.next_group_state import REMEMBERED
from karrot.eventlog.transaction_rules import MOST_CLUSTERS
from karrot.eventlog.writer import KEPT_REJECTS
from karrot.intake import KEPT_BYTES
from karrot.pipeline.evaluate.metrics_and_health import EVALUATE_METRICS
from karrot.pipeline.run.step_loop import PIPELINE_METRICS
from karrot.pipeline.schemas_and_conversions import ABOUT, OFFSETS, TABLES
from karrot.pipeline.store.table_files import READERS_HOURS
from karrot.reload_changed_files import FileProblem
from karrot.reporters.prometheus.group_metrics import MOST_PARTITIONS
from karrot.runbooks_and_remedies import CODES, TABLES_PROBLEMS
from karrot.settings import options
from tools.log_records import log_records

FILE_PROBLEMS: Mapping[FileProblem, str] = {
    "certificate_unusable": "Make the files in KARROT_TLS_CERT and KARROT_TLS_KEY readable, and put the certificate "
    "and its own private key without a password into them.",
    "secrets_unusable": "Make the file that the message names readable, and write the secret into it as UTF-8 text.",
}
_ROOT = Path(__file__).resolve().parents[1]
REFERENCE = _ROOT / "docs" / "reference"
ATHENA = _ROOT / "templates" / "athena" / "tables.sql.j2"


def pages() -> dict[str, str]:
    """Return each page of the reference by its file name."""
    return {
        "settings.md": _settings(),
        "codes.md": _codes(),
        "commands.md": _commands(),
        "metrics.md": _metrics(),
        "checks.md": _checks(),
        "bounds.md": _bounds(),
        "tables.md": _tables(),
    }


def _settings() -> str:
    rows = ((f"`{each.name}`", _default(each), _cell(each.sentence), _cell(_allowed(each))) for each in options.OPTIONS)
    fixed = ", ".join(f"`{each.name}`" for each in options.OPTIONS if not each.reloads)
    return _page(
        "Settings",
        "Karrot reads settings from the file `--config karrot.toml` or `KARROT_CONFIG=karrot.toml`, from the\n"
        "environment and from the command line. The environment overrides the file, and the command line\n"
        "overrides both. In the file, write names in lower case without `KARROT_`, either flat or in a table\n"
        "`[karrot]`. An empty value counts as not set, but an empty secret is an error. `karrot check-config`\n"
        "prints the settings that `karrot serve` would use, and with `--sources` also where each value comes from.",
        _table(("name", "default", "what it does", "allowed"), rows),
        "You can put a secret into a file: `KARROT_API_TOKEN_FILE=/run/secrets/token`. Karrot removes one\n"
        "line end at the end of the file. You can also put each setting of a reporter (`KARROT_<REPORTER>_*`)\n"
        "into a file.",
        "If a file with a password or a token changes, Karrot uses the\n"
        "[new content](../operations.md#renewed-certificates-and-secrets) within a second or two.",
        f"A change of {fixed} needs a restart. A reload (SIGHUP) does not change these settings.",
        "## Names with a special meaning",
        "Karrot does not start with `KARROT_CLOUDWATCH_*` or `KARROT_IAM_ROLE` while the `cloudwatch`\n"
        "reporter is off. So an upgrade cannot silently remove a metric that a service scales by. Karrot\n"
        "ignores `KARROT_PORT`, `KARROT_PORT_*`, `KARROT_SERVICE_*`, `KARROT_BURROW_PORT*` and\n"
        "`KARROT_BURROW_SERVICE_*`, because Kubernetes sets them. Karrot logs a warning for each other unknown\n"
        "name in the environment. An unknown name in the file is an error.",
    )


def _default(option: options.Option) -> str:
    return f"`{option.default}`" if option.default else "none"


def _allowed(option: options.Option) -> str:
    return "a text" if option.is_secret else option.kind.allowed


_ELSEWHERE = ("not_found", "method_not_allowed")


def _codes() -> str:
    rows = (
        (f"`{code}`", str(known.status), "" if code in _ELSEWHERE else "yes", _cell(known.title), _cell(known.remedy))
        for code, known in CODES.items()
    )
    return _page(
        "Problem codes",
        "An error answer has the type `application/problem+json` (RFC 9457) and a stable `code`. The column\n"
        '"at `/burrow`" marks the codes with which `/burrow` refuses an event. `karrot_events_rejected_total`\n'
        "counts these refusals, with the code as a label, and a `POST`, `PUT` or `DELETE` to a wrong path, as\n"
        "`not_found` or `method_not_allowed`. For `internal_error`, the log has the traceback. If a\n"
        "request is not HTTP, the server answers with a plain 400 without a code.",
        _table(("code", "status", "at `/burrow`", "what happened", "what to do"), rows),
        "## The pipeline's tables\n\n"
        "If `karrot history` or the page of a group cannot read the [tables](../history.md), the message has one of\n"
        "these codes in parentheses. The service also logs the code.",
        _table(("code", "what to do"), ((f"`{code}`", _cell(remedy)) for code, remedy in TABLES_PROBLEMS.items())),
        "## Changed files\n\n"
        "If Karrot cannot use a [changed certificate or secret]"
        "(../operations.md#renewed-certificates-and-secrets), it keeps the\n"
        "old one and logs one of these codes. `karrot_file_reload_failures_total` counts it.",
        _table(("code", "what to do"), ((f"`{code}`", _cell(remedy)) for code, remedy in FILE_PROBLEMS.items())),
        "## Log records\n\n"
        "Each warning and each error in the log has a stable `code`. The text in `event` can change with a version,\n"
        "so search and alert by `code`. If the cause is known, it is in `reason`. Some records have a `code` of\n"
        "another list: a problem code above for `event refused` and `request failed`, a code of the pipeline's tables\n"
        "for `the tables cannot be read`, a code of changed files, and a label of `karrot_pipeline_failures_total`\n"
        "for `step failed` and `log ends not written`.",
        _table(("code", "level", "event"), _logged()),
    )


def _logged() -> Iterable[tuple[str, str, str]]:
    """The log records with a code of their own."""
    return sorted({(f"`{each.code}`", each.level, _cell(each.text or "")) for each in log_records() if each.code})


def _metrics() -> str:
    return _page(
        "Metrics",
        "An unknown value has no sample. Karrot never exports NaN or a negative value, and never an old value\n"
        "as a new one.",
        "In OpenMetrics, `karrot_build_info` is an info. In the text format, which has no infos, it is a gauge. The\n"
        "name, the labels and the value are the same. `karrot_consumer_status` and `karrot_consumer_group_state` are\n"
        "gauges in both formats: as a state set of OpenMetrics, the label `status` or `state` would need the name of\n"
        "the metric, and every query would have to change. `karrot_leader_info` is a gauge, because its label changes\n"
        "while Karrot runs.",
        _metrics_table(each for each in telemetry.METRICS if each.now is None),
        "## The process",
        "A Karrot has several processes, and any worker can answer a scrape. These metrics are always those of the\n"
        "worker that leads, which also feeds the reporters. If another worker takes the lead, the start time changes\n"
        "and the CPU time begins at the new leader's own value. The metrics are absent while no worker leads, on a\n"
        "replica that does not lead (with PostgreSQL), and on systems without `/proc`. Memory is that of this one\n"
        "process. For a whole pod, use the metrics of its container.",
        _table(
            ("name", "kind", "meaning"),
            ((f"`{each.samples[0].name}`", each.type, each.documentation) for each in _process_metrics()),
        ),
        "## Old names\n\n"
        "Karrot 2 also exports these metrics under their old names, with the same values. Karrot 3 will not. The old\n"
        "names have `_count` before `_total`, and in OpenMetrics `_count` belongs to histograms and summaries. The\n"
        "metrics with the labels `cluster` and `consumer` keep their names.",
        _table(
            ("old name", "name", "last version with the old name"),
            ((f"`{each.name}`", f"`{each.now}`", "2") for each in telemetry.METRICS if each.now),
        ),
        "## karrot pipeline run",
        "`karrot pipeline run --metrics-port PORT` has metrics of its own, which the service does not have. They\n"
        "begin at 0 with each start.",
        _metrics_table(PIPELINE_METRICS),
        "## karrot pipeline offsets",
        "With `--judge burrow`, `karrot pipeline offsets --metrics-port PORT` has these metrics. They begin at 0 with\n"
        "each start.",
        _metrics_table(EVALUATE_METRICS),
    )


def _process_metrics() -> Iterator[PrometheusMetric]:
    """The metrics of this process, as Prometheus's client library defines them."""
    return iter(ProcessCollector(registry=None).collect())


def _metrics_table(metrics: Iterable[telemetry.Metric]) -> str:
    rows = (
        (f"`{each.name}`", each.kind, ", ".join(f"`{label}`" for label in each.labels), _cell(each.help))
        for each in metrics
    )
    return _table(("name", "kind", "labels", "meaning"), rows)


def _commands() -> str:
    with click.Context(cli.main, info_name="karrot", **cli.main.context_settings) as whole:
        commands = [f"## {path}\n\n```text\n{text}\n```" for path, text in _helps(cli.main, whole)]
    return _page(
        "Commands",
        "`python -m karrot` is the same as `karrot`. A command prints each error as one line on standard\n"
        "error. The exit code is 2 for wrong settings and options. It is 1 if the command failed, or if a\n"
        "check that the command made has a negative result. It is 75 if a service cannot start now. A shell\n"
        "can complete the commands, and each command has a [man page](../operations.md#completion-and-man-pages).",
        *commands,
    )


def _checks() -> str:
    rows = (
        (
            f"`{each.name}`",
            sides,
            _cell(each.problem),
            _cell(each.success),
            f"[{each.where}](../{each.where})",
            ", ".join(f"[{name}](../runbooks/{name}.md)" for name in each.runbooks),
        )
        for sides, each in all_checks()
    )
    return _page(
        "Checks of karrot doctor",
        'Each check looks for one problem in the data of the programs in the column "needs". A check without this\n'
        "data gives no result. [burrow.md](../burrow.md#karrot-doctor) explains the results. If an alert fires\n"
        "for the problem of a check, the last column names the runbook of the alert.",
        _table(("check", "needs", "problem", "if the check passes", "documentation", "runbook"), rows),
    )


_EXTRAS = "Extras are lines of the notifier's section in `burrow.toml`."
_OF_PARTITIONS = "$.Event.Result.partitions"
_WHY = {
    "$.Event.Cluster": "It is the name of a section in `burrow.toml`.",
    "$.Event.Group": "Kafka allows 32,767 bytes. An index of PostgreSQL holds 2,704 bytes for the cluster and the "
    "group together.",
    "$.Event.ID": "Burrow's ids have 36 bytes.",
    "$.Event.Extras": _EXTRAS,
    "$.Event.Extras[key]": _EXTRAS,
    "$.Event.Extras[...]": _EXTRAS,
    "$.Event.Result.status": "Burrow's longest is `NOTFOUND`.",
    _OF_PARTITIONS: "A body of 8 MiB, the default of `KARROT_MAX_BODY`, has room for about 20,000 of Burrow's "
    "partitions.",
    f"{_OF_PARTITIONS}[...].topic": "Kafka allows no longer name.",
    f"{_OF_PARTITIONS}[...].status": "Burrow's longest is `REWIND`.",
    f"{_OF_PARTITIONS}[...].owner": "It is the host of a consumer.",
    f"{_OF_PARTITIONS}[...].client_id": "Kafka allows 32,767 bytes. Real ids have up to 200.",
}
"""Why each bound of an event is what it is."""


def _bounds() -> str:
    refused = ((f"`{each.path}`", f"{each.most:,} {each.unit}", _cell(_WHY[each.path])) for each in BOUNDS)
    forgotten = (
        ("ids of incidents", f"{REMEMBERED} of each group", "Karrot forgets the oldest id."),
        ("clusters with a time of the last webhook", f"{MOST_CLUSTERS:,}", "Karrot forgets the oldest cluster."),
        (
            "partitions in one scrape",
            f"{MOST_PARTITIONS:,}",
            "The groups with the most partitions have no series for them, counted in `karrot_series_dropped_total`.",
        ),
        ("refused bodies", f"{KEPT_REJECTS:,}, {KEPT_BYTES:,} bytes of each", "Karrot deletes the oldest body."),
    )
    return _page(
        "Bounds",
        "Others choose the texts and lists of an event, so each has a bound. Real values are far within the\n"
        "bounds. Lengths are in bytes of UTF-8.",
        "Karrot refuses an event beyond a bound with the code `invalid_field`, names the field in `path`, counts the\n"
        "event in `karrot_events_rejected_total`, and keeps the beginning of its body. The path is that of a posted\n"
        "body. The same bounds hold for events from Burrow's REST API and from Kafka. `$.Event.Result.maxlag` has the\n"
        "bounds of a partition. Karrot does not check stored events again.",
        _table(("field", "at most", "why"), refused),
        "Settings bound the whole: `KARROT_MAX_BODY`, `KARROT_MAX_CONSUMERS`, `KARROT_MAX_LOG_BYTES`,\n"
        "`KARROT_LOG_END_MAX_BYTES` and others ([settings](settings.md)). These bounds are fixed:",
        _table(("what Karrot keeps or exports", "at most", "beyond the bound"), forgotten),
    )


_DELTA = """\
-- The tables of karrot pipeline for Amazon Athena (engine 3). Athena runs one statement at a time.
-- They are Delta Lake tables: Athena reads the columns, the days and the newest version from the log of each table.
-- A table that has never had a row has no log: leave it out until then. The view needs partition_lag_minute.
-- Athena refuses COMMENT in these statements. The comments of the columns are in the log of each table, too.

CREATE DATABASE IF NOT EXISTS {{ database }};
"""


_OFFSETS_MINUTE = """
-- offsets_minute: the minutes with commits.
CREATE OR REPLACE VIEW "{{ database }}"."offsets_minute" AS
SELECT cluster, consumer, topic, partition, minute, commits AS count, offset_sum, offset_first, offset_last, day
FROM "{{ database }}"."partition_lag_minute" WHERE commits > 0;
"""


def athena_template() -> str:
    """Return the template of `karrot render athena`, with the description of each table and column as a comment."""
    return _DELTA + "".join(_athena_table(name) for name in TABLES) + _OFFSETS_MINUTE


def _athena_table(name: str) -> str:
    columns = (
        f"--   {column.name} {column.dataType.simpleString()}: {column.metadata['comment']}" for column in TABLES[name]
    )
    return f"""
-- {name}: {ABOUT[name]}
{chr(10).join(columns)}
CREATE EXTERNAL TABLE IF NOT EXISTS `{{{{ database }}}}`.`{name}`
LOCATION '{{{{ location }}}}/{name}/'
TBLPROPERTIES ('table_type' = 'DELTA');
"""


def _tables() -> str:
    def default(command: click.Command, option: str) -> str:
        return next(f"`{each.opts[0]} {each.default}`" for each in command.params if each.name == option)

    turn = f"a turn of `run` ({default(run, 'every')})"
    batch = f"a batch of `offsets` ({default(offsets, 'every')})"
    after = {"quarantine": f"{turn}, or {batch}"} | dict.fromkeys(OFFSETS, f"{batch}, or a turn of `run --offsets`")
    promises = (
        (
            f"[`{name}`](#table-{name})",
            ABOUT[name].row,
            _names(ABOUT[name].key),
            _names(ABOUT[name].sorted_by),
            ABOUT[name].day,
            after.get(name, turn),
        )
        for name in TABLES
    )
    head = ("column", "type", "what it says", "unit", "NULL")
    return _page(
        "Tables",
        "The pipeline's [tables](../tables.md) have these columns. The log of each table has the same texts, as\n"
        "comments. A column without an entry under NULL is never NULL. Each table also has the column `day`, a date\n"
        f"in UTC. `karrot pipeline run` deletes the days that are older than {default(run, 'keep')} from every\n"
        f"table, and the files of old versions after {READERS_HOURS} hours.",
        _table(("table", "one row per", "key", "sorted by", "day of", "new rows after"), promises),
        *(f"## Table {name}\n\n{_table(head, _columns(schema))}" for name, schema in TABLES.items()),
    )


def _names(columns: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in columns) or "none"


def _columns(schema: StructType) -> Iterator[tuple[str, ...]]:
    for column in schema:
        texts = (column.metadata[part] for part in ("what", "unit", "null"))
        yield f"`{column.name}`", *map(_cell, (column.dataType.simpleString(), *texts))


def _helps(group: click.Group, parent: click.Context) -> Iterator[tuple[str, str]]:
    """The help of each command of a group, and of the groups inside this group."""
    for name, command in sorted((name, each) for name, each in group.commands.items() if not each.hidden):
        with click.Context(command, info_name=name, parent=parent, terminal_width=100) as context:
            yield context.command_path, command.get_help(context)
            if isinstance(command, click.Group):
                yield from _helps(command, context)


def _page(title: str, *parts: str) -> str:
    mark = "<!-- Written by tools/reference.py (make docs) from the code: change it there. -->"
    return "\n\n".join((f"# {title}", mark, *parts)) + "\n"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in _with_rule(head, rows))


def _with_rule(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    yield head
    yield ("---",) * len(head)
    yield from rows


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def main() -> None:
    """Write every page."""
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")
    ATHENA.write_text(athena_template(), encoding="utf-8")


if __name__ == "__main__":
    main()
