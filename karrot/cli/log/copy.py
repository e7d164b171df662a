"""``karrot log copy``: copies the event log from SQLite to PostgreSQL, or back."""

import os
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from karrot.cli.errors import NotDone, Refused, stated
from karrot.cli.options import config_option, value_of
from karrot.cli.table import json_line
from karrot.text import count, counted, rate

if TYPE_CHECKING:
    from karrot.eventlog.log_copy import CopyProgress, CopyResult
    from karrot.settings.options import Settings

_TELL_EVERY_S = 2.0
_PLACE = "sqlite:DIRECTORY|postgresql://..."

_password_file = partial(click.option, metavar="FILE", type=click.Path(path_type=Path, exists=True, dir_okay=False))


@click.command()
@click.option("--from", "source", metavar=_PLACE, required=True, help="The event log to copy. It is not changed.")
@click.option("--to", "target", metavar=_PLACE, required=True, help="An empty directory or an empty schema.")
@click.option(
    "--in-advance",
    is_flag=True,
    help="Copy events while Karrot still runs on --from. A later run without this option finishes the copy.",
)
@_password_file("--from-password-file", help="The password for PostgreSQL in --from.")
@_password_file("--to-password-file", help="The password for PostgreSQL in --to.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@config_option
def copy(
    source: str,
    target: str,
    from_password_file: Path | None,
    to_password_file: Path | None,
    config: Path | None,
    *,
    in_advance: bool,
    as_json: bool,
) -> None:
    """Copy the event log to another place, with everything that is in it.

    The copy has the same events with the same ids, the state of every group, the counters, and the reporters' cursors
    and notes. No Karrot may run on either log, except with --in-advance. If the command is interrupted, run it again:
    it continues. Karrot does not start on a copy that is unfinished.

    Without --from-password-file and --to-password-file, the password for PostgreSQL comes from the settings
    KARROT_EVENT_LOG_PASSWORD_FILE, KARROT_EVENT_LOG_PASSWORD_COMMAND or KARROT_EVENT_LOG_RDS_IAM. For PostgreSQL in
    --to, KARROT_RETENTION and KARROT_MAX_LOG_BYTES must be those of the new service.

    The exit code is 2 if the command refuses to copy, and 1 if the copy was not finished.
    """
    from karrot.settings.loading import load_for_copy

    settings = stated(partial(load_for_copy, os.environ, config))
    sides = (
        _side(settings, "--from", source, from_password_file),
        _side(settings, "--to", target, to_password_file),
    )
    if (sides[0].event_log, sides[0].data_dir.resolve()) == (sides[1].event_log, sides[1].data_dir.resolve()):
        raise Refused(f"--from and --to are the same event log: {source}")
    result = stated(partial(_copy, *sides, in_advance=in_advance))
    click.echo(json_line(_fields(result)) if as_json else "\n".join(_sentences(result, source, target)))


def _side(settings: "Settings", option: str, text: str, password_file: Path | None) -> "Settings":
    """The settings of a service with its event log at one of the two places."""
    from karrot.settings import types
    from karrot.settings.loading import PASSWORD_SOURCES

    place = value_of(types.log_place, option, text)
    if password_file is not None:
        if isinstance(place, Path):
            raise Refused(f"{option}-password-file needs {option} postgresql://...")
        others: dict[str, Any] = dict.fromkeys(PASSWORD_SOURCES)
        settings = replace(settings, **(others | {"event_log_password_file": password_file}))
    return replace(settings, data_dir=place) if isinstance(place, Path) else replace(settings, event_log=place)


def _copy(source: "Settings", target: "Settings", *, in_advance: bool) -> "CopyResult":
    from karrot.clock import SystemClock
    from karrot.eventlog.log_copy import UnfinishedCopyError, copy_log, open_source, open_target

    clock = SystemClock()
    with (
        closing(open_source(source, clock, in_advance=in_advance)) as opened_source,
        closing(open_target(target, clock)) as opened_target,
    ):
        try:
            return copy_log(opened_source, opened_target, in_advance=in_advance, tell=_Teller())
        except UnfinishedCopyError as error:
            raise NotDone(str(error)) from error


class _Teller:
    """Prints the progress of a copy every two seconds."""

    def __init__(self) -> None:
        self._next_s = time.monotonic() + _TELL_EVERY_S

    def __call__(self, progress: "CopyProgress") -> None:
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _TELL_EVERY_S
        speed = rate(progress.copied / progress.seconds)
        click.echo(f"karrot: {count(progress.copied)} of {counted(progress.total, 'event')} copied, {speed}", err=True)


def _fields(result: "CopyResult") -> dict[str, Any]:
    head = result.head
    return {
        "log_id": head.log_id,
        "finished": result.is_finished,
        "copied_events": result.copied,
        "seconds": round(result.seconds, 3),
        "first_seq": head.first_seq,
        "last_seq": result.last_seq,
        "groups": head.groups,
        "damaged": dict(+result.damaged),
        "left_out": dict(+result.left_out),
        "left_out_groups": result.left_out_groups,
    }


def _sentences(result: "CopyResult", source: str, target: str) -> list[str]:
    if result.was_finished:
        return [f"{target} already has the whole log, up to event {result.head.last_seq}: nothing was copied"]
    speed = f", {rate(result.copied / result.seconds)}" if result.copied else ""
    sentences = [f"{counted(result.copied, 'event')} copied{speed}; the newest is {result.last_seq}"]
    sentences += [
        f"damaged: {counted(number, 'row')} of {table}, copied as they are"
        for table, number in (+result.damaged).items()
    ]
    sentences += [
        f"left out: {counted(number, 'row')} of {table}, because not every database can hold them: they are damaged, "
        "or their name is too long"
        for table, number in (+result.left_out).items()
    ]
    sentences += [f"left out: the group {name}" for name in result.left_out_groups]
    if result.is_finished:
        sentences.append(
            f"the copy of log {result.head.log_id} is finished, with {counted(result.head.groups, 'group')}: start "
            f"Karrot on {target}, and not on {source} again"
        )
    else:
        sentences.append("to finish the copy, stop Karrot and run the command again without --in-advance")
    return sentences
