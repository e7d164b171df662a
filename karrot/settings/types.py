"""Defines the kinds of values that settings have: how Karrot reads, shows and describes each kind."""

import os
import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Generic, NamedTuple, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")
Word = TypeVar("Word", bound=str)

_DURATION_UNITS = {
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
_SIZE_UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_S3, _S3A = "s3://", "s3a://"
_BUCKET = re.compile(r"s3a?://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/[\w!.*'()=-]+)*)/*", re.ASCII)
_URL = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*:(//)?")
_SHOWN = 80
_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A secret text. Only ``reveal()`` returns the text. ``str`` and ``repr`` do not show it."""

    _text: str

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret('***')"

    def __str__(self) -> str:
        return "***"


class Address(NamedTuple):
    """An address to listen on. ``host`` has no brackets. With port 0, the system chooses a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Bucket(NamedTuple):
    """An S3 bucket and the prefix of its keys, without a slash at either end. Karrot shows it with ``s3://``."""

    name: str
    prefix: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``s3://bucket/prefix`` or ``s3a://bucket/prefix``. Raises `ValueError` for any other text."""
        matched = _BUCKET.fullmatch(text)
        if matched is None or {".", ".."} & set(matched[2].split("/")):
            raise ValueError(text)
        return cls(matched[1], matched[2].lstrip("/"))

    def __str__(self) -> str:
        return f"{_S3}{self.name}/{self.prefix}".rstrip("/")

    def key(self, path: str) -> str:
        """The key of an object below the prefix."""
        return f"{self.prefix}/{path}" if self.prefix else path


Place: TypeAlias = Path | Bucket
"""A place that Karrot reads or writes without Spark."""


@dataclass(frozen=True, slots=True)
class ValueKind(Generic[T]):
    """One kind of value.

    ``read`` raises `ValueError` for a text that is not allowed. ``allowed`` completes the sentence "it must be ...".
    ``show`` is the inverse of ``read``: ``read(show(value)) == value``, except for a secret. ``may_be_told`` says
    whether errors show a wrong value. It is false if such a value is likely to contain a secret (``user:password``).
    """

    read: Callable[[str], T]
    allowed: str
    show: Callable[[T], str] = str
    may_be_told: bool = True


def one_of(*choices: Word) -> ValueKind[Word]:
    """One of a few words, in upper or lower case."""
    by_folded = {choice.casefold(): choice for choice in choices}

    def read(text: str) -> Word:
        if (found := by_folded.get(text.casefold())) is None:
            raise ValueError(text)
        return found

    return ValueKind(read, choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}")


def whole(low: int, high: int) -> ValueKind[int]:
    """A whole number from ``low`` to ``high``, both included."""

    def read(text: str) -> int:
        return _within(_digits(text), low, high)

    return ValueKind(read, f"a whole number from {low} to {high}")


def duration(low: int, high: int) -> ValueKind[int]:
    """A duration in whole seconds: ``300``, ``300s``, ``5m``, ``24h`` or ``30d``."""

    def read(text: str) -> int:
        seconds = _seconds(text)
        if seconds.denominator != 1:
            raise ValueError(text)
        return _within(int(seconds), low, high)

    spans = f"from {_show_duration(low)} to {_show_duration(high)}"
    return ValueKind(read, f"seconds, or a number with s, m, h or d, {spans}", _show_duration)


def timeout(low: float, high: float) -> ValueKind[float]:
    """A short duration in seconds: ``2``, ``2.5s`` or ``500ms``."""

    def read(text: str) -> float:
        return _within(float(_seconds(text)), low, high)

    return ValueKind(read, f"seconds, or a number with ms, s or m, from {low:g}s to {high:g}s", "{:.12g}s".format)


def size(low: int, high: int) -> ValueKind[int]:
    """A size in bytes: ``1048576``, ``512KiB``, ``8MiB`` or ``1GiB``."""

    def read(text: str) -> int:
        number, unit = _split(text)
        units = {name.casefold(): factor for name, factor in _SIZE_UNITS.items()}
        if unit.casefold() not in units or not number.isdecimal():
            raise ValueError(text)
        return _within(_digits(number) * units[unit.casefold()], low, high)

    spans = f"from {_show_size(low)} to {_show_size(high)}"
    return ValueKind(read, f"bytes, or a number with KiB, MiB, GiB or TiB, {spans}", _show_size)


def some_of(*choices: Word) -> ValueKind[tuple[Word, ...]]:
    """One or more of a few words, separated by commas, in upper or lower case."""
    one = one_of(*choices)

    def read(text: str) -> tuple[Word, ...]:
        return tuple(dict.fromkeys(map(one.read, _read_list(text, re.compile(r"\w+")))))

    return ValueKind(read, f"one or more of {', '.join(choices)}, separated by commas", _show_list)


def seconds_of(*choices: str) -> ValueKind[int]:
    """One of a few numbers of seconds."""
    one = one_of(*choices)
    return ValueKind(lambda text: int(one.read(text)), one.allowed)


def quoted(text: str) -> str:
    """A wrong value as an error shows it: cut after 80 characters, on one line, without the password of an address."""
    shown = re.sub(r"(://|//|:).*@", r"\1***@", text, flags=re.DOTALL)
    shown = re.sub(r"(password=?)\S+", r"\1***", shown, flags=re.IGNORECASE)
    return repr(shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}...")


def checked(kind: ValueKind[T], what: str, text: str) -> T:
    """Read a text. Raises `ValueError` with a sentence that begins with ``what``, the name of the value."""
    try:
        return kind.read(text)
    except ValueError as error:
        wrong = quoted(text) if kind.may_be_told else "wrong"
        raise ValueError(f"{what} is {wrong}: it must be {kind.allowed}") from error


def _read_flag(text: str) -> bool:
    if text.casefold() not in _TRUE | _FALSE:
        raise ValueError(text)
    return text.casefold() in _TRUE


def _read_list(text: str, item: re.Pattern[str]) -> tuple[str, ...]:
    """Read items that are separated by commas. Spaces, a comma at the end and repeated items are allowed."""
    items = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not items or not all(map(item.fullmatch, items)):
        raise ValueError(text)
    return items


def _read_address(text: str) -> Address:
    matched = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:\[\]/@]*)):([0-9]{1,5})", text, re.ASCII)
    if matched is None:
        raise ValueError(text)
    return Address(matched[1] or matched[2] or "0.0.0.0", _within(int(matched[3]), 0, 65535))


