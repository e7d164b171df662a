"""Reads the channels and the owners from the file of ``KARROT_NOTIFY_CONFIG``, and sends. No text has a secret."""

import logging
import re
import tomllib
from datetime import datetime, time
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import msgspec

from karrot.event import GroupKey
from karrot.reporters.notify.messages import Message, Owners
from karrot.settings import types
from karrot.settings.sources import Given, secret_text

_ANY = re.compile("")
_REASONS = {"429": "throttled", "401": "unauthorized", "403": "unauthorized"}
_READ_AS_MARKDOWN = {"Discord", "Mattermost"}  # Apprise sends them plain text


class Sender:
    """Sends to a URL. Raises `ValueError` for a URL that Apprise does not know, or without Apprise."""

    def __init__(self, url: str) -> None:
        try:
            import apprise  # noqa: PLC0415 (an extra: only sites that send messages need it)
        except ImportError as error:
            raise ValueError("messages need apprise: pip install 'karrot-burrow[notify]'") from error
        for name in ("urllib3", "oauthlib", "requests_oauthlib"):  # their records have the paths of URLs
            logging.getLogger(name).setLevel(logging.ERROR)
        logging.getLogger("apprise").propagate = False
        no_names: dict[str, Any] = dict.fromkeys(("app_url", "image_url_mask", "image_url_logo"), "")
        # With a time limit, Apprise sends in a pool of threads, which one hanging service can use up.
        asset = apprise.AppriseAsset(
            app_id="Karrot", app_desc="Karrot", async_mode=False, service_timeout=0, **no_names
        )
        self._apprise, self._escape = apprise.Apprise(asset=asset), apprise.conversion.text_to_markdown
        if not self._apprise.add(url):
            scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]{0,30}(?=://)", url)
            raise ValueError(f"Apprise cannot send to this URL (scheme: {scheme[0] if scheme else 'none'})")
        if len(self._apprise) > 1 or len(self._apprise[0]) > 1:  # a repeated message would reach the others again
            raise ValueError("the URL has several targets: make a channel for each")
        only_markdown = self._apprise[0].notify_format is apprise.NotifyFormat.MARKDOWN
        self._is_markdown = only_markdown or self._apprise[0].service_name in _READ_AS_MARKDOWN

    def send(self, message: Message) -> tuple[str, str] | None:
        """Send a message. Return ``None``, or the reason, which is a stable label value, and a text for people."""
        texts: dict[str, Any] = {"title": message.title, "body": message.body(), "body_format": "text"}
        if self._is_markdown:
            escaped: Any = self._escape
            texts = {"title": escaped(message.title), "body": message.markdown(escaped), "body_format": "markdown"}
        try:
            outcome = self._apprise.notify(notify_type=message.kind, **texts)
        except Exception as error:  # noqa: BLE001 (any of a hundred plugins; the error's text can have the URL)
            return "failed", f"Apprise raised {type(error).__name__}"
        said = " ".join(entry.message for entry in outcome.logs())
        if outcome:
            return None
        if found := re.search(r"error=([1-5]\d\d)\b", said):
            return _REASONS.get(found[1], "refused"), f"the server answered {found[1]}"
        if "onnection error" in said:
            return "unreachable", "there is no connection, or no answer in time"
        return "failed", "the service did not accept the message"


class Quiet:
    """A time of every day, such as ``22:00-07:00 Europe/Berlin``."""

    def __init__(self, text: str) -> None:
        try:
            times, zone = text.split(" ")
            self._start, self._end = map(time.fromisoformat, times.split("-"))
            self._zone = ZoneInfo(zone)
        except (ValueError, LookupError, OSError):
            self._start = self._end = time()
        if self._start == self._end or self._start.tzinfo or self._end.tzinfo:
            raise ValueError(f"{types.quoted(text)} must be like '22:00-07:00 Europe/Berlin', with an IANA zone")

    def has(self, wall_ms: int) -> bool:
        now = datetime.fromtimestamp(wall_ms / 1000, self._zone).time()
        if self._start < self._end:
            return self._start <= now < self._end
        return now >= self._start or now < self._end


class Route(msgspec.Struct, forbid_unknown_fields=True):
    """One channel, as in the file."""

    url: str = ""
    url_file: str = ""
    clusters: re.Pattern[str] = _ANY
    groups: re.Pattern[str] = _ANY
    exclude_groups: re.Pattern[str] | None = None
    status: Literal["WARN", "ERR"] = "WARN"
    quiet: tuple[Quiet, ...] = ()
    per_hour: Annotated[int, msgspec.Meta(ge=1, le=3600)] = 60
    gather_seconds: Annotated[int, msgspec.Meta(ge=0, le=600)] = 10

    def sender(self) -> Sender:
        if bool(self.url) == bool(self.url_file):
            raise ValueError("set url or url_file, and not both")
        return Sender(self.url or secret_text(Given("url_file", self.url_file, file=True)))

    def wants(self, key: GroupKey) -> bool:
        is_excluded = self.exclude_groups is not None and self.exclude_groups.search(key.consumer)
        return bool(not is_excluded and self.clusters.search(key.cluster) and self.groups.search(key.consumer))


class _File(msgspec.Struct, forbid_unknown_fields=True):
    channels: dict[str, Any] = {}
    owners: dict[str, str] = {}


def read_routes(path: Path, *, only_owners: bool = False) -> tuple[dict[str, tuple[Route, Sender]], Owners]:
    """Read the file. Raises `ValueError` with a sentence for each problem."""
    problems, channels = list[str](), dict[str, tuple[Route, Sender]]()
    try:
        file = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File)
        owners = tuple(
            (types.checked(types.shared_pattern, "the pattern", pattern), team) for pattern, team in file.owners.items()
        )
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    for name, table in () if only_owners else file.channels.items():
        try:
            route = msgspec.convert(table, Route, dec_hook=_custom)
            channels[name] = route, route.sender()
            route.url = ""  # or else a repr would show it
        except ValueError as error:
            problems.append(f"[channels.{name}] in {path}: {error}")
    if not channels and not problems and not only_owners:
        problems.append(f"{path} has no channel: add a table [channels.NAME] with url or url_file")
    if problems:
        raise ValueError("\n".join(problems))
    return channels, owners


def _custom(kind: Any, given: Any) -> Any:
    text = msgspec.convert(given, str)
    return Quiet(text) if kind is Quiet else types.checked(types.pattern, "the pattern", text)
