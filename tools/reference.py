"""Writes ``docs/reference/`` from the code: ``python tools/reference.py``, which is ``make docs``."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from karrot import cli, telemetry
from karrot.doctor.read_and_check import all_checks
from karrot.known_problems import CODES, RUNBOOKS
from karrot.settings import options

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"


def pages() -> dict[str, str]:
    """Each page of the reference by its file name."""
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
        "Later wins: default, file (`--config karrot.toml`), environment, command line. In the file the names are in\n"
        "lower case without `KARROT_`, flat or in a table `[karrot]`. An empty value is as good as none, but an empty\n"
        "secret is refused. `karrot check-config` prints what a start would run with.",
        _table(("name", "default", "what it does", "allowed"), rows),
        "A secret can come from a file: `KARROT_API_TOKEN_FILE=/run/secrets/token`; one line end at its end is cut.\n"
        "The settings of a reporter are called `KARROT_<REPORTER>_*`; each of them can come from a file too.",
        f"A reload (SIGHUP) cannot change {fixed}: these need a restart.",
        "## Names that are taken",
        "`KARROT_CLOUDWATCH_*` and `KARROT_IAM_ROLE` stop the start while the `cloudwatch` reporter is off: nobody\n"
        "loses their scaling metric by an upgrade. `KARROT_PORT`, `KARROT_PORT_*`, `KARROT_SERVICE_*`,\n"
        "`KARROT_BURROW_PORT*` and `KARROT_BURROW_SERVICE_*` are ignored: Kubernetes injects them. Other unknown\n"
        "names are warned about.",
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
        "Errors are `application/problem+json` (RFC 9457), with a stable `code`. Those marked below are what\n"
        "`/burrow` refuses an event with; there, and only there, they are counted: the same word is the label of\n"
        "`karrot_events_rejected_total`. `internal_error` is in the log, with its traceback. What is not HTTP at all\n"
        "never gets that far: the server itself refuses it with a plain 400.",
        _table(("code", "status", "at `/burrow`", "what happened", "what to do"), rows),
    )


def _metrics() -> str:
    rows = (
        (f"`{each.name}`", each.kind, ", ".join(f"`{label}`" for label in each.labels), _cell(each.help))
        for each in telemetry.METRICS
    )
    return _page(
        "Metrics",
        "What is not known has no sample: never NaN, never negative, never an old value as a new one.",
        _table(("name", "kind", "labels", "what it tells"), rows),
    )


def _commands() -> str:
    with click.Context(cli.main, info_name="karrot", **cli.main.context_settings) as whole:
        commands = [f"## {path}\n\n```text\n{text}\n```" for path, text in _helps(cli.main, whole)]
    return _page(
        "Commands",
        "`python -m karrot` is `karrot`. What is wrong is said in one line on standard error; exit code 2 for\n"
        "settings and arguments, 1 where the answer is no.",
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
        "Each looks for one trap in what the sides that it needs have told. Where that was not told, it says nothing,\n"
        "neither good nor bad. [burrow.md](../burrow.md#karrot-doctor) says how to read the answers. A runbook is\n"
        "named where an alert fires on the same problem.",
        _table(("check", "needs", "trap", "what is so if all is well", "read on", "runbook"), rows),
    )


def _helps(group: click.Group, parent: click.Context) -> Iterator[tuple[str, str]]:
    """Each command of a group, and each of a group below it, with its help."""
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