def _read_brokers(text: str) -> tuple[str, ...]:
    found = _read_list(text, re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+):[0-9]{1,5}", re.ASCII))
    for each in found:
        _within(int(each.rpartition(":")[2]), 1, 65535)
    return found


def _read_url(text: str) -> str:
    """Read a URL. Refuse braces, quotes, spaces and control characters, because other programs' files contain it."""
    parts = urlsplit(text) if re.fullmatch(r"https?://[\w.~:/\[\]@!$&()*+,;=%-]+", text, re.ASCII) else urlsplit("")
    if not parts.hostname or parts.username is not None or parts.port == 0:
        raise ValueError(text)
    return text.rstrip("/")


def _read_path(text: str) -> Path:
    if "\0" in text:
        raise ValueError(text)
    return Path(os.path.expanduser(text))  # noqa: PTH111 (Path.expanduser raises an error without a home)


def _read_place(text: str) -> Place:
    """Read a path or an S3 address. Refuse other URLs: as a path, ``gs://lag`` would be a folder named ``gs:``.

    This also holds for ``s3:/lag`` and ``hdfs:lag``, except if this machine has such a folder.
    """
    if text.startswith((_S3, _S3A)):
        return Bucket.parse(text)
    place, url = _read_path(text), _URL.match(text)
    if not text or (url and (url[1] or not os.path.isdir(place))):  # noqa: PTH112 (Path.is_dir raises an error for a long name)
        raise ValueError(text)
    return place


def _read_spark_place(text: str) -> str:
    """Read a path, an S3 address as ``s3://``, or any other URL of Hadoop."""
    if text.startswith((_S3, _S3A)):
        return str(Bucket.parse(text))
    if not text.strip() or "\0" in text:
        raise ValueError(text)
    return text


def hadoop_url(place: str) -> str:
    """The same place for Hadoop's own S3 client, whose scheme is ``s3a://``. Other places do not change."""
    return _S3A + place.removeprefix(_S3) if place.startswith(_S3) else place


def s3_url(text: str) -> str:
    """A place, or a text with places, with ``s3://`` instead of the scheme of Hadoop's client."""
    return text.replace(_S3A, _S3)


def _read_event_log(text: str) -> str:
    """Read a word or a URL of PostgreSQL. Refuse a password in the URL, because settings are shown and logged."""
    if "://" not in text:
        return one_of("sqlite", "memory").read(text)
    parts = urlsplit(text)
    is_secret = parts.password is not None or re.search(r"[?&](ssl)?password=", parts.query, re.IGNORECASE)
    if parts.scheme not in {"postgresql", "postgres"} or is_secret or not text.isprintable():
        raise ValueError(text)
    return text


