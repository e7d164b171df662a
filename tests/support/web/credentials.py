"""Makes credentials as the settings do."""

from karrot.settings.options import Settings
from karrot.settings.types import Secret
from karrot.web import Credentials
from karrot.wiring import _credentials

_OF_BURROW = ("username", "password", "password_previous", "token", "token_previous")


def make_credentials(username: str | None = None, **secrets: str | None) -> Credentials:
    """Make the credentials of these secrets, by the names of their settings. Those of /burrow have no prefix."""
    given = {f"burrow_{name}" if name in _OF_BURROW else name: text and Secret(text) for name, text in secrets.items()}
    return _credentials(Settings(burrow_username=username, **given))  # type: ignore[arg-type]
