"""``karrot mute``: mutes groups through Karrot's API."""

from functools import partial

import click
import msgspec

from karrot.cli.errors import NotDone, read_answer, valid
from karrot.cli.options import secret
from karrot.cli.send_sample import address, address_option
from karrot.text import iso_ms, visible


@click.command(short_help="Mute groups for a time, list the mutes, or end one.")
@click.argument("pattern", metavar="[GROUP_OR_PATTERN]", required=False)
@click.option("--cluster", default="", help="Cluster of the groups.")
@click.option("--for", default="", help="Duration of the mute, such as 30m, 2h or 7d. At most 30d.")
@click.option("--reason", default="", help="Reason, which the pages and Karrot's log show.")
@click.option("--list", "is_list", is_flag=True, help="List the mutes.")
@click.option("--end", metavar="ID", help="End the mute with this id now.")
@address_option
def mute(pattern: str | None, end: str | None, url: str, *, is_list: bool, **wish: str) -> None:
    """Mute the groups of a cluster whose whole name matches a pattern with * and ?, such as 'orders-*'.

    Until the mute ends, no alert rule on groups fires for these groups. The command reads the API token from
    KARROT_API_TOKEN (or KARROT_API_TOKEN_FILE). The exit code is 1 if Karrot does not accept the command.
    """
    from karrot.api.bodies import Mutes
    from karrot.http_client import HttpClient, RequestFailed

    if [pattern is not None, is_list, end is not None].count(True) != 1:
        raise click.UsageError("Give a group or a pattern, or --list, or --end.")
    if pattern is not None and (missing := [f"--{name}" for name in ("cluster", "for", "reason") if not wish[name]]):
        raise click.UsageError(f"A mute needs {' and '.join(missing)}.")
    with HttpClient(address(url), token=valid(partial(secret, "KARROT_API_TOKEN"))) as client:
        try:
            if pattern is not None:
                answer = client.post("/api/v1/mutes", msgspec.json.encode({"pattern": pattern, **wish}))
            else:
                answer = client.get("/api/v1/mutes") if is_list else client.delete("/api/v1/mutes", {"id": str(end)})
        except RequestFailed as error:
            raise NotDone(str(error)) from None
    found = read_answer(answer, Mutes)
    for each in found.mutes:
        until = iso_ms(each.until_ms)
        click.echo("  ".join(map(visible, (each.id, each.cluster, each.pattern, until, each.reason))))
    if found.groups == 0:
        click.echo("No live group has such a name now. Groups that appear later are muted.", err=True)
