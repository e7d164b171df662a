"""A sender, Karrot or a broker dies: no acknowledged event is lost, and metrics and readiness show which one died."""

import time
from pathlib import Path

import pytest

from e2e.sender import acknowledged, sending
from e2e.services import CLUSTER, watching
from e2e.stack.stack import Stack
from e2e.traffic import Traffic
from e2e.waiting import wait_for
from support.service.karrot_service import Service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

SILENCE = 'time() - karrot_last_event_timestamp_seconds{cluster="prod-eu"}'
GROUP, TOPIC = "outage-svc", "outage"
IN_A_HURRY = """
from karrot.cli import main
from karrot import burrow_cut_off
burrow_cut_off._STEADY_MS = 20_000
main()
"""
"""Karrot, which waits only seconds instead of minutes before Burrow counts as cut off."""


class HurriedService(Service):
    program = ("-c", IN_A_HURRY)


def test_a_killed_sender_shows_only_in_the_dead_man_metric(one_broker: Stack, tmp_path: Path) -> None:
    prometheus = one_broker.prometheus

    def silence() -> float:
        return prometheus.number(SILENCE) or 0.0

    with Service(tmp_path / "data") as service, prometheus.scraping("sender", service.port):
        with sending(service.port, tmp_path / "first") as sender:
            wait_for(lambda: len(acknowledged(tmp_path / "first")) > 50)
            wait_for(lambda: 0 < silence() < 3)
            sender.kill()
            wait_for(lambda: silence() > 5)
        assert prometheus.number(f'up{{job="sender",instance="127.0.0.1:{service.port}"}}') == 1
        assert prometheus.number("karrot_log_writable") == 1
        assert service.get("/readyz").status == 200
        with sending(service.port, tmp_path / "second"):
            wait_for(lambda: 0 < silence() < 3)
    names = acknowledged(tmp_path / "first") | acknowledged(tmp_path / "second")
    assert names <= service.stored_consumers().keys()


def test_a_killed_karrot_keeps_everything_it_acknowledged(one_broker: Stack, tmp_path: Path) -> None:
    prometheus, file = one_broker.prometheus, tmp_path / "acknowledged"
    with Service(tmp_path / "data") as service, prometheus.scraping("killed", service.port):
        up = f'up{{job="killed",instance="127.0.0.1:{service.port}"}}'
        with sending(service.port, file):
            wait_for(lambda: len(acknowledged(file)) > 50)
            service.kill()
            wait_for(lambda: prometheus.number(up) == 0)
            with pytest.raises(ConnectionRefusedError):
                service.get("/readyz")
            before = len(acknowledged(file))
            service.start()
            wait_for(lambda: prometheus.number(up) == 1)
            wait_for(lambda: len(acknowledged(file)) > before + 50)
        heard = service.metric("karrot_last_event_timestamp_seconds", cluster="prod-eu")
        service.kill()
        service.start()
        assert service.metric("karrot_last_event_timestamp_seconds", cluster="prod-eu") == heard
    stored = service.stored_consumers()
    assert acknowledged(file) <= stored.keys()
    assert set(stored.values()) == {1}


def test_a_burrow_without_kafka_goes_on_to_say_ok_and_karrot_finds_that_it_is_cut_off(
    burrow_bin: str, one_broker: Stack, tmp_path: Path
) -> None:
    kafka, group = one_broker.kafka, "cut-off-svc"
    kafka.create_topic("cut-off", 1)
    burrow = one_broker.burrow(burrow_bin, name="burrow-cut-off", cluster=CLUSTER)
    with HurriedService(
        tmp_path / "data", burrow_url=burrow.url, resync_interval="10s", burrow_cut_off_after="20s"
    ) as service:

        def read_s() -> float:
            return service.metric("karrot_burrow_last_commit_timestamp_seconds", cluster=CLUSTER) or 0

        def is_cut_off() -> bool:
            return service.metric("karrot_burrow_cut_off", cluster=CLUSTER) == 1

        def of_group(metric: str) -> float:
            return service.metric(f"karrot_consumer_{metric}", consumer=group) or 0

        with Traffic(kafka, "cut-off", group, writes=5, reads=10) as traffic:
            wait_for(lambda: of_group("status_code") > 0 and read_s() > 0)
            before = read_s()
            wait_for(lambda: read_s() > before + 30)
            assert not is_cut_off()
            traffic.writes = 0
            wait_for(lambda: of_group("lag") == 0 and of_group("status_code") == 1)
        stopped = time.time()
        kafka.broker(1).kill()
        wait_for(is_cut_off)
        wait_for(lambda: of_group("last_event_timestamp_seconds") > stopped + 30)
        assert (of_group("lag"), of_group("status_code")) == (0, 1)
        assert service.metric("karrot_burrow_self_lag", cluster=CLUSTER) == 0
        assert before < read_s() <= stopped
        kafka.start_broker(1)
        kafka.wait()
        with Traffic(kafka, "cut-off", group, writes=5, reads=10):
            wait_for(lambda: read_s() > stopped and not is_cut_off())
    burrow.server.stop()


def test_a_dead_broker_loses_no_message_and_no_group(stack: Stack, tmp_path: Path) -> None:
    kafka = stack.kafka
    kafka.create_topic(TOPIC, 1)
    with (
        watching(kafka, tmp_path / "data", only=GROUP) as service,
        Traffic(kafka, TOPIC, GROUP, writes=20, reads=5) as traffic,
    ):

        def coordinator() -> int:
            return int(service.metric("karrot_consumer_coordinator_id", consumer=GROUP) or 0)

        wait_for(lambda: (service.metric("karrot_consumer_lag", consumer=GROUP) or 0) > 0)
        killed = coordinator()
        kafka.broker(killed).kill()
        wait_for(lambda: coordinator() not in (0, killed), 90)
        assert service.get("/readyz").status == 200
        kafka.start_broker(killed)
        kafka.wait()
        polled = service.metric("karrot_watch_last_poll_timestamp_seconds", cluster=CLUSTER) or 0
        wait_for(lambda: (service.metric("karrot_watch_last_poll_timestamp_seconds", cluster=CLUSTER) or 0) > polled)
        wait_for(lambda: service.get("/readyz").json["components"]["watch"]["state"] == "ok")
        traffic.end()
        [position] = kafka.positions(GROUP)
        assert position.log_end is not None
        assert position.log_end >= traffic.acknowledged > 0
        wait_for(lambda: service.metric("karrot_consumer_lag", consumer=GROUP) == position.lag)
