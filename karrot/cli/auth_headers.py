"""Reads secrets from the environment, a file or the terminal, and makes the HTTP headers for them."""

import base64
import getpass
import os
import warnings

import click


def credentials(user: str | None) -> dict[str, str]:
    """The header with the credentials. A secret is never an argument, because every user can see arguments."""
    if user is not None:
        return basic(user, secret("KARROT_BURROW_PASSWORD") or _typed_password())
    token = secret("KARROT_BURROW_TOKEN")
    return bearer(token) if token else {}


def secret(name: str) -> str | None:
    """A secret from the environment, or from the file that ``<name>_FILE`` names."""
    from karrot.settings import sources

    told = {each: os.environ[each] for each in (name, f"{name}_FILE") if each in os.environ}
    given = sources.merged([sources.from_environment(told)], plain=(), secret=()).get(name)
    return None if given is None else sources.secret_text(given)


def basic(user: str, password: str) -> dict[str, str]:
    """The header of Basic authentication."""
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def bearer(token: str) -> dict[str, str]:
    """The header of Bearer authentication. Raises `ValueError` if a header cannot contain the token."""
    if not (token.isascii() and token.isprintable()):
        raise ValueError("a Bearer token must be printable ASCII")
    return {"Authorization": f"Bearer {token}"}


def _typed_password() -> str:
    """Ask for the password on the terminal. Raises `ValueError` if there is no terminal that hides the input."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", getpass.GetPassWarning)
            return str(click.prompt("Password", hide_input=True, err=True))
    except getpass.GetPassWarning as warning:
        raise ValueError(
            "there is no terminal to ask for the password: set KARROT_BURROW_PASSWORD or KARROT_BURROW_PASSWORD_FILE"
        ) from warning
