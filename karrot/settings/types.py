"""Defines the kinds of values of settings. A kind says how Karrot reads, shows and describes a value."""

import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Generic, NamedTuple, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit

from karrot.text import redacted

T = TypeVar("T")
Word = TypeVar("Word", bound=str)

_DURATIONS = {"ms": Fraction(1, 1000), "s": Fraction(1), "m": Fraction(60), "h": Fraction(3600), "d": Fraction(86400)}
_SIZES = {"": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_S3, _S3A = "s3://", "s3a://"
_BUCKET = re.compile(r"s3a?://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/[\w!.*'()=-]+)*)/*", re.ASCII)
_FILE_URL = re.compile(r"file:(?://)?(/(?!/).*)", re.DOTALL)
_URL = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*:(//)?")
_RE2 = re.compile(
    r"""(?xs)(?: \\ [^1-9NUZu\x80-\U0010ffff]                         # an escape
    | \[ (?:\^|(?!\^)) (?:\]|(?!\])) (?: \\ [^1-9NUbu\x80-\U0010ffff] | [^]\\] )* \]   # a set
    | \( (?! \?) | \(\? (?: : | P<[A-Za-z0-9_]+> | [ims-]+[:)] )     # a group
    | [*+?}] (?! \+) | \{ (?! , | \d* ,? \d{4})                      # a repeat
    | [^\\[(*+?{}] )*"""
)
"""Matches the regular expressions of Python that RE2 can read too. Python 3.11.2 misreads possessive repeats."""

_TOKENS = re.compile(r"(?s)\\.|\[\^?\]?(?:\\.|[^]\\])*\]|\{(\d+)(?:,(\d*))?\}|.")
"""Matches the parts of a regular expression that are one to a repeat: an escape, a set, a repeat, any character."""

_MOST_REPEATS = 1000
_SHOWN = 80
_LAST_PORT = 65535
_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A secret string, which only ``reveal()`` returns. ``str`` and ``repr`` return ``***``."""

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
    """An S3 bucket and a key prefix without a slash at either end. ``str`` returns ``s3://bucket/prefix``."""

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
"""A folder or a bucket that Karrot reads or writes without Spark."""


@dataclass(frozen=True, slots=True)
class ValueKind(Generic[T]):
    """One kind of value.

    ``read`` raises `ValueError` for a string that is not allowed. ``allowed`` completes the sentence "it must be ...".
    ``show`` is the inverse of ``read``: ``read(show(value)) == value``, except for a secret. If ``may_be_told`` is
    false, errors do not show a wrong value, which is likely to contain a secret (``user:password``).
    """

    read: Callable[[str], T]
    allowed: str
    show: Callable[[T], str] = str
    may_be_told: bool = True


def _require(is_allowed: object) -> None:
    if not is_allowed:
        raise ValueError


def one_of(*choices: Word) -> ValueKind[Word]:
    """Accept one of these words, in upper or lower case."""
    by_folded = {choice.casefold(): choice for choice in choices}

    def read(text: str) -> Word:
        _require(text.casefold() in by_folded)
        return by_folded[text.casefold()]

    return ValueKind(read, choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}")


def whole(low: int, high: int) -> ValueKind[int]:
    """Accept a whole number from ``low`` to ``high``, both included."""
    return ValueKind(partial(_whole, {"": 1}, "", low, high), f"a whole number from {low} to {high}")


def duration(low: int, high: int) -> ValueKind[int]:
    """Accept a duration in whole seconds: ``300``, ``300s``, ``5m``, ``24h`` or ``30d``."""
    spans = f"from {_show_duration(low)} to {_show_duration(high)}"
    allowed = f"seconds, or a number with s, m, h or d, {spans}"
    return ValueKind(partial(_whole, _DURATIONS, r"\.", low, high), allowed, _show_duration)


def timeout(low: float, high: float) -> ValueKind[float]:
    """Accept a short duration in seconds: ``2``, ``2.5s`` or ``500ms``."""

    def read(text: str) -> float:
        seconds = float(_number(_DURATIONS, r"\.", text))
        _require(low <= seconds <= high)
        return seconds

    return ValueKind(read, f"seconds, or a number with ms, s or m, from {low:g}s to {high:g}s", "{:.12g}s".format)


def size(low: int, high: int) -> ValueKind[int]:
    """Accept a size in bytes: ``1048576``, ``512KiB``, ``8MiB`` or ``1GiB``."""
    allowed = f"bytes, or a number with KiB, MiB, GiB or TiB, from {_show_size(low)} to {_show_size(high)}"
    read = partial(_whole, _SIZES, "", low, high)
    return ValueKind(lambda text: read(text.casefold()), allowed, _show_size)


def _number(units: Mapping[str, int | Fraction], point: str, text: str) -> Fraction:
    """Parse a number with a unit. The default unit is bytes or seconds. An empty ``point`` allows no fraction."""
    matched = re.fullmatch(rf"([0-9]{{1,18}}(?:{point}[0-9]{{1,9}})?)(?: ?([A-Za-z]+))?", text)
    unit = (matched and matched[2]) or ("" if "" in units else "s")
    if matched is None or unit not in units:
        raise ValueError(text)
    return Fraction(matched[1]) * units[unit]


def _whole(units: Mapping[str, int | Fraction], point: str, low: int, high: int, text: str) -> int:
    number = _number(units, point, text)
    _require(number.denominator == 1 and low <= number <= high)
    return int(number)


def some_of(*choices: Word) -> ValueKind[tuple[Word, ...]]:
    """Accept one or more of these words, separated by commas, in upper or lower case."""
    one = one_of(*choices)

    def read(text: str) -> tuple[Word, ...]:
        return tuple(dict.fromkeys(map(one.read, _read_list(text, re.compile(r"\w+")))))

    return ValueKind(read, f"one or more of {', '.join(choices)}, separated by commas", _show_list)


def seconds_of(*choices: str) -> ValueKind[int]:
    """Accept one of these numbers of seconds."""
    one = one_of(*choices)
    return ValueKind(lambda text: int(one.read(text)), one.allowed)


def quoted(text: str) -> str:
    """Format a wrong value for an error: cut after 80 characters, on one line, without the secrets of an address."""
    shown = re.sub(r"(password=?)\S+", r"\1***", redacted(text), flags=re.IGNORECASE)
    return repr(shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}...")


def checked(kind: ValueKind[T], what: str, text: str) -> T:
    """Read a string. Raises `ValueError` with a sentence that begins with ``what``, the name of the value."""
    try:
        return kind.read(text)
    except ValueError as error:
        wrong = quoted(text) if kind.may_be_told else "wrong"
        raise ValueError(f"{what} is {wrong}: it must be {kind.allowed}") from error


def _read_flag(text: str) -> bool:
    _require(text.casefold() in _TRUE | _FALSE)
    return text.casefold() in _TRUE


def _read_list(text: str, item: re.Pattern[str]) -> tuple[str, ...]:
    """Read items that are separated by commas. Spaces, a comma at the end and repeated items are allowed."""
    items = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    _require(items and all(map(item.fullmatch, items)))
    return items


def _read_address(text: str) -> Address:
    matched = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:\[\]/@]*)):([0-9]{1,5})", text, re.ASCII)
    if matched is None or int(matched[3]) > _LAST_PORT:
        raise ValueError(text)
    return Address(matched[1] or matched[2] or "0.0.0.0", int(matched[3]))


