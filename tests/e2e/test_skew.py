"""With most of a group's lag in one partition, all sources report the same lags."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.services import CLUSTER, watching
from e2e.skew import GROUP, TOPIC, Lags, experiment, karrots_lags, remove
from e2e.stack.kafka import Kafka
from e2e.stack.stack import Stack
from e2e.standin import standing_in
from e2e.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

LAG = f'karrot_consumer_lag{{consumer="{GROUP}"}}'


@pytest.fixture
def lags(stack: Stack) -> Iterator[Lags]:
    """Run the experiment; return the lag of each partition from Kafka's own command."""
    experiment(stack.kafka, "--keep")
    try:
        yield {each.partition: each.lag or 0 for each in stack.kafka.positions(GROUP)}
    finally:
        remove(stack.kafka)


def test_kafka_karrot_watch_and_prometheus_have_the_same_lags(stack: Stack, lags: Lags, tmp_path: Path) -> None:
    assert set(lags) == {0, 1, 2}
    assert 0 < sum(lags.values()) < 1000
    assert watched(stack.kafka) == lags
    prometheus = stack.prometheus
    with watching(stack.kafka, tmp_path / "data", partition_metrics="true") as service:
        with prometheus.scraping("skew", service.port):
            wait_for(lambda: prometheus.number(LAG) == sum(lags.values()))
            found = prometheus.query(f'karrot_partition_lag{{consumer="{GROUP}",topic="{TOPIC}"}}')
            largest = prometheus.number(f'karrot_consumer_max_lag{{consumer="{GROUP}"}}')
        assert {int(each["metric"]["partition"]): int(each["value"][1]) for each in found} == lags
        assert largest == max(lags.values())
        api = service.get(f"/api/v1/group?cluster=e2e&consumer={GROUP}").json
    assert {each["partition"]: each["lag"] for each in api["partitions"]} == lags


def test_the_example_leaves_nothing_behind(one_broker: Stack) -> None:
    said = experiment(one_broker.kafka)
    assert "wrote 1000 messages, every second one to partition 1" in said
    assert said.endswith(f"deleted {TOPIC} and {GROUP}\n")
    admin = one_broker.kafka.admin()
    wait_for(lambda: TOPIC not in admin.list_topics(timeout=10).topics)
    assert GROUP not in {each.group_id for each in admin.list_consumer_groups().result(30).valid or ()}


def test_the_example_shows_the_three_answers_of_a_real_burrow(one_broker: Stack) -> None:
    with standing_in(one_broker.kafka, CLUSTER) as burrow:
        said = experiment(one_broker.kafka, "--burrow", burrow, "--keep")
        try:
            lags = {each.partition: each.lag for each in one_broker.kafka.positions(GROUP)}
            assert karrots_lags(burrow) == lags
        finally:
            remove(one_broker.kafka)
    groups, status, lag = said.split("$ karrot ")[1:]
    assert (groups.split()[0], status.split()[0], lag.split()[0]) == ("groups", "status", "lag")
    assert re.search(rf"^{GROUP}: \w+, lag {sum(each or 0 for each in lags.values())},", status, re.MULTILINE)
    for partition, number in lags.items():
        assert re.search(rf"^{GROUP} +{TOPIC} +{partition} +\d+ +\d+ +{number} ", lag, re.MULTILINE)


def watched(kafka: Kafka) -> Lags:
    """Return the output of `karrot watch` about the group, once verdicts are possible."""
    with verdicts(kafka) as said:
        found = next(each for each in said if each["group"] == GROUP)
    assert found["totallag"] == sum(each["current_lag"] for each in found["partitions"])
    return {each["partition"]: each["current_lag"] for each in found["partitions"]}


@contextmanager
def verdicts(kafka: Kafka) -> Iterator[Iterator[dict[str, Any]]]:
    command = [sys.executable, "-m", "karrot", "watch", "--bootstrap-servers", kafka.bootstrap, "--cluster", "e2e"]
    with subprocess.Popen([*command, "--every", "0.5", "--json"], stdout=subprocess.PIPE) as watch:
        assert watch.stdout is not None
        yield (json.loads(line)["Event"]["Result"] for line in watch.stdout)
        watch.terminate()
