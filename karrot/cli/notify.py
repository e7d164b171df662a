"""``karrot notify``: sends a test message to a channel, or prints the messages that the event log would have sent."""

from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path

import click

from karrot.cli.errors import NotDone, Refused, stated, valid
from karrot.cli.options import config_option, loader, read_span


@click.command()
@click.option("--test", "channel", metavar="CHANNEL", help="Send a test message to this channel.")
@click.option("--dry-run", is_flag=True, help="Print the messages that the events of the log would have sent.")
@click.option(
    "--last", default="24h", callback=read_span(366 * 86400), metavar="DURATION", help="With --dry-run: how far back."
)
@config_option
def notify(*, channel: str | None, dry_run: bool, last: timedelta, config: Path | None) -> None:
    """Test the channels of the notify reporter.

    With --dry-run, the command reads the event log of the settings, and sends nothing. It knows the mutes that still
    last, but no mute that has ended.
    """
    from karrot.clock import SystemClock
    from karrot.eventlog.sqlite import SqliteEventLog
    from karrot.reporters.notify.dry_run import replay
    from karrot.reporters.notify.messages import Message
    from karrot.reporters.notify.routes import read_routes
    from karrot.text import iso_ms

    settings = stated(loader(None, config)).settings
    path = settings.notify_config
    if path is None or bool(channel) == dry_run:
        raise Refused("give --test CHANNEL or --dry-run, and set KARROT_NOTIFY_CONFIG to the file with the channels")
    channels, owners = valid(partial(read_routes, path))
    if channel is not None:
        if channel not in channels:
            raise Refused(f"{channel!r} is not a channel of {path}: it has {', '.join(channels)}")
        test = Message("Test message of Karrot", [("Channel", channel)], "info")
        if failure := channels[channel][1].send(test):
            raise NotDone(f"channel {channel}: {failure[1]} ({failure[0]})")
        click.echo(f"channel {channel}: the service accepted the message")
        return
    if settings.event_log != "sqlite" or not (settings.data_dir / "events.db").is_file():
        raise Refused(f"--dry-run needs an event log in SQLite in KARROT_DATA_DIR, which is {settings.data_dir}")
    clock = SystemClock()
    with closing(stated(lambda: SqliteEventLog(settings.data_dir, clock, max_bytes=settings.max_log_bytes))) as log:
        since_ms = clock.wall_ms() - int(last.total_seconds() * 1000)
        for at_ms, name, message in replay(channels, owners, settings.external_url, log, settings.stale_after * 1000):
            if at_ms >= since_ms:
                click.echo(f"{iso_ms(at_ms)} {name}: {message.title}\n{message.body()}\n")
    click.echo("Mutes that have ended are not known: their groups are not silent here.", err=True)
