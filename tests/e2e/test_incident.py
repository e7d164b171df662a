"""The whole chain shows a consumer that keeps up, falls behind, stops and catches up."""

import time
from itertools import groupby
from pathlib import Path

import pytest

from e2e.figures import Figures
from e2e.services import watching
from e2e.stack.stack import Stack
from e2e.traffic import Traffic
from e2e.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.real_server, pytest.mark.timeout(400)]

OK, WARN, ERR = 1, 2, 3


def settled(samples: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the time at which each value was first seen after a different one."""
    return [each for number, each in enumerate(samples) if number == 0 or each[1] != samples[number - 1][1]]


def test_one_incident_with_the_right_times_and_states(
    one_broker: Stack, own_name: str, tmp_path: Path, figures: Figures
) -> None:
    kafka, prometheus = one_broker.kafka, one_broker.prometheus
    topic, group = own_name, f"group-of-{own_name}"
    of_group = f'{{consumer="{group}"}}'
    status_code = f"karrot_consumer_status_code{of_group}"
    start = f"karrot_consumer_incident_start_timestamp_seconds{of_group}"

    def await_status(status: int) -> None:
        wait_for(lambda: prometheus.number(status_code) == status)

    kafka.create_topic(topic, 1)
    with (
        watching(kafka, tmp_path / "data", only=group) as service,
        prometheus.scraping(own_name, service.port),
        Traffic(kafka, topic, group, writes=20, reads=1000) as traffic,
    ):
        await_status(OK)
        assert prometheus.number(start) is None

        slow_at = time.time()
        traffic.reads = 1
        await_status(WARN)
        warned_at = time.time()

        traffic.reads = None
        wait_for(lambda: not traffic.is_member)
        stopped_at = time.time()
        wait_for(lambda: service.metric("karrot_consumer_status_code", consumer=group) == ERR)
        figures.add("from a consumer's stop to ERR on /metrics, polls of 1 s", time.time() - stopped_at)
        await_status(ERR)
        assert prometheus.number(f'karrot_consumer_group_state{{consumer="{group}",state="Empty"}}') == 1
        assert prometheus.number(f'karrot_consumer_bad_partitions{{consumer="{group}",status="STOP"}}') == 1

        traffic.reads = 100_000
        caught_up_at = time.time()
        await_status(OK)
        wait_for(lambda: prometheus.number(start) is None)
        events = service.get(f"/api/v1/group?cluster=e2e&consumer={group}").json["events"]
        assert prometheus.number(f"karrot_consumer_incidents_total{of_group}") == 1
        states = settled(prometheus.samples(status_code, "10m"))
        began = {value for _, value in prometheus.samples(start, "10m")}

    (_, first), (first_warn, second), (first_err, third), *_, (first_ok, last) = states
    assert (first, second, third, last) == (OK, WARN, ERR, OK)
    # On a slow machine the consumer needs more than one poll to catch up; in between there is lag without a stop.
    assert {status for _, status in states[3:-1]} <= {WARN}
    [began_at] = began
    assert slow_at < began_at < first_warn < warned_at + 1
    assert stopped_at < first_err < caught_up_at < first_ok
    told = [(each["kind"], each["status"], each["incident_id"]) for each in reversed(events)]
    ids = {incident_id for _, _, incident_id in told if incident_id}
    assert len(ids) == 1
    of_incident = [(kind, status) for kind, status, incident_id in told if incident_id]
    assert of_incident[-1] == ("close", "OK")
    assert {kind for kind, _ in of_incident[:-1]} == {"incident"}
    assert [status for status, _ in groupby(status for _, status in of_incident[:-1])][:2] == ["WARN", "ERR"]
