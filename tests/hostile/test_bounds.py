"""Each text and list that others choose is taken up to its bound and refused beyond it, on every way into the log."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from karrot.burrow.payload import BOUNDS, Bound, to_wire
from karrot.event import LagEvent, PartitionLag, Source
from karrot.eventlog.sqlite.store import MemoryEventLog
from karrot.intake import KEPT_BYTES, Intake
from karrot.reporters.prometheus.group_metrics import MOST_PARTITIONS
from karrot.telemetry import EVENTS_REJECTED
from support.burrow.lag_events import make_event, make_partition
from support.manual_clock import ManualClock
from support.service.karrot_service import Service
from support.waiting import wait_for

PARTITION = "$.Event.Result.partitions[...]"


def text_of(size: int) -> str:
    """Make a text of this many bytes and fewer characters."""
    return "é" * (size // 2) + "x" * (size % 2)


def with_partition(**overrides: Any) -> LagEvent:
    return make_event(partitions=(make_partition(), make_partition(**overrides)))


def small_partition(number: int) -> PartitionLag:
    return make_partition(topic="t", partition=number, current_lag=0, start=None, end=None, owner="", client_id="")


SIZED: dict[str, Callable[[int], LagEvent]] = {
    "$.Event.Cluster": lambda size: make_event(cluster=text_of(size)),
    "$.Event.Group": lambda size: make_event(consumer=text_of(size)),
    "$.Event.ID": lambda size: make_event(incident_id=text_of(size)),
    "$.Event.Extras": lambda size: make_event(extras=tuple((f"key {number}", "") for number in range(size))),
    "$.Event.Extras[key]": lambda size: make_event(extras=((text_of(size), "value"),)),
    "$.Event.Extras[...]": lambda size: make_event(extras=(("key", text_of(size)),)),
    "$.Event.Result.status": lambda size: make_event(status_text=text_of(size)),
    "$.Event.Result.partitions": lambda size: make_event(partitions=tuple(map(small_partition, range(size)))),
    f"{PARTITION}.topic": lambda size: with_partition(topic=text_of(size)),
    f"{PARTITION}.status": lambda size: with_partition(status_text=text_of(size)),
    f"{PARTITION}.owner": lambda size: with_partition(owner=text_of(size)),
    f"{PARTITION}.client_id": lambda size: with_partition(client_id=text_of(size)),
}
MOST = {bound.path: bound.most for bound in BOUNDS}
EACH = pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.path)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("bounds") / "data", workers="1", max_body="16MiB") as service:
        yield service


@pytest.fixture
def log() -> MemoryEventLog:
    return MemoryEventLog(ManualClock())


def test_every_bound_has_a_case() -> None:
    assert SIZED.keys() == MOST.keys()


@EACH
def test_a_body_at_a_bound_is_stored_and_one_beyond_it_is_refused(service: Service, bound: Bound) -> None:
    largest = to_wire(SIZED[bound.path](bound.most))
    wait_for(lambda: service.post(largest).status == 202)  # a busy machine may not store it within 2 s
    before = service.metric(EVENTS_REJECTED.name, code="invalid_field") or 0
    body = to_wire(SIZED[bound.path](bound.most + 1))
    answer = service.post(body)
    assert (answer.status, answer.json["code"], answer.json["path"]) == (400, "invalid_field", bound.path)
    assert f"{bound.most + 1} {bound.unit}" in answer.json["detail"]
    wait_for(lambda: service.metric(EVENTS_REJECTED.name, code="invalid_field") == before + 1)
    [reject] = service.get("/api/v1/rejects?limit=1").json["rejects"]
    assert reject["body"].encode()[:1000] == body[:1000]


@EACH
def test_a_verdict_of_resync_and_watch_has_the_same_bounds(log: MemoryEventLog, bound: Bound) -> None:
    intake = Intake(log, ManualClock())
    within, beyond = (SIZED[bound.path](size)._replace(source=Source.KAFKA) for size in (bound.most, bound.most + 1))
    assert intake.accept(within)
    assert intake.accept(beyond) is None
    assert log.size().events == 1
    [reject] = log.rejects()
    assert f"The field {bound.path} is wrong: it has {bound.most + 1} " in reject.detail
    assert (reject.code, reject.source, reject.body) == ("invalid_field", Source.KAFKA, to_wire(beyond)[:KEPT_BYTES])


@pytest.mark.parametrize("bound", [bound for bound in BOUNDS if PARTITION in bound.path], ids=lambda bound: bound.path)
def test_the_partition_with_the_largest_lag_has_the_bounds_of_a_partition(service: Service, bound: Bound) -> None:
    [_, partition] = SIZED[bound.path](bound.most + 1).partitions
    answer = service.post(to_wire(make_event(max_lag=partition, partitions=())))
    assert (answer.status, answer.json["path"]) == (400, bound.path)


@EACH
def test_an_event_that_an_older_karrot_stored_is_read_whatever_its_size(log: MemoryEventLog, bound: Bound) -> None:
    event = SIZED[bound.path](bound.most + 1)
    stored = log.event(log.append(event, to_wire(event)).seq)
    assert stored is not None
    assert stored.event == event


def test_sixty_names_of_8_mb_leave_no_trace_in_memory_or_on_the_page(service: Service) -> None:
    """The report of the attack: 60 such posts took a worker to 6 GB, and the page to 419 MB."""
    name = b"n" * 8_300_000
    for number in range(60):
        body = b'{"Event":{"Cluster":"c","Group":"%02d%s","Result":{"status":"OK","totallag":1}}}' % (number, name)
        assert service.post(body).status == 400
    assert len(service.get("/", {"Accept": "text/html"}).body) < 1 << 20
    assert len(service.get("/api/v1/groups").body) < 1 << 20


class Links(HTMLParser):
    """Collects the texts and the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self.found += [value for _, value in attrs if value]

    def handle_data(self, data: str) -> None:
        self.found.append(data)


