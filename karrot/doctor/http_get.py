"""Sends GET requests to Karrot, to evaluate, to Prometheus and to the URL of a notifier."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import urlencode

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from karrot.burrow.client import Answer, Asking, BurrowError, shown, wall_ms
from karrot.doctor.snapshot_types import ReadSample, Unread

T = TypeVar("T")
D = TypeVar("D")

_OK = 200


class NotTold(Exception):  # noqa: N818 (it describes a result)
    """There was no answer, or a wrong answer. ``said`` is the error message. Without an answer, ``status`` is 0."""

    def __init__(self, said: str, status: int = 0) -> None:
        super().__init__(said)
        self.said = said
        self.status = status


class Web:
    """Sends requests to one URL and the paths below it. ``token`` is sent as a Bearer token."""

    def __init__(self, url: str, *, asking: Asking, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._asking = asking
        self._pool = asking.pool(self.url)
        self._pool.headers = {"User-Agent": "karrot", "Accept": "*/*"}
        if token:
            self._pool.headers = {**self._pool.headers, "Authorization": f"Bearer {token}"}

    def close(self) -> None:
        """Close the open connections."""
        self._pool.clear()

    def answer(self, path: str = "", query: Mapping[str, str] | list[tuple[str, str]] | None = None) -> Answer:
        """The answer, with any status. Raises `NotTold` if there is no answer."""
        url = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            return self._asking.get(self._pool, url, wall_ms)
        except BurrowError as error:
            raise NotTold(error.said) from error

    def body(self, path: str, query: Mapping[str, str] | list[tuple[str, str]] | None = None) -> bytes:
        """The body of an answer with status 200. Raises `NotTold` for any other status."""
        answer = self.answer(path, query)
        if answer.status != _OK:
            raise NotTold(f"HTTP {answer.status} from {path}: {shown(answer.body)}", answer.status)
        return answer.body

    def read(self, kind: type[T], path: str, query: Mapping[str, str] | None = None) -> T:
        """Decode the JSON body into a value of type ``kind``. Raises `NotTold`."""
        return understood(kind, self.body(path, query), path, _OK)


def understood(kind: type[T], body: bytes, path: str, status: int) -> T:
    """Decode a JSON body into a value of type ``kind``. Raises `NotTold` if it does not fit or is nested too deeply."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotTold(f"the answer of {path} is not valid: {error}", status) from error


def read_samples(web: Web, names: Sequence[str] = ()) -> list[ReadSample]:
    """The samples of ``/metrics``, or only those of the metrics with these names. Raises `NotTold`."""
    text = web.body("/metrics", [("name[]", name) for name in names]).decode(errors="replace")
    families = text_string_to_metric_families(text)
    try:
        return [ReadSample(each.name, each.labels, each.value) for family in families for each in family.samples]
    except ValueError as error:
        raise NotTold(f"the answer of /metrics is not valid: {error}") from error


class Parts:
    """Reads a program's data part by part. Records each part that cannot be read, and continues with the rest."""

    def __init__(self) -> None:
        self.unread: list[Unread] = []

    def read(self, what: str, ask: Callable[[], T], otherwise: D) -> T | D:
        """The result of ``ask``, or ``otherwise`` if ``ask`` raised `NotTold`."""
        try:
            return ask()
        except (NotTold, BurrowError) as error:
            unread = Unread(what, str(error))
        if unread not in self.unread:
            self.unread.append(unread)
        return otherwise
