"""Sends requests to Karrot's API, and decodes the answers. The doctor also reads its other servers with `Web`."""

from collections.abc import Mapping, Sequence
from typing import Self, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from karrot.api.bodies import Group, GroupPage
from karrot.burrow.client import Answer, Asking, BurrowError, shown, wall_ms
from karrot.event import TEST_CLUSTERS as TESTS

T = TypeVar("T")
Query = Mapping[str, str] | Sequence[tuple[str, str]]

GROUPS_READ = 10_000
"""The maximum number of groups that are read."""

_PAGE = 1000
_OK = 200


class NotTold(Exception):  # noqa: N818 (it describes a result)
    """There was no answer, or a wrong answer. ``said`` is the error message. Without an answer, ``status`` is 0."""

    def __init__(self, said: str, status: int = 0) -> None:
        super().__init__(said)
        self.said = said
        self.status = status


class Web:
    """Sends requests to one URL and the paths below it. ``token`` is sent as a Bearer token."""

    def __init__(self, url: str, *, asking: Asking | None = None, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._asking = asking or Asking()
        self._pool = self._asking.pool(self.url)
        self._headers = {"User-Agent": "karrot", "Accept": "*/*"}
        self._pool.headers = self._headers | ({"Authorization": f"Bearer {token}"} if token else {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.clear()

    def answer(self, path: str = "", query: Query = ()) -> Answer:
        """The answer to a GET, with any status. Raises `NotTold` if there is no answer."""
        url = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            return self._asking.get(self._pool, url, wall_ms)
        except BurrowError as error:
            raise NotTold(self._explained(error)) from error

    def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """The answer to JSON that is posted once, as Burrow posts it. Raises `NotTold` if there is no answer."""
        all_headers = self._headers | {"Content-Type": "application/json", **headers}
        try:
            return self._asking.post(self._pool, f"{self.url}{path}", body, all_headers)
        except BurrowError as error:
            raise NotTold(self._explained(error)) from error

    def body(self, path: str, query: Query = (), *, also: int = _OK) -> bytes:
        """The body of an answer with status 200, or with the other status. Raises `NotTold`."""
        answer = self.answer(path, query)
        if answer.status not in (_OK, also):
            raise NotTold(f"HTTP {answer.status} from {path}: {shown(answer.body)}", answer.status)
        return answer.body

    def read(self, kind: type[T], path: str, query: Query = (), *, also: int = _OK) -> T:
        """Decode a JSON body. Raises `NotTold` if it does not fit or is nested too deeply."""
        body = self.body(path, query, also=also)
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise NotTold(f"the answer of {path} is not valid: {error}", _OK) from error

    def groups(self, cluster: str = "", most: int = GROUPS_READ) -> tuple[Sequence[Group], bool]:
        """Karrot's groups of a cluster, or of all clusters without the tests, and whether they are all."""
        read: list[Group] = []
        after: str | None = ""
        while after is not None and len(read) < most:
            page = self.read(GroupPage, "/api/v1/groups", {"limit": str(_PAGE), "after": after, "cluster": cluster})
            read += [each for each in page.groups if cluster or each.source != "webhook" or each.cluster not in TESTS]
            after = page.next
        return read, after is None

    def _explained(self, error: BurrowError) -> str:
        """The error message, with the other scheme if the server seems to use it."""
        where = urlsplit(self.url).netloc
        if "WRONG_VERSION_NUMBER" in error.said:
            return f"{where} does not use TLS: try http://{where}"
        is_plain = self.url.startswith("http:") and "the connection broke" in error.said
        return error.said + (f"; if it uses TLS, try https://{where}" if is_plain else "")