def _read_brokers(text: str) -> tuple[str, ...]:
    found = _read_list(text, re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+):[0-9]{1,5}", re.ASCII))
    _require(all(0 < int(each.rpartition(":")[2]) <= _LAST_PORT for each in found))
    return found


def _read_url(text: str) -> str:
    """Read a URL. Refuse braces, quotes, spaces and control characters, because other programs' files get the URL."""
    parts = urlsplit(text) if re.fullmatch(r"https?://[\w.~:/\[\]@!$&()*+,;=%-]+", text, re.ASCII) else urlsplit("")
    _require(parts.hostname and parts.username is None and parts.port != 0)
    return text.rstrip("/")


def _read_path(text: str) -> Path:
    _require("\0" not in text)
    return Path(os.path.expanduser(text))  # noqa: PTH111 (Path.expanduser raises an error without a home)


def _read_place(text: str) -> Place:
    """Read a path, a ``file:`` URL as Spark reads it, or an S3 address.

    Refuse other URLs, because the path ``gs://lag`` would be a folder named ``gs:``. Also refuse ``s3:/lag`` and
    ``hdfs:lag``, except if this machine has such a folder.
    """
    if text.startswith((_S3, _S3A)):
        return Bucket.parse(text)
    if local := _FILE_URL.fullmatch(text):
        return _read_path(local[1])
    place, url = _read_path(text), _URL.match(text)
    _require(text and not (url and (url[1] or not os.path.isdir(place))))  # noqa: PTH112 (Path.is_dir raises an error for a long name)
    return place


