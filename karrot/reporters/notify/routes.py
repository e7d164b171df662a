"""Reads the channels and the owners from the file of ``KARROT_NOTIFY_CONFIG``. No error has a secret."""

import re
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from karrot.event import GroupKey
from karrot.reporters.notify.sender import Sender
from karrot.settings import types
from karrot.settings.sources import Given, secret_text

_ANY = re.compile("")


class Quiet:
    """A time of every day, such as ``22:00-07:00 Europe/Berlin``."""

    def __init__(self, text: str) -> None:
        try:
            times, zone = text.split(" ")
            self._start, self._end = map(time.fromisoformat, times.split("-"))
            self._zone = ZoneInfo(zone)
        except (ValueError, LookupError, OSError):
            raise ValueError(
                f"{types.quoted(text)} must be like '22:00-07:00 Europe/Berlin', with an IANA zone"
            ) from None

    def has(self, wall_ms: int) -> bool:
        now, start, end = (
            datetime.fromtimestamp(wall_ms / 1000, UTC).astimezone(self._zone).time(),
            self._start,
            self._end,
        )
        return start <= now < end if start <= end else now >= start or now < end


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

    def __repr__(self) -> str:
        return "Route(...)"  # without the URL

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


class Routes(NamedTuple):
    channels: Mapping[str, tuple[Route, Sender]]
    owners: tuple[tuple[re.Pattern[str], str], ...]

    def team(self, consumer: str) -> str | None:
        """The team of the first pattern that the group's name contains."""
        return next((team for pattern, team in self.owners if pattern.search(consumer)), None)


def read_routes(path: Path, *, only_owners: bool = False) -> Routes:
    """Read the file. Raises `ValueError` with a sentence for each problem."""
    problems, channels = list[str](), dict[str, tuple[Route, Sender]]()
    try:
        file = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File)
        owners = tuple((_custom(re.Pattern, pattern), team) for pattern, team in file.owners.items())
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not file.channels and not only_owners:
        problems.append(f"{path} has no channel: add a table [channels.NAME] with url or url_file")
    for name, table in () if only_owners else file.channels.items():
        try:
            route = msgspec.convert(table, Route, dec_hook=_custom)
            channels[name] = route, route.sender()
        except ValueError as error:
            problems.append(f"[channels.{name}] in {path}: {error}")
    if problems:
        raise ValueError("\n".join(problems))
    return Routes(channels, owners)


def _custom(kind: Any, given: Any) -> Any:
    """Read a pattern or a quiet time."""
    text = msgspec.convert(given, str)
    return Quiet(text) if kind is Quiet else types.checked(types.pattern, "the pattern", text)
