"""Names without end: the groups that were there first stay, the rest is counted, and memory knows a bound."""

import re
from pathlib import Path

import pytest

from karrot.eventlog.memory import MemoryEventLog
from karrot.reporters.prometheus import LogCollector, Options
from karrot.reporters.prometheus.labels import label_value
from support.bodies import make_event
from support.clocks import ManualClock
from support.flooding import flood, resident
from support.load import named
from support.processes import Service
from support.waiting import wait_for

NAMES = 20_000
MOST = 1_000
GROWTH_BYTES = 48 << 20


def test_a_flood_of_names_is_bounded_and_the_known_groups_go_on(tmp_path: Path) -> None:
    with Service(tmp_path / "data", max_consumers=str(MOST)) as service:
        assert service.post(named("known")).status == 202
        before = resident(service)
        assert flood(service, range(NAMES)) == {202: NAMES}
        assert service.post(named("known").replace(b"11020", b"77")).status == 202
        assert service.metric("karrot_consumer_lag", consumer="known") == 77
        assert service.metric("karrot_consumers") == MOST
        assert service.get("/metrics").body.count(b"\nkarrot_consumer_lag{") == MOST
        assert resident(service) - before < GROWTH_BYTES
        dropped = NAMES + 1 - MOST
        wait_for(lambda: service.metric("karrot_series_dropped_total") == dropped)
        assert service.metric("karrot_log_events") == NAMES + 2


@pytest.mark.timeout(20)
def test_no_length_of_a_name_holds_a_scrape_up_in_an_excluding_expression() -> None:
    log = MemoryEventLog(ManualClock())
    for consumer in ("orders", "orders-canary", "a" * 1_000_000):
        log.append(make_event(consumer=consumer), b"")
    collector = LogCollector(log, Options(exclude=re.compile(r".*-canary$")), log.count)
    exported = {sample.labels["consumer"] for sample in next(iter(collector.collect())).samples}
    assert exported == {"orders", label_value("a" * 1_000_000)}
