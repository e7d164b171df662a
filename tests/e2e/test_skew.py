"""One topic, one group, most of the lag in one partition: everybody who can be asked says the same of it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.services import watching
from e2e.stack.kafka import Kafka
from e2e.stack.stack import Stack
from support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "skew" / "skew.py"
GROUP, TOPIC = "skewed-consumer-group", "skewed-topic"
LAG = f'karrot_consumer_lag{{consumer="{GROUP}"}}'
Lags = dict[int, int]


def example(kafka: Kafka, *arguments: str) -> str:
    """What the program prints; it checks by itself that `karrot watch` has the right lags."""
    command = [sys.executable, str(EXAMPLE), "--bootstrap-servers", kafka.bootstrap, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def lags(stack: Stack) -> Iterator[Lags]:
    """The experiment is over; the lag of each partition, as Kafka's own command has it."""
    example(stack.kafka, "--keep")
    try:
        yield {each.partition: each.lag or 0 for each in stack.kafka.positions(GROUP)}
    finally:
        admin = stack.kafka.admin()
        admin.delete_consumer_groups([GROUP])[GROUP].result(30)
        admin.delete_topics([TOPIC])[TOPIC].result(30)


def test_kafka_karrot_watch_and_prometheus_have_the_same_lags(stack: Stack, lags: Lags, tmp_path: Path) -> None:
    assert set(lags) == {0, 1, 2}
    assert 0 < sum(lags.values()) < 1000
    assert watched(stack.kafka) == lags
    prometheus = stack.prometheus
    with watching(stack.kafka, tmp_path / "data", partition_metrics="true") as service:
        with prometheus.scraping("skew", service.port):
            wait_for(lambda: prometheus.number(LAG) == sum(lags.values()), 60)
            found = prometheus.query(f'karrot_partition_lag{{consumer="{GROUP}",topic="{TOPIC}"}}')
            largest = prometheus.number(f'karrot_consumer_max_lag{{consumer="{GROUP}"}}')
        assert {int(each["metric"]["partition"]): int(each["value"][1]) for each in found} == lags
        assert largest == max(lags.values())
        api = service.get(f"/api/v1/group?cluster=e2e&consumer={GROUP}").json
    assert {each["partition"]: each["lag"] for each in api["partitions"]} == lags


def test_the_example_leaves_nothing_behind(one_broker: Stack) -> None:
    said = example(one_broker.kafka)
    assert "wrote 1000 messages, every second one to partition 1" in said
    assert said.endswith(f"deleted {TOPIC} and {GROUP}\n")
    admin = one_broker.kafka.admin()
    wait_for(lambda: TOPIC not in admin.list_topics(timeout=10).topics)
    assert GROUP not in {each.group_id for each in admin.list_consumer_groups().result(30).valid or ()}


def watched(kafka: Kafka) -> Lags:
    """What `karrot watch` prints of the group, once a verdict may fall."""
    with verdicts(kafka) as said:
        found = next(each for each in said if each["group"] == GROUP)
    assert found["totallag"] == sum(each["current_lag"] for each in found["partitions"])
    return {each["partition"]: each["current_lag"] for each in found["partitions"]}


@contextmanager
def verdicts(kafka: Kafka) -> Iterator[Iterator[dict[str, Any]]]:
    command = [sys.executable, "-m", "karrot", "watch", "--bootstrap-servers", kafka.bootstrap, "--cluster", "e2e"]
    with subprocess.Popen([*command, "--interval", "0.5", "--json"], stdout=subprocess.PIPE) as watch:
        assert watch.stdout is not None
        yield (json.loads(line)["Event"]["Result"] for line in watch.stdout)
        watch.terminate()
