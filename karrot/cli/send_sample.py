"""The commands that ask a running Karrot something, over HTTP as everybody else does."""

import getpass
import os
import time
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from karrot.cli.errors import NotDone, config_option, loader, stated, url_option, valid
from karrot.cli.options import value_of

if TYPE_CHECKING:
    from karrot.cli.http_client import Answer

__all__ = ["COMMANDS", "credentials", "secret"]

ACCEPTED = 202
OK = 200

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
    from karrot.cli import http_client

    address = valid(partial(render.webhook, url))
    headers = valid(partial(credentials, user))
    for number in range(1, count + 1):
        answer = http_client.post(address, http_client.sample(status, number, time.time_ns() // 1_000_000), headers)
        _print(answer, f"{http_client.CLUSTER} {http_client.group(number)} {status}")


@click.command()
@click.option("--url", help="Karrot's address; without it this machine and KARROT_BIND.")
@config_option
def healthcheck(url: str | None, config: Path | None) -> None:
    """Ask /healthz; exit code 0 if Karrot is alive, 1 if not."""
    from karrot.cli import http_client
    from karrot.settings import types

    given = None if url is None else value_of(types.url, "--url", url)
    address = given or stated(partial(_own_address, config))
    answer = http_client.fetch(f"{address}/healthz")
    if answer.status != OK:
        raise NotDone(f"{answer.status or 'unhealthy'}: {answer.body}")
    click.echo(answer.body.strip())


def credentials(user: str | None) -> dict[str, str]:
    """Secrets come from the environment or the terminal: arguments are there for everybody to see."""
    from karrot.cli import http_client

    if user is not None:
        return http_client.basic(user, secret("KARROT_BURROW_PASSWORD") or _typed_password())
    token = secret("KARROT_BURROW_TOKEN")
    return http_client.bearer(token) if token else {}


def secret(name: str) -> str | None:
    """A secret of the environment, or of the file that ``<name>_FILE`` there names."""
    from karrot.settings import sources

    told = {each: os.environ[each] for each in (name, f"{name}_FILE") if each in os.environ}
    given = sources.merged([sources.from_environment(told)], plain=(), secret=()).get(name)
    return None if given is None else sources.secret_text(given)


def _typed_password() -> str:
    """The password as somebody types it. Raises `ValueError` where it could not be typed unseen."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", getpass.GetPassWarning)
            return str(click.prompt("Password", hide_input=True, err=True))
    except getpass.GetPassWarning as warning:
        raise ValueError(
            "there is no terminal to ask for the password: set KARROT_BURROW_PASSWORD or KARROT_BURROW_PASSWORD_FILE"
        ) from warning


def _own_address(config: Path | None) -> str:
    settings = loader(None, config)().settings
    loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    bind = settings.bind._replace(host=loopback.get(settings.bind.host, settings.bind.host))
    return f"{'https' if settings.tls_cert else 'http'}://{bind}"


def _print(answer: "Answer", what: str) -> None:
    """Show what Karrot said; end the command if the event was not accepted."""
    if answer.status == ACCEPTED:
        click.echo(f"{what}: {answer.status} {answer.body.strip()}")
        return
    said = f"{answer.status} {answer.body.strip()}\n" if answer.status else ""
    raise NotDone(said + (_REMEDIES.get(answer.status) or answer.body))


COMMANDS = (send_sample, healthcheck)
