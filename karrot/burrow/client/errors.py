"""Defines what can go wrong with a request to Burrow; each message names the URL and the answer."""

_SHOWN = 200


class BurrowError(Exception):
    """A question that got no usable answer. ``url`` is what was asked, ``said`` what came of it."""

    def __init__(self, url: str, said: str) -> None:
        super().__init__(f"{url}: {said}")
        self.url = url
        self.said = said


class NotFound(BurrowError):  # noqa: N818 (an answer of Burrow's, by the name it has there)
    """Burrow is well and does not know the cluster, the topic, the group or the module (any more)."""


class Unavailable(BurrowError):  # noqa: N818 (says what Burrow is)
    """Nobody answered in time, or the answer was cut or 5xx: worth another try later."""


class UnknownCall(BurrowError):  # noqa: N818 (says what was asked)
    """Burrow has no such call: an old release, or a URL that is not its root. Says nothing of any group."""


class Unaddressable(BurrowError):  # noqa: N818 (says what the name is)
    """A name that Burrow's URLs cannot hold; nothing was asked."""


class Unreadable(BurrowError):  # noqa: N818 (says what the answer is)
    """Somebody answered, but not as Burrow does."""


def shown(text: str | bytes) -> str:
    """A foreign text as a sentence may quote it: one line, bounded, nothing a terminal obeys."""
    plain = text.decode(errors="replace") if isinstance(text, bytes) else text
    plain = plain.strip()
    return ascii(plain if len(plain) <= _SHOWN else f"{plain[:_SHOWN]}...")
