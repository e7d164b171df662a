"""``karrot serve`` and ``demo`` run the service. The other commands check the service, or configure Burrow for it."""

import ssl
import sys
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import click

from karrot.cli.errors import NotDone, stated, valid
from karrot.cli.options import config_option, karrot_option, loader, url_option

_OK = 200
_TIMEOUT_S = 5
_MOST_BYTES = 64 * 1024


@click.command()
@click.option("--bind", metavar="HOST:PORT", help="Address to listen on. [::]:5000 accepts IPv6 and IPv4.")
@config_option
def serve(bind: str | None, config: Path | None) -> NoReturn:
    """Run the service.

    After SIGTERM, the service answers the current requests and ends. After SIGHUP, it reads the settings again.
    """
    from karrot import wiring

    sys.exit(stated(partial(wiring.serve, loader(bind, config))))


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port to listen on.  [default: 5000, or the next free port]"
)
@click.option("--groups", type=click.IntRange(1, 1000), default=24, help="Number of simulated groups.")
@click.option("--seed", type=int, default=7, help="Random seed. The same seed gives the same demo.")
@click.option(
    "--speed",
    type=click.FloatRange(0.1, 100),
    default=1,
    help="Speed of the simulation: rates are multiplied by this factor. Below 1, intervals are divided by it.",
)
def demo(port: int | None, groups: int, seed: int, speed: float) -> NoReturn:
    """Run the service with a simulated Burrow.

    The demo needs neither Kafka nor AWS. Ctrl-C ends the service and the simulated Burrow.
    """
    from karrot.demo.demo import demo as run_demo

    sys.exit(stated(partial(run_demo, port, groups, seed, speed)))


@click.command("check-config")
@config_option
@click.option("--sources", is_flag=True, help="Print after each setting where its value comes from.")
def check_config(config: Path | None, *, sources: bool) -> None:
    """Print the settings that `karrot serve` would use.

    The exit code is 2 if Karrot cannot start with these settings.
    """
    from karrot.settings.options import effective
    from karrot.settings.sources import DEFAULT
    from karrot.wiring import try_out

    loaded = stated(loader(None, config))
    stated(partial(try_out, loaded.settings))
    for name, text in effective(loaded.settings).items():
        click.echo(f"{name}={text}{f'  # {loaded.sources.get(name, DEFAULT)}' if sources else ''}")
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)


@click.command()
@url_option("--karrot", "url", help="Address of Karrot.  [default: KARROT_BIND on this machine]")
@config_option
def healthcheck(url: str | None, config: Path | None) -> None:
    """Ask Karrot's /healthz. The exit code is 0 if Karrot is alive, and 1 if not."""
    if url is None:
        settings = stated(loader(None, config)).settings
        loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}
        bind = settings.bind._replace(host=loopback.get(settings.bind.host, settings.bind.host))
        url = f"{'https' if settings.tls_cert else 'http'}://{bind}"
    status, body = _get(f"{url}/healthz")
    if status != _OK:
        raise NotDone(f"{status}: {body}")
    click.echo(body.strip())


def _get(url: str) -> tuple[int, str]:
    """Send a GET to this machine, without a proxy and without a check of the certificate. Does not load urllib3."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
    if parts.scheme == "https":
        context = ssl._create_unverified_context()  # noqa: S323, SLF001 (own host)
        connection = HTTPSConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S, context=context)
    try:
        connection.request("GET", parts.path or "/")
        response = connection.getresponse()
        return response.status, response.read(_MOST_BYTES).decode(errors="replace")
    except (OSError, HTTPException, UnicodeError) as error:
        raise NotDone(
            f"unhealthy: no answer from {parts.netloc}: {error or type(error).__name__}; check that Karrot runs and "
            "that the port is right"
        ) from None
    finally:
        connection.close()


@click.command("burrow-config")
@karrot_option("url", required=True, help="Address of Karrot, such as http://karrot:5000.  [default: KARROT_URL]")
@click.option("--user", help="User name for Basic authentication.")
@click.option("--template", "only_template", is_flag=True, help="Print only the template file.")
def burrow_config(url: str, user: str | None, *, only_template: bool) -> None:
    """Print the section of burrow.toml that posts to Karrot.

    Comments in the output give the reason for each line of the section, and show how to write the section's template
    file.
    """
    from karrot import render

    text = valid(partial(render.burrow_config, url, user))
    click.echo(render.burrow_template() if only_template else text, nl=False)


@click.command()
def version() -> None:
    """Print Karrot's version."""
    from karrot import __version__

    click.echo(f"karrot {__version__}")
