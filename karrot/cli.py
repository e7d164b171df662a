"""The commands. What a command needs is imported inside it, so that ``karrot --help`` answers at once."""
# ruff: noqa: PLC0415

import getpass
import os
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from karrot import __version__

if TYPE_CHECKING:
    from karrot.probe import Answer
    from karrot.settings import Loaded

__all__ = ["main"]

T = TypeVar("T")

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


class Refused(click.ClickException):
    """Ends a command that was asked for something wrong; each line of the message goes to standard error."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Print every problem on a line of its own."""
        for line in self.message.splitlines():
            click.echo(f"karrot: {line}", file=file, err=True)


class NotDone(Refused):
    """Ends a command whose answer is no."""

    exit_code = 1


config_option = click.option(
    "--config", type=click.Path(path_type=Path, dir_okay=False), help="A TOML file with settings; the environment wins."
)
url_option = click.option("--url", required=True, help="Karrot's address, such as http://karrot:5000.")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="karrot %(version)s")
def main() -> None:
    """Take Burrow's verdicts on Kafka consumer groups, keep them and hand them on."""


@main.command()
@click.option("--bind", metavar="HOST:PORT", help="Where to listen; [::]:5000 takes IPv6 and IPv4.")
@config_option
def serve(bind: str | None, config: Path | None) -> NoReturn:
    """Run the service.

    SIGTERM ends it when the requests under way are answered; SIGHUP reads the settings again.
    """
    from karrot import wiring

    sys.exit(_stated(partial(wiring.serve, _loader(bind, config))))


@main.command()
@click.option("--port", type=click.IntRange(0, 65535), help="Where to listen; without it 5000 or the next free one.")
@click.option("--groups", type=click.IntRange(1, 10_000), default=24, show_default=True, help="Simulated groups.")
@click.option("--seed", type=int, default=7, show_default=True, help="The same seed tells the same story.")
@click.option(
    "--speed", type=click.FloatRange(0.1, 100), default=1, show_default=True, help="Scales rates and intervals."
)
def demo(port: int | None, groups: int, seed: int, speed: float) -> NoReturn:
    """Run the service with a simulated Burrow. Needs neither Kafka nor AWS; Ctrl-C ends both."""
    from karrot.demo import demo as run_demo

    sys.exit(_stated(partial(run_demo, port, groups, seed, speed)))


@main.command("check-config")
@config_option
def check_config(config: Path | None) -> None:
    """Print the settings that a start would run with. Exit code 2 if it would be refused."""
    from karrot.settings import effective
    from karrot.wiring import try_out

    loaded = _stated(_loader(None, config))
    _stated(partial(try_out, loaded.settings))
    for name, text in effective(loaded.settings).items():
        click.echo(f"{name}={text}")
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)


@main.command("send-sample")
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
    from karrot import probe, render

    address = _valid(partial(render.webhook, url))
    headers = _valid(partial(_credentials, user))
    for number in range(1, count + 1):
        answer = probe.post(address, probe.sample(status, number, time.time_ns() // 1_000_000), headers)
        _print(answer, f"{probe.CLUSTER} {probe.group(number)} {status}")


@main.command("burrow-config")
@url_option
@click.option("--user", help="For Basic authentication.")
@click.option("--template", "only_template", is_flag=True, help="Print only the template file.")
def burrow_config(url: str, user: str | None, *, only_template: bool) -> None:
    """Print what to put into burrow.toml, and why. The template file that it names comes with it."""
    from karrot import render

    text = _valid(partial(render.burrow_config, url, user))
    click.echo(render.burrow_template() if only_template else text, nl=False)


@main.command()
@click.option("--url", help="Karrot's address; without it this machine and KARROT_BIND.")
@config_option
def healthcheck(url: str | None, config: Path | None) -> None:
    """Ask /healthz; exit code 0 if Karrot is alive, 1 if not."""
    from karrot import probe, values

    given = None if url is None else _valid(partial(values.checked, values.url, "--url", url))
    address = given or _stated(partial(_own_address, config))
    answer = probe.fetch(f"{address}/healthz")
    if answer.status != OK:
        raise NotDone(f"{answer.status or 'unhealthy'}: {answer.body}")
    click.echo(answer.body.strip())


@main.command()
def version() -> None:
    """Print the version."""
    click.echo(f"karrot {__version__}")


def _loader(bind: str | None, config: Path | None) -> Callable[[], "Loaded"]:
    """Reads the settings from the same places each time: now, and when the service is told to reload."""
    from karrot.settings import load

    overrides = {} if bind is None else {"bind": bind}
    return partial(load, os.environ, config=config, overrides=overrides)


def _stated(run: Callable[[], T]) -> T:
    """What ``run`` returns; what is wrong with settings, files, ports or the log becomes sentences, not a traceback."""
    from karrot.eventlog.base import LogUnavailableError
    from karrot.settings import SettingsError

    try:
        return run()
    except (SettingsError, LogUnavailableError, OSError) as error:
        raise Refused(str(error)) from error


def _valid(run: Callable[[], T]) -> T:
    """What ``run`` makes of arguments and secrets; its error says what is wrong with them."""
    from karrot.sources import SourceError

    try:
        return run()
    except (ValueError, SourceError) as error:
        raise Refused(str(error)) from error


def _credentials(user: str | None) -> dict[str, str]:
    """Secrets come from the environment or the terminal: arguments are there for everybody to see."""
    from karrot import probe

    if user is not None:
        return probe.basic(user, _secret("KARROT_BURROW_PASSWORD") or _typed_password())
    token = _secret("KARROT_BURROW_TOKEN")
    return probe.bearer(token) if token else {}


def _secret(name: str) -> str | None:
    """A secret of the environment, or of the file that ``<name>_FILE`` there names."""
    from karrot import sources

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
    settings = _loader(None, config)().settings
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
