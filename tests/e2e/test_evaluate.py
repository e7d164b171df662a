"""Verdicts and alerts of ``karrot pipeline offsets`` on a real broker, up to Karrot's metrics.

The driver is killed and the broker restarted in between.
"""

import json
import sys
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pyarrow.dataset as pads
import pytest
from confluent_kafka import Consumer, TopicPartition

from e2e.chain import SPARK
from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.kafka import Kafka
from e2e.stack.processes import Server, Servers
from e2e.stack.stack import Stack
from e2e.traffic import Traffic
from e2e.waiting import wait_for
from karrot.event_json_line import EventLine, decode
from support.pipeline.table_files import files_of
from support.service.free_ports import free_port
from support.service.karrot_service import Service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

CLUSTER, TOPIC, GROUP, VERDICTS = "evaluated", "evaluated-topic", "evaluated-group", "evaluated-verdicts"
_PATIENCE_S = 240
_START_MS = 1_746_950_400_000


def _start(servers: Servers, kafka: Kafka, service: Service, tables: Path, port: int, *more: str) -> Server:
    jars = ",".join(map(str, Downloads(default_cache()).spark_kafka()))
    command = ["offsets", "--judge=burrow,stale", "--stale-for=3s"]
    command += [f"--tables={tables}", f"--cluster={CLUSTER}", f"--bootstrap-servers={kafka.bootstrap}"]
    command += [f"--to=karrot=http://127.0.0.1:{service.port},kafka={VERDICTS},tables"]
    command += ["--every=1s", "--ends-every=1s", *more]
    command += [f"--metrics-port={port}"]
    # Ten commits in ten seconds at least, so a stop shows soon.
    command += ["--rules=min_distance=1s", f"--conf=spark.jars={jars}", *SPARK]
    return servers.start("offsets", [sys.executable, "-m", "karrot", "pipeline", *command])


def _gauge(port: int, name: str) -> float:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        values = [line.split()[1] for line in answer.read().decode().splitlines() if line.startswith(f"{name}{{")]
    return float(values[0]) if values else 0


def _alerts(logs: Path) -> list[tuple[str, str]]:
    """The states and ids of the alerts on the group that the jobs have printed. A killed job can repeat a line."""
    lines = [line for each in logs.glob("offsets*") for line in each.read_text().splitlines()]
    told = [json.loads(line) for line in lines if line.startswith('{"state"')]
    return list(dict.fromkeys((each["state"], each["id"]) for each in told if each["group"] == GROUP))


def _published(kafka: Kafka, topic: str = VERDICTS) -> list[EventLine]:
    """The verdicts on the topic."""
    consumer = Consumer(kafka.client | {"group.id": "reads-verdicts", "enable.auto.commit": False})
    place = TopicPartition(topic, 0, 0)
    with closing(consumer):
        consumer.assign([place])
        _, end = consumer.get_watermark_offsets(place, timeout=10)
        lines = list[EventLine]()
        while consumer.position([place])[0].offset < end:
            for message in consumer.consume(500, timeout=10):
                assert message.error() is None
                lines.append(decode(message.value() or b""))
    return lines


