"""The lag in seconds agrees with the timestamps of the messages on a real broker."""

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from e2e.stack.stack import Stack
from e2e.test_watch import commit
from e2e.waiting import wait_for
from support.service.karrot_service import Service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]

GROUP = "paused-group"
POLL_S = 1.0


def test_the_age_of_a_paused_group_stays_true_after_its_producer_falls_idle(one_broker: Stack, tmp_path: Path) -> None:
    kafka = one_broker.kafka
    kafka.create_topic("stamped", 1)
    producer = Producer(kafka.client)
    written: list[float] = []

    def write(count: int, every: float) -> None:
        for _ in range(count):
            written.append(time.time())
            producer.produce("stamped", b"x", partition=0, timestamp=int(written[-1] * 1000))
            assert producer.flush(10) == 0
            time.sleep(every)

    with Service(
        tmp_path / "data", watch_bootstrap=kafka.bootstrap, watch_cluster="e2e", watch_interval=f"{POLL_S:g}s"
    ) as service:

        def group() -> dict[str, Any]:
            # Only this group: other tests leave a thousand groups on the broker, and an answer has one page of them.
            found = service.get(f"/api/v1/groups?q={GROUP}").json["groups"]
            return next(iter(found), {})

        write(10, 0.01)
        commit(kafka, GROUP, "stamped", [10])
        wait_for(lambda: group().get("lag") == 0)
        write(100, 0.1)  # busy for ten seconds, while the group reads nothing
        commit(kafka, GROUP, "stamped", [60])

        def age(of: dict[str, Any]) -> float:
            return datetime.fromisoformat(of["observed_at"]).timestamp() - written[60]

        # The polls are late on a busy machine. The producer is idle for at least five seconds then.
        wait_for(lambda: (now := group()).get("lag") == 50 and age(now) > 10)
        found = group()
        truth = age(found)
        assert (found["lag_seconds_kind"], found["lag_seconds_topic"], found["lag_seconds_partition"]) == (
            "exact",
            "stamped",
            0,
        )
        assert found["lag_seconds"] == pytest.approx(truth, abs=2 * POLL_S)
        assert service.metric("karrot_consumer_lag_seconds_kind", cluster="e2e", consumer=GROUP) == 0

        commit(kafka, GROUP, "stamped", [110])
        wait_for(lambda: group().get("lag_seconds") == 0)