def _read_pattern(text: str) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a pattern that Python warns about may change its meaning
            return re.compile(text)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise ValueError(text) from error


def _read_share(text: str) -> float:
    if not re.fullmatch(r"0|1|[01]?\.[0-9]{1,9}", text, re.ASCII):
        raise ValueError(text)
    return _within(float(text), 0, 1)


def _text_if(is_allowed: Callable[[str], object]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if not is_allowed(text):
            raise ValueError(text)
        return text

    return read


def _read_secret(text: str) -> Secret:
    text.encode()  # surrogates stand for bytes that are not UTF-8, and no header could match them
    return Secret(text)


def _show_list(items: Iterable[str]) -> str:
    return ",".join(items)


flag = ValueKind(_read_flag, "true or false", lambda value: str(value).lower())
names = ValueKind(
    partial(_read_list, item=re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")), "names separated by commas", _show_list
)
texts = ValueKind(partial(_read_list, item=re.compile(r".+", re.DOTALL)), "texts separated by commas", _show_list)
text = ValueKind(_text_if(str.isprintable), "a text")
brokers = ValueKind(_read_brokers, "HOST:PORT, several separated by commas, with ports from 1 to 65535", _show_list)
address = ValueKind(_read_address, "HOST:PORT, [IPV6]:PORT or :PORT")
url = ValueKind(_read_url, "an http:// or https:// address without user, query or fragment")
path = ValueKind(_read_path, "a path")
place: ValueKind[Place] = ValueKind(_read_place, "a path, or s3://bucket/prefix")
spark_place = ValueKind(_read_spark_place, "a directory, s3://bucket/prefix or another URL of Hadoop")
event_log = ValueKind(
    _read_event_log,
    "sqlite, memory, or postgresql://USER@HOST/DATABASE without a password (see KARROT_EVENT_LOG_PASSWORD_FILE)",
)
pattern: ValueKind[re.Pattern[str]] = ValueKind(_read_pattern, "a regular expression", lambda value: value.pattern)
share: ValueKind[float] = ValueKind(_read_share, "a number from 0 to 1", "{:.12g}".format)
namespace = ValueKind(  # as PutMetricData accepts it, but not a namespace of AWS
    _text_if(re.compile(r"(?!AWS/)[0-9A-Za-z._/#-][0-9A-Za-z._/#:-]{0,254}").fullmatch),
    "1 to 255 letters, digits or . - _ / # : and must not begin with a colon or AWS/",
)
topic = ValueKind(
    _text_if(re.compile(r"(?!\.\.?\Z)[0-9A-Za-z._-]{1,249}").fullmatch),
    "the name of a topic: 1 to 249 letters, digits or . - _ (not . or ..)",
)
role = ValueKind(
    _text_if(re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]{1,600}", re.ASCII).fullmatch),
    "the ARN of a role, such as arn:aws:iam::123456789012:role/karrot",
)
user = ValueKind(
    _text_if(lambda text: ":" not in text and text.isprintable()), "a name without a colon", may_be_told=False
)
secret = ValueKind(_read_secret, "a text in UTF-8; to read it from a file, add _FILE to the setting's name")


def _split(text: str) -> tuple[str, str]:
    matched = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)", text)
    if matched is None:
        raise ValueError(text)
    return matched[1], matched[2]


def _digits(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise ValueError(text)
    return int(text)


def _seconds(text: str) -> Fraction:
    number, unit = _split(text)
    if (unit or "s") not in _DURATION_UNITS:
        raise ValueError(text)
    return Fraction(number) * _DURATION_UNITS[unit or "s"]


_N = TypeVar("_N", int, float)


def _within(value: _N, low: _N, high: _N) -> _N:
    if not low <= value <= high:
        raise ValueError(value)
    return value


def _show_duration(seconds: int) -> str:
    """Format a duration exactly: in days if it is two or more whole days, else in whole hours, else in seconds."""
    for unit, factor, least in (("d", 86400, 2), ("h", 3600, 1)):
        if seconds % factor == 0 and seconds >= least * factor:
            return f"{seconds // factor}{unit}"
    return f"{seconds}s"


def _show_size(count: int) -> str:
    fitting = (name for name, factor in reversed(_SIZE_UNITS.items()) if count and count % factor == 0)
    unit = next(fitting, "")
    return f"{count // _SIZE_UNITS[unit]}{unit}"
