import pytest

from karrot.web.pages.value_cache import ThrottledCache, TtlCache, VersionedCache
from support.manual_clock import ManualClock, SlowClock


class Maker:
    """A function that returns "page 1", then "page 2"."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> str:
        self.made += 1
        return f"page {self.made}"


def test_a_throttled_value_is_reused_for_a_time_in_proportion_to_its_cost() -> None:
    clock, make = SlowClock(), Maker()
    cache: ThrottledCache[str, str] = ThrottledCache(clock)
    assert [cache.get("/", make), cache.get("/", make), cache.get("/?page=2", make)] == ["page 1", "page 1", "page 2"]
    clock.advance(4000)
    assert cache.get("/", make) == "page 3"


def test_a_throttled_value_without_cost_is_always_made_again() -> None:
    cache, make = ThrottledCache[str, str](ManualClock()), Maker()
    assert [cache.get("/", make), cache.get("/", make)] == ["page 1", "page 2"]


def test_a_value_is_reused_for_its_time_and_no_longer() -> None:
    clock, make = ManualClock(), Maker()
    cache: TtlCache[str, str] = TtlCache(clock, size=10, ttl_ms=lambda _made, _took: 60_000)
    assert cache.get("a", make) == "page 1"
    clock.advance(59_999)
    assert cache.get("a", make) == "page 1"
    clock.advance(1)
    assert cache.get("a", make) == "page 2"


def test_a_failure_is_not_cached() -> None:
    cache: TtlCache[str, str] = TtlCache(ManualClock(), size=10, ttl_ms=lambda _made, _took: 60_000)

    def fail() -> str:
        raise ValueError("no disk")

    with pytest.raises(ValueError, match="no disk"):
        cache.get("a", fail)
    assert cache.get("a", Maker()) == "page 1"


def test_the_oldest_value_is_dropped_first() -> None:
    clock, make = ManualClock(), Maker()
    cache: TtlCache[str, str] = TtlCache(clock, size=2, ttl_ms=lambda _made, _took: 60_000)
    assert [cache.get(key, make) for key in "abcbca"] == ["page 1", "page 2", "page 3", "page 2", "page 3", "page 4"]


def test_a_new_version_is_made_from_the_earlier_value() -> None:
    cache: VersionedCache[str, tuple[int, ...]] = VersionedCache()
    assert cache.get("a", 1, lambda before: (*(before or ()), 1)) == (1,)
    assert cache.get("a", 1, lambda before: (*(before or ()), 2)) == (1,)
    assert cache.get("a", 2, lambda before: (*(before or ()), 2)) == (1, 2)
