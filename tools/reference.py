"""Writes ``docs/reference/`` from the code. Run ``python tools/reference.py``, or ``make docs``."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from karrot import cli, telemetry
from karrot.doctor.read_and_check import all_checks
from karrot.known_problems import CODES, RUNBOOKS
from karrot.settings import options

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"


def pages() -> dict[str, str]:
    """Return each page of the reference by its file name."""
    return {
        "settings.md": _settings(),
        "codes.md": _codes(),
        "commands.md": _commands(),
        "metrics.md": _metrics(),
        "checks.md": _checks(),
    }


def _settings() -> str:
    rows = ((f"`{each.name}`", _default(each), _cell(each.sentence), _cell(_allowed(each))) for each in options.OPTIONS)
    fixed = ", ".join(f"`{each.name}`" for each in options.OPTIONS if not each.reloads)
    return _page(
        "Settings",
        "Karrot reads settings from the file `--config karrot.toml`, from the environment and from the\n"
        "command line. The environment overrides the file, and the command line overrides both. In the file,\n"
        "write names in lower case without `KARROT_`, either flat or in a table `[karrot]`. An empty value\n"
        "counts as not set, but an empty secret is an error. `karrot check-config` prints the settings that\n"
        "`karrot serve` would use.",
        _table(("name", "default", "what it does", "allowed"), rows),
        "You can put a secret into a file: `KARROT_API_TOKEN_FILE=/run/secrets/token`. Karrot removes one\n"
        "line end at the end of the file. You can also put each setting of a reporter (`KARROT_<REPORTER>_*`)\n"
        "into a file.",
        f"A change of {fixed} needs a restart. A reload (SIGHUP) does not change these settings.",
        "## Names with a special meaning",
        "Karrot does not start with `KARROT_CLOUDWATCH_*` or `KARROT_IAM_ROLE` while the `cloudwatch`\n"
        "reporter is off. So an upgrade cannot silently remove a metric that a service scales by. Karrot\n"
        "ignores `KARROT_PORT`, `KARROT_PORT_*`, `KARROT_SERVICE_*`, `KARROT_BURROW_PORT*` and\n"
        "`KARROT_BURROW_SERVICE_*`, because Kubernetes sets them. Karrot logs a warning for each other unknown name.",
    )


def _default(option: options.Option) -> str:
    return f"`{option.default}`" if option.default else "none"


def _allowed(option: options.Option) -> str:
    return "a text" if option.is_secret else option.kind.allowed


def _codes() -> str:
    counted = telemetry.EVENTS_REJECTED.known
    rows = (
        (f"`{code}`", str(known.status), "yes" if code in counted else "", _cell(known.title), _cell(known.remedy))
        for code, known in CODES.items()
    )
    return _page(
        "Problem codes",
        "An error answer has the type `application/problem+json` (RFC 9457) and a stable `code`. The column\n"
        '"at `/burrow`" marks the codes with which `/burrow` refuses an event. `karrot_events_rejected_total`\n'
        "counts only these refusals, with the code as a label. For `internal_error`, the log has the traceback. If a\n"
        "request is not HTTP, the server answers with a plain 400 without a code.",
        _table(("code", "status", "at `/burrow`", "what happened", "what to do"), rows),
    )


def _metrics() -> str:
    rows = (
        (f"`{each.name}`", each.kind, ", ".join(f"`{label}`" for label in each.labels), _cell(each.help))
        for each in telemetry.METRICS
    )
    return _page(
        "Metrics",
        "An unknown value has no sample. Karrot never exports NaN or a negative value, and never an old value\n"
        "as a new one.",
        _table(("name", "kind", "labels", "meaning"), rows),
    )


def _commands() -> str:
    with click.Context(cli.main, info_name="karrot", **cli.main.context_settings) as whole:
        commands = [f"## {path}\n\n```text\n{text}\n```" for path, text in _helps(cli.main, whole)]
    return _page(
        "Commands",
        "`python -m karrot` is the same as `karrot`. A command prints each error as one line on standard\n"
        "error. The exit code is 2 for wrong settings and options. It is 1 if the command failed, or if a\n"
        "check that the command made has a negative result.",
        *commands,
    )


def _checks() -> str:
    rows = (
        (
            f"`{each.name}`",
            sides,
            _cell(each.trap),
            _cell(each.well),
            f"[{each.where}](../{each.where})",
            ", ".join(f"[{name}](../runbooks/{name}.md)" for name in (RUNBOOKS[known] for known in each.problems)),
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


def _helps(group: click.Group, parent: click.Context) -> Iterator[tuple[str, str]]:
    """The help of each command of a group, and of the groups inside this group."""
    for name, command in sorted(group.commands.items()):
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


if __name__ == "__main__":
    main()
