"""After a failover between two Burrows all groups are due at once, each incident under a new id."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from e2e.figures import Figures
from karrot.demo.burrow.fake_burrow import FakeBurrow, Post, simulate
from karrot.event import Status
from support.service.karrot_service import Service
from support.service.open_loop import send_open_loop

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

GROUPS = 500
TAKEOVERS_MS = (20_000, 30_000)  # by Burrow's clock: later some groups are deleted, whatever the time is here


class Told(NamedTuple):
    """What is known of one group."""

    status: str
    lag: int | None
    incident_id: str | None


@pytest.fixture
def herds() -> tuple[list[Post], list[Post]]:
    """What two Burrows send that take over one after the other."""
    started_ms = int(time.time() * 1000) - TAKEOVERS_MS[-1]
    burrow = simulate(GROUPS, seed=7, speed=1, clusters=("prod",), now_ms=started_ms)
    first, second = (herd(burrow, started_ms + at_ms) for at_ms in TAKEOVERS_MS)
    return first, second


def herd(burrow: FakeBurrow, now_ms: int) -> list[Post]:
    """Another Burrow takes over: everything that it then sends at once. Burrow's report on itself is among it."""
    burrow.due(now_ms)
    burrow.failover()
    posts = burrow.due(now_ms)
    assert len({post.event.consumer for post in posts}) == len(posts) == GROUPS + 1
    return posts


def send(service: Service, posts: Sequence[Post]) -> float:
    """All at once on connections of their own; what was refused goes again, as with the next evaluation.

    The seconds until the last answer of the first round.
    """
    first = 0.0
    while posts:
        played = send_open_loop(service.port, [0.0] * len(posts), lambda number, posts=posts: request(posts[number]))  # type: ignore[misc]
        assert set(played.statuses) <= {202, 503}
        first = first or max(played.latencies)
        posts = [post for post, status in zip(posts, played.statuses, strict=True) if status != 202]
    return first


def request(post: Post) -> bytes:
    head = (
        "POST /burrow HTTP/1.1",
        "Host: 127.0.0.1",
        "User-Agent: Go-http-client/1.1",
        f"Content-Length: {len(post.body)}",
        "Content-Type: application/json",
        "Accept-Encoding: gzip",
    )
    return "\r\n".join([*head, "", ""]).encode() + post.body


def sent(posts: Sequence[Post]) -> dict[str, Told]:
    """What Karrot has to know then. A close leaves no incident open."""
    return {
        post.event.consumer: Told(
            post.event.status_text,
            post.event.total_lag,
            post.event.incident_id if post.event.status is not Status.OK else None,
        )
        for post in posts
    }


def known(service: Service) -> dict[str, Told]:
    return {
        each["consumer"]: Told(each["status"], each["lag"], each["incident"] and each["incident"]["id"])
        for each in groups(service)
    }


def incidents(service: Service) -> int:
    return sum(each["incidents_total"] for each in groups(service))


def groups(service: Service) -> Iterator[dict[str, Any]]:
    after = ""
    while after is not None:
        page = service.get(f"/api/v1/groups?limit=1000&after={after}").json
        yield from page["groups"]
        after = page["next"]


def test_each_group_is_as_burrow_says_though_all_come_at_once_twice_and_under_new_ids(
    herds: tuple[list[Post], list[Post]], tmp_path: Path, figures: Figures
) -> None:
    first, second = herds
    with Service(tmp_path / "data") as service:
        started = time.time()
        figures.add(f"{len(first)} posts of a failover at once, the slowest answer", send(service, first))
        assert known(service) == sent(first)
        open_then = {told.incident_id for told in sent(first).values()} - {None}
        assert len(open_then) > 10
        assert incidents(service) == len(open_then)

        send(service, first)  # as Go does when a connection breaks
        assert known(service) == sent(first)
        assert incidents(service) == len(open_then)

        send(service, second)
        assert known(service) == sent(second)
        open_now = {told.incident_id for told in sent(second).values()} - {None}
        assert open_now.isdisjoint(open_then)
        assert incidents(service) == len(open_then) + len(open_now)

        assert service.get("/readyz").status == 200
        assert (service.metric("karrot_last_event_timestamp_seconds", cluster="prod") or 0) > started
        assert service.metric("karrot_burrow_self_lag", cluster="prod") is not None
        assert service.metric("karrot_events_accepted_total", source="webhook") == 3 * (GROUPS + 1)