def _read_spark_place(text: str) -> str:
    """Read a path, an S3 address or any other URL of Hadoop. Return an S3 address with ``s3://``."""
    if text.startswith((_S3, _S3A)):
        return str(Bucket.parse(text))
    _require(text.strip() and "\0" not in text)
    return text


def hadoop_url(place: str) -> str:
    """Replace ``s3://`` by ``s3a://``, the scheme of Hadoop's S3 client. Other places do not change."""
    return _S3A + place.removeprefix(_S3) if place.startswith(_S3) else place


def s3_url(text: str) -> str:
    """Replace every ``s3a://`` in a string by ``s3://``."""
    return text.replace(_S3A, _S3)


def _read_event_log(text: str) -> str:
    """Read ``sqlite``, ``memory`` or a PostgreSQL URL. Refuse a password in the URL, because settings are logged."""
    if "://" not in text:
        return one_of("sqlite", "memory").read(text)
    parts = urlsplit(text)
    is_secret = parts.password is not None or re.search(r"(^|&)(ssl)?password=", parts.query, re.IGNORECASE)
    _require(parts.scheme in {"postgresql", "postgres"} and not is_secret and text.isprintable())
    return text


def _read_pattern(text: str) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # in a later Python, such a pattern may mean something else
            return re.compile(text)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise ValueError(text) from error


def _read_shared_pattern(text: str) -> re.Pattern[str]:
    _require(_RE2.fullmatch(text) and _most_repeats(text) <= _MOST_REPEATS)
    return _read_pattern(text)


def _most_repeats(text: str) -> int:
    """The largest product of repeats inside each other: 1500 in ``(?:a{500}){3}``, which RE2 cannot read."""
    groups, last = [1], 1
    for token in _TOKENS.finditer(text):
        if token[0] == "(":
            groups.append(1)
            continue
        if token[0] == ")":
            last = groups.pop() if len(groups) > 1 else 1
        else:
            last = last * int(token[2] or token[1]) if token[1] else 1
        groups[-1] = max(groups[-1], last)
    return max(groups)


def _read_share(text: str) -> float:
    _require(re.fullmatch(r"0|1|[01]?\.[0-9]{1,9}", text, re.ASCII) and float(text) <= 1)
    return float(text)


def _text_if(is_allowed: Callable[[str], object]) -> Callable[[str], str]:
    def read(text: str) -> str:
        _require(is_allowed(text))
        return text

    return read


def _read_secret(text: str) -> Secret:
    text.encode()  # raises for surrogates: they stand for invalid UTF-8, which no header matches
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
tables_place = replace(place, allowed=f"{place.allowed}. From another file system, copy the tables to a path")
spark_place = ValueKind(_read_spark_place, "a directory, s3://bucket/prefix or another URL of Hadoop")
event_log = ValueKind(
    _read_event_log,
    "sqlite, memory, or postgresql://USER@HOST/DATABASE without a password (see KARROT_EVENT_LOG_PASSWORD_FILE)",
)
pattern: ValueKind[re.Pattern[str]] = ValueKind(_read_pattern, "a regular expression", lambda value: value.pattern)
shared_pattern = ValueKind(
    _read_shared_pattern,
    "a regular expression that Prometheus (RE2) can read too: without look-around, back-references, possessive or "
    r"atomic parts, comments, conditions, \Z, \N, \u and \U, and repeated fewer than 1000 times in all",
)
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


def _show_duration(seconds: int) -> str:
    """Format a duration exactly. The unit is days for two or more whole days, hours for whole hours, or seconds."""
    for unit, factor, least in (("d", 86400, 2), ("h", 3600, 1)):
        if seconds % factor == 0 and seconds >= least * factor:
            return f"{seconds // factor}{unit}"
    return f"{seconds}s"


def _show_size(count: int) -> str:
    units = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
    return next((f"{count // length}{unit}" for unit, length in units if count and count % length == 0), str(count))
