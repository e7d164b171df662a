"""A page is made once for all its readers, and making it keeps no scrape and no event waiting."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from karrot.event import GroupKey
from karrot.eventlog.base import StoredSummary
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.web.pages.page_cache import PageCache
from support.burrow.lag_events import make_event
from support.burrow.recorded_bodies import recorded_body
from support.manual_clock import ManualClock, SlowClock
from support.waiting import wait_for
from support.web.website import make_website


class Maker:
    """A function that returns "page 1", then "page 2"."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> str:
        self.made += 1
        return f"page {self.made}"


def test_a_page_is_used_for_a_time_in_proportion_to_its_cost_and_says_its_age() -> None:
    clock, make = SlowClock(), Maker()
    cache = PageCache(clock)
    assert cache.get("/", make) == ("page 1", 0)
    assert cache.get("/?page=2", make) == ("page 2", 0)
    clock.advance(3000)
    page, age_ms = cache.get("/", make)
    assert page == "page 1"
    assert 3000 < age_ms < 4000
    clock.advance(2000)
    assert cache.get("/", make) == ("page 3", 0)


def test_what_pages_share_is_used_for_a_shorter_time() -> None:
    clock, make = SlowClock(), Maker()
    cache = PageCache(clock)
    assert [cache.get("groups", make, longest_ms=1000)[0] for _ in range(2)] == ["page 1", "page 1"]
    clock.advance(1000)
    assert cache.get("groups", make, longest_ms=1000)[0] == "page 2"


def test_a_page_without_cost_is_always_current() -> None:
    cache, make = PageCache(ManualClock()), Maker()
    assert [cache.get("/", make)[0], cache.get("/", make)[0]] == ["page 1", "page 2"]


def test_a_failure_is_not_kept() -> None:
    cache = PageCache(SlowClock())

    def fail() -> str:
        raise ValueError("no disk")

    with pytest.raises(ValueError, match="no disk"):
        cache.get("/", fail)
    assert cache.get("/", Maker())[0] == "page 1"


def test_the_number_of_pages_is_bounded_and_the_least_used_goes() -> None:
    clock, make = ManualClock(), Maker()
    cache = PageCache(clock)

    def costly() -> str:
        clock.advance(10)
        return make()

    assert [cache.get(key, costly)[0] for key in ("often", "once")] == ["page 1", "page 2"]
    for number in range(63):
        cache.get("often", costly)
        cache.get(number, lambda: "without cost")
    assert [cache.get(key, costly)[0] for key in ("often", "once")] == ["page 1", "page 3"]


def test_one_reader_makes_a_page_and_the_others_wait_but_not_for_another_page() -> None:
    cache, make, begun, go_on = PageCache(SlowClock()), Maker(), Event(), Event()

    def make_slowly() -> str:
        begun.set()
        go_on.wait(60)
        return make()

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(cache.get, "/", make_slowly) for _ in range(3)]
        begun.wait(60)
        assert cache.get("/rejects", lambda: "at once")[0] == "at once"
        go_on.set()
        assert [reader.result()[0] for reader in readers] == ["page 1"] * 3
    assert make.made == 1


def test_a_page_of_the_site_is_made_once_and_has_its_age() -> None:
    website = make_website(clock=SlowClock(), log=MemoryEventLog(ManualClock()))
    website.context.intake.accept(make_event(consumer="first"))
    assert website.client.get("/").headers["Age"] == "0"
    website.context.intake.accept(make_event(consumer="second"))
    website.clock.advance(2500)
    kept, other = website.client.get("/"), website.client.get("/?sort=lag")
    assert ("second" in kept.text, kept.headers["Age"]) == (False, "2")
    assert ("second" in other.text, other.headers["Age"]) == (True, "0")
    website.clock.advance(5000)
    assert "second" in website.client.get("/").text


class HeldLog(MemoryEventLog):
    """A log whose reader of trends waits until the test lets it go on."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.reading, self.go_on = Event(), Event()

    def recent(self, keys: Sequence[GroupKey], limit: int = 50) -> Sequence[Sequence[StoredSummary]]:
        self.reading.set()
        self.go_on.wait(60)
        return super().recent(keys, limit)


def test_while_a_page_is_made_scrapes_events_and_other_pages_are_answered() -> None:
    log = HeldLog()
    website = make_website(log=log)
    website.context.intake.accept(make_event())
    with ThreadPoolExecutor(1) as pool:
        page = pool.submit(website.client.application.test_client().get, "/")
        wait_for(log.reading.is_set)
        try:
            assert website.client.post("/burrow", data=recorded_body("karrot_v1.9.5_err_stop.json")).status_code == 202
            assert "orders-svc" in website.client.get("/metrics").text
            assert website.client.get("/rejects").status_code == 200
            assert not page.done()
        finally:
            log.go_on.set()
        assert page.result().status_code == 200
