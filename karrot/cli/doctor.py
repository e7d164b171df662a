"""``karrot doctor``: finds problems between Burrow, Karrot and Prometheus, and prints how to solve them."""

import json
import sys
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import click

from karrot.cli.errors import valid
from karrot.cli.options import LOCAL_KARROT, json_option, karrot_option, secret, url_option
from karrot.cli.print_table import print_lines, safe
from karrot.text import counted_plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karrot.doctor import Finding


_LEVELS = {
    "fault": ("✖", "x", "red", "fault"),
    "warn": ("▲", "!", "yellow", "warning"),
    "note": ("◆", "-", "cyan", "note"),
    "ok": ("●", "+", "green", "check"),
}
"""The mark of each level, an ASCII mark for terminals that cannot show it, the colour, and the word of the summary."""


@click.command(short_help="Find problems from Burrow to Prometheus.")
@url_option("--burrow", envvar="KARROT_BURROW_URL", help="Address of Burrow, such as http://burrow:8000.")
@karrot_option("karrot", help=f"Address of Karrot.  [default: KARROT_URL, or {LOCAL_KARROT} without any address]")
@url_option("--prometheus", help="Address of Prometheus, such as http://prometheus:9090.")
@click.option("--all", "with_ok", is_flag=True, help="Also print a line for each check that passed.")
@json_option("Print one line of JSON.")
def doctor(burrow: str | None, karrot: str | None, prometheus: str | None, *, with_ok: bool, as_json: bool) -> None:
    """Find problems on the path from Burrow through Karrot to Prometheus, and print a remedy for each.

    The command checks Burrow, Karrot and Prometheus. It only reads, and changes nothing. Without --burrow, it uses the
    address in KARROT_BURROW_URL. It sends the token in KARROT_API_TOKEN (or KARROT_API_TOKEN_FILE) to Karrot.

    The exit code is 1 if there is a fault or a warning, and 0 if there is none. It is 2 for wrong options.
    """
    from karrot.doctor import examine, read_all

    if not (burrow or karrot or prometheus):
        karrot = LOCAL_KARROT
    token = valid(partial(secret, "KARROT_API_TOKEN"))
    findings = examine(read_all(burrow, karrot, prometheus, token=token))
    is_wrong = any(finding.level.is_wrong for finding in findings)
    line = json.dumps({"wrong": is_wrong, "findings": [asdict(each) for each in findings]})
    print_lines([line] if as_json else _lines(findings, with_ok=with_ok))
    if is_wrong:
        sys.exit(1)


def _lines(findings: "Sequence[Finding]", *, with_ok: bool) -> list[str]:
    lines = [_line(finding) for finding in findings if with_ok or finding.level != "ok"]
    return [*lines, _sum(findings, with_ok=with_ok)]


def _line(finding: "Finding") -> str:
    from karrot.logs import has_colours

    mark, plain, colour, _ = _LEVELS[finding.level]
    level = f"{mark if _can_write(mark) else plain} {finding.level:<5}"
    if has_colours(sys.stdout):
        level = click.style(level, fg=colour, bold=True)
    line = f"{level}  {safe(finding.what)}"
    if finding.level == "ok":
        return line
    remedy = f" {'→' if _can_write('→') else '->'} {safe(finding.remedy)}" if finding.remedy else ""
    return f"{line}{remedy}  (docs/{finding.where})"


def _sum(findings: "Sequence[Finding]", *, with_ok: bool) -> str:
    counts = {level: sum(finding.level == level for finding in findings) for level in _LEVELS}
    summary = ", ".join(counted_plain(number, _LEVELS[level][3]) for level, number in counts.items())
    return f"{summary} passed{'' if with_ok or not counts['ok'] else ' (--all shows them)'}"


def _can_write(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        return False
    return True
