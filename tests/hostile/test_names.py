"""With an endless stream of names the first groups stay, the others are counted, and memory is bounded."""

import re
from pathlib import Path

import pytest

from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.reporters.prometheus import LogCollector, Options
from karrot.reporters.prometheus.group_metrics import label_value
from support.burrow.lag_events import make_event
from support.burrow.recorded_bodies import warn_body
from support.manual_clock import ManualClock
from support.service.bulk_posts import UNAVAILABLE, post_new_groups, post_until_stored, private_memory_bytes
from support.service.karrot_service import Service
from support.waiting import wait_for

MOST = 500
GROWTH_BYTES = 48 << 20


@pytest.mark.timeout(300)  # many posts on a busy machine
@pytest.mark.parametrize("names_sent", [3_000, pytest.param(20_000, marks=pytest.mark.deep)])
def test_a_flood_of_names_is_bounded_and_the_known_groups_continue(tmp_path: Path, names_sent: int) -> None:
    with Service(tmp_path / "data", max_consumers=str(MOST)) as service:
        answers = post_until_stored(service, warn_body("known"))
        before = private_memory_bytes(service)
        answers += post_new_groups(service, range(names_sent))
        answers += post_until_stored(service, warn_body("known").replace(b"11020", b"77"))
        assert answers.keys() <= {(202, ""), *UNAVAILABLE}
        assert answers[202, ""] > MOST  # otherwise there was no flood
        assert service.metric("karrot_consumer_lag", consumer="known") == 77
        assert service.metric("karrot_consumers") == MOST
        assert service.get("/metrics").body.count(b"\nkarrot_consumer_lag{") == MOST
        assert private_memory_bytes(service) - before < GROWTH_BYTES
        names = len(service.stored_consumers())
        assert 0 <= names + 1 - answers[202, ""] <= answers[503, "unconfirmed"]
        wait_for(lambda: service.metric("karrot_series_dropped_total") == names - MOST)
        refused = {code: count for (status, code), count in answers.items() if status == 503}
        wait_for(
            lambda: {code: service.metric("karrot_events_rejected_total", code=code) for code in refused} == refused
        )
        assert service.metric("karrot_log_events") == service.stored_consumers().total()


@pytest.mark.timeout(20)
def test_a_long_name_does_not_slow_a_scrape_with_an_exclude_expression() -> None:
    log = MemoryEventLog(ManualClock())
    for consumer in ("orders", "orders-canary", "a" * 1_000_000):
        log.append(make_event(consumer=consumer), b"")
    collector = LogCollector(log, Options(exclude=re.compile(r".*-canary$")), log.count)
    exported = {sample.labels["consumer"] for sample in next(iter(collector.collect())).samples}
    assert exported == {"orders", label_value("a" * 1_000_000)}