def test_a_group_goes_through_ok_err_and_close_with_one_incident_also_if_driver_and_broker_are_killed(  # noqa: PLR0915 (one story)
    newest_kafka: Stack, tmp_path: Path
) -> None:
    kafka = newest_kafka.kafka
    kafka.create_topic(TOPIC, 1)
    kafka.create_topic(VERDICTS, 1)

    with (
        Service(tmp_path / "data") as service,
        Servers(tmp_path / "logs") as servers,
        Traffic(kafka, TOPIC, GROUP, writes=5, reads=100) as traffic,
    ):

        def status() -> float | None:
            assert job.exit_code is None, job.tail()
            return service.metric("karrot_consumer_status_code", cluster=CLUSTER, consumer=GROUP)

        def incident() -> float | None:
            return service.metric("karrot_consumer_incident_start_timestamp_seconds", cluster=CLUSTER, consumer=GROUP)

        def accepted() -> float:
            return service.metric("karrot_events_accepted_total", source="kafka") or 0

        def incident_id() -> str | None:
            answer = service.get(f"/api/v1/group?cluster={CLUSTER}&consumer={GROUP}&limit=1")
            newest: str | None = answer.json["events"][0]["incident_id"]
            return newest

        port = free_port()
        job = _start(servers, kafka, service, tmp_path / "tables", port)
        wait_for(lambda: status() == 1, _PATIENCE_S)
        assert incident() is None
        # The broker serves other tests as well, so there can be more groups than this one.
        wait_for(lambda: _gauge(port, "karrot_evaluate_groups") >= 1, _PATIENCE_S)

        traffic.reads = None
        wait_for(lambda: status() == 3, _PATIENCE_S)
        since, named = incident(), incident_id()
        assert since
        assert named
        wait_for(lambda: bool(_alerts(tmp_path / "logs")), _PATIENCE_S)

        job.kill()
        job = _start(servers, kafka, service, tmp_path / "tables", port)
        before = accepted()
        wait_for(lambda: accepted() > before, _PATIENCE_S)
        assert (status(), incident(), incident_id()) == (3, since, named)

        # Without Kafka, no batch ends. If Kafka is back before Spark gives up, the job goes on.
        broker = kafka.brokers[0]
        kafka.broker(broker).kill()
        wait_for(lambda: "Kafka did not answer" in job.log.read_text(), _PATIENCE_S)
        kafka.start_broker(broker)
        kafka.wait()
        before = accepted()
        wait_for(lambda: job.exit_code is not None or accepted() > before, _PATIENCE_S)
        if job.exit_code is not None:
            assert job.exit_code == 1, job.tail()
            job = _start(servers, kafka, service, tmp_path / "tables", port)
            wait_for(lambda: accepted() > before, _PATIENCE_S)
        assert (status(), incident(), incident_id()) == (3, since, named)

        traffic.reads = 200
        wait_for(lambda: status() == 1, _PATIENCE_S)
        assert (incident(), incident_id()) == (None, named)
        wait_for(lambda: len(_alerts(tmp_path / "logs")) == 2, _PATIENCE_S)
        job.stop(60)
        assert job.exit_code == 0, job.tail()

    [(fired, alert), cleared] = _alerts(tmp_path / "logs")
    assert (fired, cleared) == ("stale", ("cleared", alert))
    published = _published(kafka)
    statuses = [each.status for each in published if each.consumer == GROUP]
    assert {"OK", "ERR"} <= {*statuses}
    assert statuses[-1] == "OK"
    stored = pads.dataset(files_of(tmp_path / "tables", "events")).to_table(["event_id"]).column(0).to_pylist()
    # The end can come between two receivers. Then the tables lack the last batch, which the next start would send.
    last_ms = max(each.received_at_ms for each in published)
    missing = {each.event_id for each in published if each.received_at_ms == last_ms} - {*stored}
    assert len(stored) == len({*stored}), "the tables have each verdict once"
    # Of the verdicts that waited for the topic, those with a newer one of the same status were dropped.
    assert {each.event_id for each in published} - missing <= {*stored}


def test_verdicts_continue_when_the_broker_that_leads_the_commits_of_a_group_is_killed(
    stack: Stack, tmp_path: Path
) -> None:
    kafka = stack.kafka
    for topic in (TOPIC, VERDICTS):
        kafka.create_topic(topic, 1)
    with (
        Service(tmp_path / "data") as service,
        Servers(tmp_path / "logs") as servers,
        Traffic(kafka, TOPIC, GROUP, writes=5, reads=100) as traffic,
    ):

        def status() -> float | None:
            assert job.exit_code is None, job.tail()
            return service.metric("karrot_consumer_status_code", cluster=CLUSTER, consumer=GROUP)

        job = _start(servers, kafka, service, tmp_path / "tables", free_port())
        wait_for(lambda: status() == 1, _PATIENCE_S)
        admin = kafka.admin()  # without a reference to it, its answer never comes
        leader = admin.describe_consumer_groups([GROUP])[GROUP].result(30).coordinator.id
        kafka.broker(leader).kill()
        try:
            traffic.reads = None
            wait_for(lambda: status() == 3, _PATIENCE_S)
            traffic.reads = 200
            wait_for(lambda: status() == 1, _PATIENCE_S)
        finally:
            kafka.start_broker(leader)
            kafka.wait()
        job.stop(60)
        assert job.exit_code == 0, job.tail()


