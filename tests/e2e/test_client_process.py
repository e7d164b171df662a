"""A broker that restarts during polls ends neither `karrot serve` nor `karrot watch`."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client.parser import text_string_to_metric_families

from e2e.stack.downloads import Downloads, default_cache
from e2e.stack.kafka import Kafka
from e2e.stack.processes import Servers
from e2e.stack.stack import Parts
from e2e.waiting import wait_for
from support.burrow.recorded_bodies import warn_body
from support.deep_cases import deep_unless
from support.service.free_ports import free_ports
from support.service.karrot_service import Service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

GROUPS = 300
LAST_POLL = "karrot_watch_last_poll_timestamp_seconds"
FAILURES = "karrot_watch_failures_total"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Kafka]:
    """Start a broker that only this test uses, with groups that have committed offsets."""
    with Servers(tmp_path / "servers") as servers:
        servers.directory.mkdir()
        version = Parts().kafka_version
        kafka = Kafka(servers, Downloads(default_cache()).jars(version).kafka, version, free_ports(2))
        kafka.start()
        kafka.wait()
        kafka.create_topic("orders", 4)
        admin = AdminClient(kafka.client)
        places = [ClientTopicPartition("orders", number, 0) for number in range(4)]
        for number in range(GROUPS):
            group = f"group-{number}"
            asked = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])
            asked[group].result(60)
        yield kafka


@contextmanager
def posting(service: Service) -> Iterator[list[int]]:
    """Post verdicts one after the other, and yield the list of the answers' statuses."""
    statuses: list[int] = []
    stop = threading.Event()

    def post() -> None:
        while not stop.wait(0.02):
            try:
                statuses.append(service.post(warn_body("billing")).status)
            except OSError:
                statuses.append(0)

    thread = threading.Thread(target=post)
    thread.start()
    try:
        yield statuses
    finally:
        stop.set()
        thread.join()


def samples(service: Service, name: str) -> dict[str, float]:
    """The samples of a metric, by their reason if they have one."""
    text = service.get("/metrics").body.decode()
    return {
        sample.labels.get("reason", ""): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


@pytest.mark.parametrize("restarts", deep_unless([3], [3, 20]))
def test_a_broker_that_restarts_during_polls_ends_no_process_of_karrot(
    broker: Kafka, tmp_path: Path, restarts: int, record_property: Callable[[str, object], None]
) -> None:
    command = ["watch", "--bootstrap-servers", broker.bootstrap, "--cluster", "e2e", "--every", "500ms"]
    said = tmp_path / "said"
    service = Service(tmp_path / "data", watch_bootstrap=broker.bootstrap, watch_cluster="e2e", watch_interval="1s")
    with said.open("w") as file, service, posting(service) as statuses:
        watch = subprocess.Popen([sys.executable, "-m", "karrot", *command], stdout=file)
        try:
            workers = service.workers()
            for number in range(restarts):
                seen = samples(service, LAST_POLL).get("", 0.0)
                wait_for(lambda seen=seen: samples(service, LAST_POLL).get("", 0.0) > seen, 120)  # type: ignore[misc]
                server = broker.broker(1)
                server.kill() if number % 2 else server.stop()
                broker.start_broker(1)
                broker.wait()
            seen, length = samples(service, LAST_POLL)[""], said.stat().st_size
            wait_for(lambda: samples(service, LAST_POLL)[""] > seen, 120)
            wait_for(lambda: said.stat().st_size > length, 120)
            assert service.workers() == workers
            assert watch.poll() is None
            record_property(
                "posts, children that died", (len(statuses), samples(service, FAILURES).get("client_died", 0))
            )
        finally:
            watch.send_signal(signal.SIGTERM)
            assert watch.wait(60) == 0
    assert set(statuses) == {202}
