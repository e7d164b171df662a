"""Sends one message through Apprise, and says why a send failed. No text of this module has a secret."""
# ruff: noqa: PLC0415 (apprise is an extra: only sites that send messages need it)

import logging
import re
from collections.abc import Callable  # noqa: TC003 (apprise has no types)

from karrot.reporters.notify.messages import Message

_REASONS = {"429": "throttled", "401": "unauthorized", "403": "unauthorized"}
_READ_AS_MARKDOWN = {"Discord", "Mattermost"}
"""These services show text as Markdown, though Apprise sends them plain text."""


class Sender:
    """Sends to a URL. Raises `ValueError` for a URL that Apprise does not know, or without Apprise."""

    def __init__(self, url: str) -> None:
        try:
            import apprise
        except ImportError as error:
            raise ValueError("messages need apprise: pip install 'karrot-burrow[notify]'") from error
        for name in ("urllib3", "oauthlib", "requests_oauthlib"):  # their debug records have the paths of URLs
            logging.getLogger(name).setLevel(logging.INFO)
        logging.getLogger("apprise").propagate = False
        asset = apprise.AppriseAsset(
            app_id="Karrot",
            app_desc="Karrot",
            app_url="",
            image_url_mask="",
            image_url_logo="",
            async_mode=False,
            service_timeout=0,  # a time limit would use a pool of threads, and one hanging service can use it up
        )
        self._apprise = apprise.Apprise(asset=asset)
        self._escape: Callable[[str], str] = apprise.conversion.text_to_markdown
        if not self._apprise.add(url):
            scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]{0,30}(?=://)", url)
            raise ValueError(f"Apprise cannot send to this URL (scheme: {scheme[0] if scheme else 'none'})")
        service = self._apprise[0]
        only_markdown = service.notify_format is apprise.NotifyFormat.MARKDOWN
        self._is_markdown = only_markdown or service.service_name in _READ_AS_MARKDOWN

    def send(self, message: Message) -> tuple[str, str] | None:
        """Send a message. Return ``None``, or the reason, which is a stable label value, and a text for people."""
        title, body, body_format = message.title, message.body(), "text"
        if self._is_markdown:
            title, body, body_format = self._escape(title), message.markdown(self._escape), "markdown"
        try:
            outcome = self._apprise.notify(title=title, body=body, notify_type=message.kind, body_format=body_format)
        except Exception as error:  # noqa: BLE001 (any of a hundred plugins; the error's text can have the URL)
            return "failed", f"Apprise raised {type(error).__name__}"
        if outcome:
            return None
        said = " ".join(entry.message for entry in outcome.logs())
        if found := re.search(r"error=([1-5]\d\d)\b", said):
            return _REASONS.get(found[1], "refused"), f"the server answered {found[1]}"
        if "onnection error" in said:
            return "unreachable", "there is no connection, or no answer in time"
        return "failed", "the service did not accept the message"
