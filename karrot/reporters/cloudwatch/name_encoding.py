"""Encodes any name for CloudWatch as printable ASCII of limited length. Different names get different encodings.

``%``, control characters, non-ASCII characters and names of blanks are percent-encoded as UTF-8. The empty name becomes
``(empty)``. A name that is too long is cut, and ends in ``~`` and the first digits of its SHA-256.
"""

import re
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import unquote

EMPTY = "(empty)"
"""The encoding of the empty name."""

MAX_DIMENSION_VALUE = 1024
MAX_METRIC_NAME = 255

_NOT_PLAIN = re.compile(r"[^ -$&-~]")
_PRINTABLE = re.compile(r" *[!-~][ -~]*")
_DIGEST = 8
_CUT = re.compile(rf".*~[0-9a-f]{{{_DIGEST}}}")
_LONGEST_ESCAPE = len("%FF")


class Encoded(NamedTuple):
    """A name as CloudWatch accepts it, and whether it was cut. A cut name cannot be decoded."""

    text: str
    cut: bool


def dimension_value(name: str) -> Encoded:
    return _within(name, MAX_DIMENSION_VALUE)


def metric_name(name: str) -> Encoded:
    """A name encoded as the name of a metric, for the legacy layout.

    A name that the first Karrot could send stays unchanged, even with ``%``, because a service may scale by this
    metric. The exception is a name that looks like the encoding of another name.
    """
    return Encoded(name, cut=False) if _could_always_be_sent(name) else _within(name, MAX_METRIC_NAME)


def _within(name: str, limit: int) -> Encoded:
    text = _encoded(name)
    if len(text) <= limit and not _looks_cut(text, limit):
        return Encoded(text, cut=False)
    head = re.sub("%.?$", "", text[: limit - _DIGEST - 1])
    return Encoded(f"{head}~{sha256(_utf8(name)).hexdigest()[:_DIGEST]}", cut=True)


def _looks_cut(text: str, limit: int) -> bool:
    """Whether a longer name could have been cut to this text. If so, the text itself is treated as too long."""
    return len(text) > limit - _LONGEST_ESCAPE and _CUT.fullmatch(text) is not None


def _could_always_be_sent(name: str) -> bool:
    if not _PRINTABLE.fullmatch(name) or len(name) > MAX_METRIC_NAME or _looks_cut(name, MAX_METRIC_NAME):
        return False
    meant = "" if name == EMPTY else unquote(name)
    return meant == name or _encoded(meant) != name


def _encoded(name: str) -> str:
    if not name:
        return EMPTY
    if name == EMPTY or name.isspace():
        return "".join(map(_escaped, name))
    return _NOT_PLAIN.sub(lambda found: _escaped(found[0]), name)


def _escaped(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in _utf8(character))


def _utf8(text: str) -> bytes:
    """The name as UTF-8. Intake refuses lone surrogates. But if one gets here, the send must still succeed."""
    return text.encode("utf-8", "surrogatepass")
