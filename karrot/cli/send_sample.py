"""``karrot send-sample``: made-up events, posted as Burrow posts them."""

import time
from functools import partial
from typing import TYPE_CHECKING

import click

from karrot.cli.credentials import credentials
from karrot.cli.errors import NotDone, valid
from karrot.cli.options import url_option

if TYPE_CHECKING:
    from karrot.cli.http_client import HttpAnswer

__all__ = ["send_sample"]


ACCEPTED = 202

_REDIRECTED = "that is a redirect: Burrow would follow it without the event, so give the address it leads to"
_REMEDIES = {
    **dict.fromkeys((301, 302, 303, 307, 308), _REDIRECTED),
    400: "the event was refused: is something between here and Karrot changing the body?",
    401: "the credentials are missing or wrong: --user with KARROT_BURROW_PASSWORD, or KARROT_BURROW_TOKEN",
    404: "there is no /burrow at this address: is it Karrot's?",
    503: "Karrot cannot store events now: its /readyz says why",
}


@click.command("send-sample")
@url_option
@click.option(
    "--user", help="For Basic authentication; the password is KARROT_BURROW_PASSWORD (or _FILE), or is asked for."
)
@click.option("--count", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Groups to send.")
@click.option(
    "--status", type=click.Choice(["OK", "WARN", "ERR"]), default="WARN", show_default=True, help="Burrow's verdict."
)
def send_sample(url: str, user: str | None, count: int, status: str) -> None:
    """Post made-up events as Burrow would and print the answers.

    Without --user, a KARROT_BURROW_TOKEN (or _FILE) in the environment is sent as Bearer token.
    Exit code 1 if an event is not accepted.
    """
    from karrot import render
    from karrot.cli import http_client, sample_event

    address = valid(partial(render.webhook, url))
    headers = valid(partial(credentials, user))
    for number in range(1, count + 1):
        answer = http_client.post(address, sample_event.sample(status, number, time.time_ns() // 1_000_000), headers)
        _print(answer, f"{sample_event.CLUSTER} {sample_event.group(number)} {status}")


def _print(answer: "HttpAnswer", what: str) -> None:
    """Show what Karrot said; end the command if the event was not accepted."""
    if answer.status == ACCEPTED:
        click.echo(f"{what}: {answer.status} {answer.body.strip()}")
        return
    said = f"{answer.status} {answer.body.strip()}\n" if answer.status else ""
    raise NotDone(said + (_REMEDIES.get(answer.status) or answer.body))
