"""``karrot log``: changes the event log that the settings name."""

import os
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import click

from karrot.cli.errors import Refused, stated
from karrot.cli.options import config_option, loader


@click.group()
def log() -> None:
    """Change the event log."""


@log.command()
@config_option
def restored(config: Path | None) -> None:
    """Give new events another log id, so that no event gets the id of a lost event. Stored events keep their ids.

    Karrot itself does this after a restored file or database, and after a failover. Run the command if you put single
    rows back, or restored a dump of PostgreSQL that an older Karrot had written. Karrot may run or not.
    """
    from karrot import logs, wiring
    from karrot.clock import SystemClock
    from karrot.eventlog.sqlite import SqliteEventLog

    settings, clock = stated(loader(None, config)).settings, SystemClock()
    database = settings.data_dir / "events.db"
    logs.configure("WARNING", sys.stderr)

    def begin_id() -> str:
        with ExitStack() as opened:
            if settings.is_on_postgresql:
                event_log = opened.enter_context(wiring.prepared_log(settings, clock))(settings)
            elif settings.event_log == "memory" or not database.is_file():
                raise Refused(f"there is no event log in KARROT_DATA_DIR, which is {settings.data_dir}")
            elif (owner := database.stat().st_uid) != os.geteuid():  # the service could not open this user's files
                raise Refused(f"{database} belongs to the user with the id {owner}: run the command as this user")
            else:  # without the lock of the service, which may run
                event_log = SqliteEventLog(settings.data_dir, clock, max_bytes=settings.max_log_bytes)
            opened.enter_context(closing(event_log)).begin_id()
            return event_log.log_id

    click.echo(f"new events get the log id {stated(begin_id)}")
