"""The kafka reporter in a real service that is killed at any moment writes to librdkafka's own mock brokers."""

import os
import signal
from pathlib import Path

from karrot.event_json_line import decode
from support.kafka.mock_brokers import mock_brokers, read_topic
from support.service.karrot_service import Service
from support.service.posting_threads import PostingThreads
from support.waiting import wait_for

TOPIC = "karrot.events"


def test_acknowledged_events_are_on_the_topic_however_often_the_service_is_killed(tmp_path: Path) -> None:
    with mock_brokers() as bootstrap:
        service = Service(tmp_path / "data", reporters="prometheus,kafka", kafka_bootstrap=bootstrap)

        def handed_on() -> float:
            return service.metric("karrot_reporter_events_total", reporter="kafka") or 0

        with service, PostingThreads(service) as load:
            wait_for(lambda: handed_on() > 50)
            service.kill()
        with service:
            wait_for(lambda: len(service.workers()) == 2)
            os.kill(
                service.workers()[0], signal.SIGKILL
            )  # one of the two workers leads; if it was this one, the other leads now
            wait_for(lambda: service.metric("karrot_reporter_backlog_events", reporter="kafka") == 0)
            shown = service.get("/reporters/kafka", {"Accept": "text/html"}).body.decode()
            assert service.stop() == 0
        found = read_topic(bootstrap, TOPIC)
    lines = [decode(value) for _, _, value in found]
    assert {line.seq for line in lines} == set(range(1, max(line.seq for line in lines) + 1))
    assert set(load.acknowledged) <= {line.consumer for line in lines}
    assert len({(partition, key) for partition, key, _ in found}) == len({line.consumer for line in lines})
    assert " up to offset " in shown
