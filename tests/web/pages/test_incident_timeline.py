"""The timeline of a group's incident, from the events and mutes that the log has."""

import re
from typing import Any

from karrot.event import Source
from karrot.eventlog import watch_data_of_groups
from karrot.eventlog.watch_data_of_groups import GroupHealth, WatchedCluster
from support.burrow.lag_events import make_event, make_partition
from support.web.website import Website, make_website

GROUP = {"cluster": "prod-eu", "consumer": "orders-svc"}


def poll(website: Website, status: str, bad: int = 0, *, members: int = 3, rebalances: int = 0, **fields: Any) -> None:
    """Store a verdict of `watch`, and let ten seconds pass."""
    partitions = tuple(make_partition(partition=n, status_text="STOP") for n in range(bad))
    event = make_event(
        status_text=status,
        source=fields.pop("source", Source.KAFKA),
        total_lag=100 * bad,
        partitions=partitions,
        incident_id=None if status == "OK" else "one",
        incident_start=None,
        observed_at_ms=website.clock.wall,
    )
    extras = (("members", str(members)), ("rebalances", str(rebalances)))
    website.context.intake.accept(event._replace(extras=extras, **fields))
    website.clock.advance(10_000)


def told(website: Website) -> list[str]:
    """Return the heading and the lines of the timeline, without dates."""
    page = website.client.get("/group", query_string=GROUP).text
    found = re.search(r"<h2>(The \w+ incident)</h2>(.*?)</section>", page, re.DOTALL)
    if found is None:
        return []
    lines = re.findall(r"<time[^>]*>[\d-]+ ([\d:]+) UTC</time> <span>(.*?)</span></li>", found[2], re.DOTALL)
    assert len(lines) == found[2].count("<li>")
    return [found[1], *(f"{at} {' '.join(re.sub('<[^>]*>', '', words).split())}" for at, words in lines)]


def test_an_open_incident_has_a_line_for_each_change() -> None:
    website = make_website()
    poll(website, "OK")
    poll(website, "OK", rebalances=1)
    poll(website, "WARN", 1, rebalances=1)
    poll(website, "WARN", 1, rebalances=1, members=2)
    for rebalances in (2, 4, 5):
        poll(website, "WARN", 1, rebalances=rebalances, members=2)
    poll(website, "ERR", 1, rebalances=5, members=2)
    poll(website, "ERR", 4, rebalances=5, members=2)
    poll(website, "WARN", 1, rebalances=6, members=4)
    assert told(website) == [
        "The open incident",
        "08:00:10 Rebalanced",
        "08:00:20 Opened: WARN, lag 100, 1 bad partition",
        "08:00:30 Lost 1 member (3 → 2), rebalanced 4 times, until 08:01:00",
        "08:01:10 Got worse: ERR, lag 100, 1 bad partition",
        "08:01:20 Got worse: ERR, lag 400, 4 bad partitions",
        "08:01:30 Gained 2 members (2 → 4), rebalanced",
    ]


def test_the_last_incident_stays_until_the_next_one_begins() -> None:
    website = make_website()
    poll(website, "OK")
    assert told(website) == []
    poll(website, "ERR", 2)
    poll(website, "OK")
    poll(website, "OK", rebalances=7)
    last = ["The last incident", "08:00:10 Opened: ERR, lag 200, 2 bad partitions", "08:00:20 Recovered: OK, lag 0"]
    website.clock.advance(10_000)
    website.client.post("/mute", data={"reason": "a later deploy", "for": "1m"}, query_string=GROUP)
    website.clock.advance(10_000)
    assert told(website) == last
    poll(website, "WARN", 1, rebalances=7)
    website.clock.advance(10_000)
    assert told(website)[0] == "The open incident"
    assert told(website)[-1] == "08:01:00 Opened: WARN, lag 100, 1 bad partition"


def test_the_timeline_says_if_the_begin_of_the_incident_is_not_stored() -> None:
    website = make_website()
    poll(website, "ERR", 1)
    poll(website, "OK")
    assert told(website)[1] == "08:00:00 The oldest known event: ERR, lag 100, 1 bad partition"


def test_a_mute_and_its_end_are_in_the_timeline() -> None:
    website = make_website()
    poll(website, "ERR", 1)
    query = {"query_string": GROUP}
    begun = website.client.post("/mute", data={"reason": "<deploy>", "for": "1h"}, **query)
    website.clock.advance(60_000)
    assert told(website)[2:] == ["08:00:10 Muted until 2027-01-15 09:00:10 UTC: &lt;deploy&gt;"]
    mute = re.search(r"mute=([0-9a-f]+)", begun.location)
    assert mute is not None
    website.client.post("/mute", data={"end": mute[1]}, **query)
    website.clock.advance(10_000)
    assert told(website)[2:] == ["08:00:10 Muted: &lt;deploy&gt;", "08:01:10 The mute ended: &lt;deploy&gt;"]


def test_a_storm_of_hours_does_not_fill_the_page() -> None:
    website = make_website()
    website.log.lead()
    for turn in range(400):
        poll(website, "WARN", 1, rebalances=turn, members=2 + turn % 3)
        if turn % 8 == 0:
            website.clock.advance(290_000)
    health = GroupHealth("orders-svc", "Stable", 2, 1, 400, 0, None)
    watch_data_of_groups.keep(
        website.log, WatchedCluster("prod-eu", 1, 0.1, website.log.log_time_ms(), 300_000, (health,))
    )
    lines = told(website)
    assert len(lines) <= 26
    assert "Opened" in lines[1]


def test_the_second_opinion_does_not_end_an_incident() -> None:
    website = make_website()
    for _ in range(3):
        poll(website, "ERR", 1, source=Source.WEBHOOK)
        poll(website, "OK", source=Source.KAFKA)
    assert told(website) == ["The open incident", "08:00:00 Opened: ERR, lag 100, 1 bad partition"]
