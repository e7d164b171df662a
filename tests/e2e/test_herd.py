"""Karrot handles a failover between two Burrows: all groups are posted at once, each incident under a new id."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from e2e.figures import Figures
from karrot.burrow.payload import to_wire
from karrot.demo.simulated_burrow import SimulatedBurrow
from karrot.event import LagEvent, Status
from support.service.karrot_service import Service
from support.service.open_loop import send_open_loop

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

GROUPS = 500
TAKEOVERS_MS = (20_000, 30_000)  # by the simulated Burrow's clock; at later times some groups are deleted


class Known(NamedTuple):
    """The status and incident of one group."""

    status: str
    lag: int | None
    incident_id: str | None


@pytest.fixture
def herds() -> tuple[list[LagEvent], list[LagEvent]]:
    """Return the posts of two Burrows that take over one after the other."""
    started_ms = int(time.time() * 1000) - TAKEOVERS_MS[-1]
    burrow = SimulatedBurrow(GROUPS, seed=7, speed=1, start_ms=started_ms)
    first, second = (herd(burrow, started_ms + at_ms) for at_ms in TAKEOVERS_MS)
    return first, second


def herd(burrow: SimulatedBurrow, now_ms: int) -> list[LagEvent]:
    """Let another Burrow take over; return all verdicts that it posts at once, including those about itself."""
    burrow._notified.clear()
    burrow._agenda = [(0.0, key) for key in burrow.groups]
    posts = list(burrow.due(now_ms))
    assert len({post.consumer for post in posts}) == len(posts) == GROUPS + 2
    return posts


def send(service: Service, posts: Sequence[LagEvent]) -> float:
    """Send all posts at once, each on its own connection; send refused posts again, as after the next evaluation.

    Return the seconds until the last answer of the first round.
    """
    first = 0.0
    while posts:
        played = send_open_loop(service.port, [0.0] * len(posts), lambda number, posts=posts: request(posts[number]))  # type: ignore[misc]
        assert set(played.statuses) <= {202, 503}
        first = first or max(played.latencies)
        posts = [post for post, status in zip(posts, played.statuses, strict=True) if status != 202]
    return first


def request(post: LagEvent) -> bytes:
    body = to_wire(post)
    head = (
        "POST /burrow HTTP/1.1",
        "Host: 127.0.0.1",
        "User-Agent: Go-http-client/1.1",
        f"Content-Length: {len(body)}",
        "Content-Type: application/json",
        "Accept-Encoding: gzip",
    )
    return "\r\n".join([*head, "", ""]).encode() + body


def sent(posts: Sequence[LagEvent]) -> dict[str, Known]:
    """Return the state that Karrot must have afterwards. A close leaves no incident open."""
    return {
        post.consumer: Known(post.status_text, post.total_lag, None if post.status is Status.OK else post.incident_id)
        for post in posts
    }


def known(service: Service) -> dict[str, Known]:
    return {
        each["consumer"]: Known(each["status"], each["lag"], each["incident"] and each["incident"]["id"])
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


def test_each_group_has_burrows_state_though_all_are_posted_at_once_twice_with_new_ids(
    herds: tuple[list[LagEvent], list[LagEvent]], tmp_path: Path, figures: Figures
) -> None:
    first, second = herds
    with Service(tmp_path / "data") as service:
        started = time.time()
        figures.add(f"{len(first)} posts of a failover at once, the slowest answer", send(service, first))
        assert known(service) == sent(first)
        open_then = {told.incident_id for told in sent(first).values()} - {None}
        assert len(open_then) > 10
        assert incidents(service) == len(open_then)

        send(service, first)  # Go does the same when a connection breaks
        assert known(service) == sent(first)
        assert incidents(service) == len(open_then)

        send(service, second)
        assert known(service) == sent(second)
        open_now = {told.incident_id for told in sent(second).values()} - {None}
        assert open_now.isdisjoint(open_then)
        assert incidents(service) == len(open_then) + len(open_now)

        assert service.get("/readyz").status == 200
        assert (service.metric("karrot_last_event_timestamp_seconds", cluster="prod-eu") or 0) > started
        assert service.metric("karrot_burrow_self_lag", cluster="prod-eu") is not None
        assert service.metric("karrot_events_accepted_total", source="webhook") == 3 * (GROUPS + 2)
