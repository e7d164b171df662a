"""Helpers of the doctor's readers: they handle unreadable parts, metric samples, and addresses."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from karrot.api.bodies import Group, GroupPage
from karrot.event import TEST_CLUSTERS
from karrot.http_client import HttpClient, RequestFailed, Unreadable

T = TypeVar("T")
D = TypeVar("D")

GROUPS_READ = 10_000
"""The maximum number of groups that are read."""

_PAGE = 1000


class Unreachable(NamedTuple):
    """A program that did not answer or answered wrongly. ``error`` is the error message."""

    url: str
    error: str


class Unread(NamedTuple):
    """A part of a program's data that could not be read. ``error`` is the error message."""

    what: str
    error: str


class Parts:
    """Reads parts of a program's data, one request each. Records the parts that cannot be read, and continues."""

    def __init__(self) -> None:
        self.unread: list[Unread] = []

    def read(self, what: str, ask: Callable[[], T], otherwise: D) -> T | D:
        """Return the result of ``ask``, or ``otherwise`` if ``ask`` raises `RequestFailed`."""
        try:
            return ask()
        except RequestFailed as error:
            unread = Unread(what, error.said)
        if unread not in self.unread:
            self.unread.append(unread)
        return otherwise


def read_samples(client: HttpClient, names: Sequence[str] = ()) -> list[Sample]:
    """Read the samples of the metrics ``names``, by default of all metrics. Raises `RequestFailed`."""
    text = client.body("/metrics", [("name[]", name) for name in names]).decode(errors="replace")
    try:
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except ValueError as error:
        raise Unreadable(f"{client.url}/metrics", f"the answer is not valid: {error}") from error


def read_groups(client: HttpClient, cluster: str = "", most: int | None = None) -> tuple[Sequence[Group], bool]:
    """Read the groups of a cluster, or of all clusters except test clusters, and whether the list is complete."""
    groups: list[Group] = []
    after: str | None = ""
    while after is not None and len(groups) < (most or GROUPS_READ):
        page = client.read(GroupPage, "/api/v1/groups", {"limit": str(_PAGE), "after": after, "cluster": cluster})
        groups += [one for one in page.groups if cluster or one.source != "webhook" or one.cluster not in TEST_CLUSTERS]
        after = page.next
    return groups, after is None


def netloc(url: str) -> str:
    parts = urlsplit(url)
    try:
        port = parts.port or {"https": 443}.get(parts.scheme, 80)
    except ValueError:
        return parts.netloc
    return f"{parts.hostname or ''}:{port}"