def test_the_longest_names_have_a_page_and_are_whole_in_one_place_of_a_list(tmp_path: Path) -> None:
    cluster, consumer = text_of(MOST["$.Event.Cluster"]), text_of(MOST["$.Event.Group"])
    with Service(tmp_path / "data", workers="1") as service:
        for event in (make_event(cluster=cluster, consumer=consumer), make_event(status_text="ERR")):
            assert service.post(to_wire(event)).status == 202
        links = Links()
        links.feed(service.get("/", {"Accept": "text/html"}).body.decode())
        whole = (consumer, quote(consumer))
        assert sum(text.count(name) for text in links.found for name in whole) == 1
        [link] = [text for text in links.found if whole[1] in text]
        assert service.get(link, {"Accept": "text/html"}).status == 200
        assert json.dumps(service.get("/api/v1/groups").json, ensure_ascii=False).count(consumer) == 1
        query = urlencode({"cluster": cluster, "consumer": consumer})
        assert service.get(f"/api/v1/group?{query}").json["consumer"] == consumer


def test_partition_metrics_have_a_bound_in_total_and_what_is_left_out_is_counted(tmp_path: Path) -> None:
    half = tuple(map(small_partition, range(MOST_PARTITIONS // 2)))
    with Service(tmp_path / "data", workers="1", partition_metrics="true", max_body="16MiB") as service:

        def exported() -> tuple[Counter[bytes], int]:
            text = service.get("/metrics").body
            groups = Counter(re.findall(rb'\nkarrot_partition_lag{cluster="prod-eu",consumer="(.*?)"', text))
            return groups, sum(map(int, re.findall(rb"\nkarrot_series_dropped_total (\d+)", text)))

        for consumer in ("first", "second"):
            event = make_event(consumer=consumer, partitions=half, partition_count=len(half), max_lag=None)
            assert service.post(to_wire(event)).status == 202
        assert exported() == ({b"first": len(half), b"second": len(half)}, 0)
        assert service.post(to_wire(make_event(consumer="small", max_lag=None))).status == 202
        assert exported() == ({b"first": len(half), b"small": 1}, 1)