def test_once_ends_with_1_if_karrot_is_away_and_the_next_start_sends_what_waited(
    newest_kafka: Stack, tmp_path: Path
) -> None:
    kafka, topic, group = newest_kafka.kafka, "once-topic", "once-group"
    for each in (topic, "once-verdicts"):
        kafka.create_topic(each, 1)
    service = Service(tmp_path / "data")
    more = ("--once", f"--to=karrot=http://127.0.0.1:{service.port},kafka=once-verdicts,tables")
    with Servers(tmp_path / "logs") as servers, Traffic(kafka, topic, group, writes=5, reads=100):
        job = _start(servers, kafka, service, tmp_path / "tables", free_port(), *more)
        wait_for(lambda: job.exit_code is not None, _PATIENCE_S)
        assert job.exit_code == 1, job.tail()
        waited = {each.event_id for each in _published(kafka, "once-verdicts")}
        assert "karrot: waiting for the next batch or start: " in job.tail()
        stored = pads.dataset(files_of(tmp_path / "tables", "events")).to_table(["event_id"]).column(0).to_pylist()
        assert waited
        assert {*stored} == waited
        with service:
            job = _start(servers, kafka, service, tmp_path / "tables", free_port(), *more)
            wait_for(lambda: job.exit_code is not None, _PATIENCE_S)
            assert job.exit_code == 0, job.tail()
            assert service.metric("karrot_consumer_status_code", cluster=CLUSTER, consumer=group) == 1
            assert (service.metric("karrot_events_accepted_total", source="kafka") or 0) > len(waited)


def test_while_karrot_is_away_the_other_receivers_get_their_verdicts_and_karrots_verdicts_wait(
    newest_kafka: Stack, tmp_path: Path
) -> None:
    kafka, topic, group, verdicts = newest_kafka.kafka, "away-topic", "away-group", "away-verdicts"
    for each in (topic, verdicts):
        kafka.create_topic(each, 1)
    port = free_port()
    with (
        Service(tmp_path / "data") as service,
        Servers(tmp_path / "logs") as servers,
        Traffic(kafka, topic, group, writes=5, reads=100) as traffic,
    ):

        def known(name: str) -> float | None:
            assert job.exit_code is None, job.tail()
            return service.metric(f"karrot_consumer_{name}", cluster=CLUSTER, consumer=group)

        def statuses() -> list[str]:
            return [each.status for each in _published(kafka, verdicts) if each.consumer == group]

        to = f"--to=karrot=http://127.0.0.1:{service.port},kafka={verdicts}"
        job = _start(servers, kafka, service, tmp_path / "tables", port, to)
        wait_for(lambda: known("status_code") == 1, _PATIENCE_S)
        service.kill()
        traffic.reads = None
        wait_for(lambda: "ERR" in statuses(), _PATIENCE_S)
        traffic.reads = 200
        wait_for(lambda: statuses()[-1] == "OK", _PATIENCE_S)
        assert _gauge(port, "karrot_evaluate_waiting_verdicts") > 1
        assert "karrot: waiting for the next batch or start: " in job.tail()
        service.start()
        wait_for(lambda: _gauge(port, "karrot_evaluate_waiting_verdicts") == 0, _PATIENCE_S)
        assert known("status_code") == 1
        assert known("incidents_total") == 1, "the incident opened and closed while Karrot was away"
        job.stop(60)
        assert job.exit_code == 0, job.tail()
