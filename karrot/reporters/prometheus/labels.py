"""Make a label value of any name."""

from hashlib import sha256

MAX_LENGTH = 512
"""Characters of the longest label value."""

_DIGEST = 8


def label_value(name: str) -> str:
    """The name with NUL as U+FFFD; a longer one is cut and ends in ``~`` and the head of its SHA-256."""
    clean = name.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if len(clean) <= MAX_LENGTH:
        return clean
    digest = sha256(name.encode("utf-8", "replace")).hexdigest()[:_DIGEST]
    return f"{clean[: MAX_LENGTH - _DIGEST - 1]}~{digest}"


def escaped(value: str) -> str:
    """A label value as it stands between quotes, in both formats."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
