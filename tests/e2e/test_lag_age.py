"""The lag in seconds agrees with the timestamps of the messages on a real broker."""

import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from e2e.services import watching
from e2e.stack.stack import Stack
from e2e.test_watch import commit
from e2e.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]

GROUP, TOPIC = "paused-group", "paused-topic"


def test_the_age_of_a_paused_group_stays_true_after_its_producer_falls_idle(one_broker: Stack, tmp_path: Path) -> None:
    kafka = one_broker.kafka
    kafka.create_topic(TOPIC, 1)
    producer = Producer(kafka.client)
    written: list[float] = []
    polls: set[float] = set()

    with watching(kafka, tmp_path / "data", only=GROUP) as service:

        def group() -> dict[str, Any]:
            found = service.get(f"/api/v1/groups?q={GROUP}").json["groups"]
            return next(iter(found), {})

        def polled_at(of: dict[str, Any]) -> float:
            return datetime.fromisoformat(of["observed_at"]).timestamp()

        def write(count: int, every: float) -> None:
            for _ in range(count):
                written.append(time.time())
                producer.produce(TOPIC, b"x", partition=0, timestamp=int(written[-1] * 1000))
                assert producer.flush(30) == 0
                time.sleep(every)
                if found := group():
                    polls.add(polled_at(found))

        write(10, 0)
        commit(kafka, GROUP, TOPIC, [10])
        wait_for(lambda: group().get("lag") == 0)
        write(100, 0.1)  # busy for ten seconds, while the group reads nothing
        commit(kafka, GROUP, TOPIC, [60])

        def age(of: dict[str, Any]) -> float:
            return polled_at(of) - written[60]

        # The polls are late on a busy machine. The producer is idle for at least five seconds then.
        wait_for(lambda: (now := group()).get("lag") == 50 and age(now) > 10)
        found = group()
        truth = age(found)
        assert (found["lag_seconds_kind"], found["lag_seconds_topic"], found["lag_seconds_partition"]) == (
            "exact",
            TOPIC,
            0,
        )
        # The log ends are known at the polls. A poll is late on a busy machine.
        longest_s = max(after - before for before, after in pairwise(sorted(polls)))
        assert found["lag_seconds"] == pytest.approx(truth, abs=2 * longest_s)
        assert service.metric("karrot_consumer_lag_seconds_kind", cluster="e2e", consumer=GROUP) == 0

        commit(kafka, GROUP, TOPIC, [110])
        wait_for(lambda: group().get("lag_seconds") == 0)
